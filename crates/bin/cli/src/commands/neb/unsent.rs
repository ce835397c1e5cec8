//! Reports lines of a broadcast's input that were too long.

/// Shortest time between two reports on standard error, in nanoseconds.
const PAUSE_NS: u64 = 1_000_000_000;

/// Counts the lines that were not broadcast. An input may have millions of them, so they are reported at most once per
/// second, and once more at the end.
#[derive(Debug, Default)]
pub(super) struct Unsent {
    /// The number of the first line that was not reported yet, and the count of such lines.
    pending: Option<(u64, u64)>,
    /// Time of the last report, in nanoseconds.
    told_ns: Option<u64>,
}

impl Unsent {
    /// Adds line `number`, which was too long.
    pub(super) fn add(&mut self, number: u64) {
        let (first, count) = self.pending.unwrap_or((number, 0));
        self.pending = Some((first, count + 1));
    }

    /// Returns whether there are lines to report.
    pub(super) fn is_any(&self) -> bool {
        self.pending.is_some()
    }

    /// Reports the lines since the last report, unless that was less than a second ago.
    pub(super) fn tell(&mut self, now_ns: u64, limit: usize, say: &impl Fn(&str)) {
        if self.pending.is_some() && self.told_ns.is_none_or(|told| now_ns.saturating_sub(told) >= PAUSE_NS) {
            self.told_ns = Some(now_ns);
            self.tell_all(limit, say);
        }
    }

    /// Reports the lines since the last report.
    pub(super) fn tell_all(&mut self, limit: usize, say: &impl Fn(&str)) {
        let Some((first, count)) = self.pending.take() else { return };
        let what = match count {
            1 => format!("line {first} of standard input is longer than {limit} bytes, and was not broadcast"),
            _ => format!(
                "line {first} of standard input and {} after it are longer than {limit} bytes, and were not broadcast",
                count - 1
            ),
        };
        say(&format!("{what}; shorten what is written to it, or raise payload_bytes in [neb] of all processes"));
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn flood_of_long_lines_is_logged_once_per_second() {
        let said = RefCell::new(Vec::new());
        let say = |text: &str| said.borrow_mut().push(text.split(';').next().unwrap_or_default().to_owned());
        let mut unsent = Unsent::default();
        unsent.tell(7, 64, &say);
        for number in 3..1003 {
            unsent.add(number);
            unsent.tell(number, 64, &say);
        }
        unsent.tell(3 + PAUSE_NS, 64, &say);
        unsent.add(2000);
        unsent.tell_all(64, &say);
        unsent.tell_all(64, &say);
        let one = |n: u64| format!("line {n} of standard input is longer than 64 bytes, and was not broadcast");
        let more = "line 4 of standard input and 998 after it are longer than 64 bytes, and were not broadcast";
        assert_eq!(*said.borrow(), [one(3), more.to_owned(), one(2000)]);
    }
}
