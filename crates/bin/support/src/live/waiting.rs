//! Who is waited for at the start.

use std::time::{Duration, Instant};

use super::Repeats;

/// Whoever is there sooner is not spoken of; and so long is what is said held at least.
const NOTICED: Duration = Duration::from_secs(2);
/// So many are named.
const NAMED: usize = 8;

/// Says for whom a process waits: soon, when they are others, and again after longer and longer pauses.
pub struct Waiting {
    since: Instant,
    next: Instant,
    repeats: Repeats<String>,
}

/// Begins to wait.
impl Default for Waiting {
    fn default() -> Self {
        let since = Instant::now();
        Waiting { since, next: since + NOTICED, repeats: Repeats::default() }
    }
}

impl Waiting {
    /// What there is to say now, if anything. `whom` names those who are not there.
    pub fn look(&mut self, now: Instant, whom: impl FnOnce() -> Vec<String>) -> Option<String> {
        self.look_and_explain(now, whom, String::new)
    }

    /// The same. `why` is asked only when something is said, and follows it; what it says does not make it new.
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
    fn it_is_said_soon_and_when_they_are_others_and_less_and_less_often() {
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
    fn reasons_follow_and_do_not_make_it_new() {
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
    fn nobody_and_many_are_named_in_short() {
        let mut waiting = Waiting::default();
        let begin = waiting.since;
        assert_eq!(waiting.look(begin + NOTICED, Vec::new), None);
        let many = || (0..20).map(|n| format!("p{n}")).collect::<Vec<_>>();
        let said = waiting.look(begin + 2 * NOTICED, many).unwrap();
        assert_eq!(said, "waiting for p0, p1, p2, p3, p4, p5, p6, p7 and 12 more; 4 s so far");
    }
}
