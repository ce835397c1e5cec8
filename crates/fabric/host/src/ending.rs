//! Processes that are being torn down: they hold what they had for a moment longer.

use std::fs;

/// In the flags of a process: the kernel is tearing it down (`PF_EXITING`, `linux/sched.h`).
const EXITING: u64 = 4;

/// Returns whether a process of this PID namespace is gone or is being torn down.
#[must_use]
pub fn is_ending(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).map_or(true, |stat| says_ending(&stat))
}

/// The same of what `/proc/PID/stat` says: pid, name in parentheses, state, four more numbers, terminal's group, flags.
fn says_ending(stat: &str) -> bool {
    let Some((_, rest)) = stat.rsplit_once(')') else { return false };
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next().unwrap_or_default();
    let flags: u64 = fields.nth(5).and_then(|flags| flags.parse().ok()).unwrap_or(0);
    matches!(state, "Z" | "X") || flags & EXITING != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_that_is_torn_down_is_told_from_one_that_runs() {
        assert!(says_ending("7 (a) b) Z 1 7 7 0 -1 4 0 0"));
        assert!(says_ending("7 (a) R 1 7 7 0 -1 4194564 0 0"));
        assert!(!says_ending("7 (a) R 1 7 7 0 -1 4194560 0 0"));
        assert!(!is_ending(std::process::id() as i32));
    }
}
