//! Repeated messages. Each is reported at once, and then after pauses that double, with a count.

use std::fmt;
use std::time::{Duration, Instant};

/// First and longest pause between two reports of one event. An event that has not happened for the longest pause
/// counts as new when it happens again.
const PAUSE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(3600));
/// Number of events that are tracked. Further events are dropped until a tracked one expires.
const MOST: usize = 64;

/// Number of times that an event happened since its last report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    times: u64,
    /// Time since the last report; `None` in the first report.
    since: Option<Duration>,
}

/// Prints nothing in the first report, and a clause in parentheses in later ones.
impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.since {
            None => Ok(()),
            Some(since) => write!(f, " ({} times in the last {} s)", self.times, since.as_secs()),
        }
    }
}

struct Entry<K> {
    what: K,
    times: u64,
    said: Instant,
    happened: Instant,
    pause: Duration,
}

/// Decides which of several repeated events are reported. Events are equal if their keys are.
pub struct Repeats<K>(Vec<Entry<K>>);

impl<K> Default for Repeats<K> {
    fn default() -> Self {
        Repeats(Vec::new())
    }
}

impl<K: Clone> Repeats<K> {
    /// Returns the events that happened during their pauses and were not reported, oldest first. Returns none before
    /// the first of these pauses is over.
    ///
    /// All such events are returned together, even those whose pauses are not over. If several states alternate, the
    /// last one in the report is therefore the present one.
    pub fn due(&mut self, now: Instant) -> Vec<(K, Times)> {
        let is_due = |entry: &Entry<K>| entry.times > 0 && now.saturating_duration_since(entry.said) >= entry.pause;
        if !self.0.iter().any(is_due) {
            return Vec::new();
        }
        self.0.sort_by_key(|entry| entry.happened);
        let held = self.0.iter_mut().filter(|entry| entry.times > 0);
        held.map(|entry| (entry.what.clone(), entry.say(now))).collect()
    }
}

impl<K> Entry<K> {
    fn say(&mut self, now: Instant) -> Times {
        let said = Times { times: self.times, since: Some(now.saturating_duration_since(self.said)) };
        (self.times, self.said, self.pause) = (0, now, PAUSE.1.min(2 * self.pause));
        said
    }
}

impl<K: PartialEq> Repeats<K> {
    /// Records an event. Returns a count if it must be reported now.
    pub fn happened(&mut self, what: K, now: Instant) -> Option<Times> {
        let over = |entry: &Entry<K>| now.saturating_duration_since(entry.happened) >= PAUSE.1;
        self.0.retain(|entry| !over(entry));
        let Some(entry) = self.0.iter_mut().find(|entry| entry.what == what) else {
            if self.0.len() >= MOST {
                return None;
            }
            self.0.push(Entry { what, times: 0, said: now, happened: now, pause: PAUSE.0 });
            return Some(Times { times: 1, since: None });
        };
        (entry.times, entry.happened) = (entry.times + 1, now);
        (now.saturating_duration_since(entry.said) >= entry.pause).then(|| entry.say(now))
    }

    /// Forgets the events that `which` selects. They are reported at once when they happen again.
    pub fn is_over(&mut self, which: impl Fn(&K) -> bool) {
        self.0.retain(|entry| !which(&entry.what));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets an event happen twice a second for a day. Returns the seconds at which it is reported.
    fn said_at(repeats: &mut Repeats<u32>, what: u32, begin: Instant) -> Vec<(u64, Times)> {
        let at = |half: u64| begin + Duration::from_millis(500 * half);
        (0..2 * 86_400).filter_map(|half| Some((half / 2, repeats.happened(what, at(half))?))).collect()
    }

    #[test]
    fn repeated_event_is_reported_at_once_and_after_doubling_pauses() {
        let (mut repeats, begin) = (Repeats::default(), Instant::now());
        let said = said_at(&mut repeats, 1, begin);
        let seconds: Vec<_> = said.iter().map(|(second, _)| *second).collect();
        assert_eq!(seconds[..6], [0, 10, 30, 70, 150, 310]);
        assert!(seconds.windows(2).all(|pair| pair[1] - pair[0] <= 3600) && seconds.len() < 40, "{}", seconds.len());
        assert_eq!(said[0].1.to_string(), "");
        assert_eq!(said[1].1.to_string(), " (20 times in the last 10 s)");
        assert_eq!(said[2].1.to_string(), " (40 times in the last 20 s)");
    }

    #[test]
    fn alternating_events_are_each_reported_once() {
        let (mut repeats, begin) = (Repeats::default(), Instant::now());
        let said = (0..1000).filter(|n| repeats.happened(n % 5, begin + Duration::from_millis(*n)).is_some());
        assert_eq!(said.count(), 5);
    }

    #[test]
    fn last_report_of_alternating_states_is_the_present_one() {
        let (mut repeats, begin) = (Repeats::default(), Instant::now());
        let at = |second: u64| begin + Duration::from_secs(second);
        for (second, state) in [(0, "up"), (2, "down"), (3, "up"), (4, "down"), (5, "up")] {
            assert_eq!(repeats.happened(state, at(second)).is_some(), second < 3);
        }
        assert_eq!(repeats.due(at(9)), []);
        let times = |times, seconds| Times { times, since: Some(Duration::from_secs(seconds)) };
        assert_eq!(repeats.due(at(10)), [("down", times(1, 8)), ("up", times(2, 10))]);
        assert_eq!(repeats.due(at(3000)), [], "nothing is left to report");
    }

    #[test]
    fn events_beyond_the_limit_are_dropped_and_expired_ones_are_new() {
        let (mut repeats, now) = (Repeats::default(), Instant::now());
        let said = (0..10 * MOST).filter(|n| repeats.happened(*n, now).is_some()).count();
        assert_eq!(said, MOST);
        repeats.is_over(|what| *what == 3);
        assert_eq!(repeats.happened(3, now), Some(Times { times: 1, since: None }));
        assert_eq!(repeats.happened(4, now + PAUSE.1), Some(Times { times: 1, since: None }), "it had expired");
    }
}
