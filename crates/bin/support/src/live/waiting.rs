//! Reports of the processes for which a process waits when it starts.

use std::time::{Duration, Instant};

use super::Repeats;

/// Time before missing processes are reported for the first time, and shortest interval between two checks.
const NOTICED: Duration = Duration::from_secs(2);
/// Number of processes that a report names. The rest are counted.
const NAMED: usize = 8;

/// Reports the processes that a process waits for: soon after the start, when the set of these processes is a new one,
/// and otherwise after pauses that double.
pub struct Waiting {
    since: Instant,
    next: Instant,
    repeats: Repeats<String>,
}

/// Starts the clock.
impl Default for Waiting {
    fn default() -> Self {
        let since = Instant::now();
        Waiting { since, next: since + NOTICED, repeats: Repeats::default() }
    }
}

impl Waiting {
    /// Returns the report that is due now, if any. `whom` returns the names of the missing processes.
    pub fn look(&mut self, now: Instant, whom: impl FnOnce() -> Vec<String>) -> Option<String> {
        self.look_and_explain(now, whom, String::new)
    }

    /// Returns the report that is due now, if any, followed by the text that `why` returns. Calls `why` only if a
    /// report is due, so a change of that text alone causes no report.
    pub fn look_and_explain(
        &mut self,
        now: Instant,
        whom: impl FnOnce() -> Vec<String>,
        why: impl FnOnce() -> String,
    ) -> Option<String> {
        if now < self.next {
            return None;
        }
        self.next = now + NOTICED;
        let whom = whom();
        if whom.is_empty() {
            return None;
        }
        let more = whom.len().saturating_sub(NAMED);
        let mut text = whom[..whom.len() - more].join(", ");
        if more > 0 {
            text += &format!(" and {more} more");
        }
        self.repeats.happened(text.clone(), now)?;
        let waited = now.saturating_duration_since(self.since).as_secs();
        let long = if waited <= NOTICED.as_secs() { String::new() } else { format!("; {waited} s so far") };
        Some(format!("waiting for {text}{long}{}", why()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_processes_are_reported_on_changes_and_then_less_often() {
        let mut waiting = Waiting::default();
        let begin = waiting.since;
        let two = || vec!["g1.2 (127.0.0.2:7101)".to_owned(), "g1.3".to_owned()];
        let mut said = Vec::new();
        for tenth in 0..6000 {
            let now = begin + Duration::from_millis(100 * tenth);
            let whom = || if (500..1000).contains(&tenth) { vec!["g1.3".to_owned()] } else { two() };
            said.extend(waiting.look(now, whom).map(|text| (tenth / 10, text)));
        }
        assert_eq!(said[0], (2, "waiting for g1.2 (127.0.0.2:7101), g1.3".to_owned()));
        assert_eq!(said[1], (12, "waiting for g1.2 (127.0.0.2:7101), g1.3; 12 s so far".to_owned()));
        assert!(said.contains(&(50, "waiting for g1.3; 50 s so far".to_owned())), "{said:?}");
        assert!(said.len() < 12, "{said:?}");
    }

    #[test]
    fn reasons_follow_without_causing_a_report() {
        let mut waiting = Waiting::default();
        let (begin, mut asked) = (waiting.since, 0);
        let mut said = Vec::new();
        for second in 2..13 {
            let why = || {
                asked += 1;
                format!("; g1.3 was refused {second} s ago")
            };
            let now = begin + Duration::from_secs(second);
            said.extend(waiting.look_and_explain(now, || vec!["g1.3".to_owned()], why));
        }
        let again = "waiting for g1.3; 12 s so far; g1.3 was refused 12 s ago";
        assert_eq!((said, asked), (vec!["waiting for g1.3; g1.3 was refused 2 s ago".to_owned(), again.to_owned()], 2));
    }

    #[test]
    fn empty_list_is_not_reported_and_a_long_one_is_shortened() {
        let mut waiting = Waiting::default();
        let begin = waiting.since;
        assert_eq!(waiting.look(begin + NOTICED, Vec::new), None);
        let many = || (0..20).map(|n| format!("p{n}")).collect::<Vec<_>>();
        let said = waiting.look(begin + 2 * NOTICED, many).unwrap();
        assert_eq!(said, "waiting for p0, p1, p2, p3, p4, p5, p6, p7 and 12 more; 4 s so far");
    }
}
