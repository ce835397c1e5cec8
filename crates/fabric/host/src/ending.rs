//! Detection of processes that are being torn down, and still hold their locks and sockets for a moment.

use std::fs;

/// Bit in the flags of a process: the kernel is tearing it down (`PF_EXITING`, `linux/sched.h`).
const EXITING: u64 = 4;

/// Bit in the pending signals of a process: SIGKILL.
const KILL: u64 = 1 << 8;

/// Returns whether a process of this PID namespace has ended, is being torn down, or was killed and has not run since.
#[must_use]
pub fn is_ending(pid: i32) -> bool {
    let of = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}"));
    of("stat").map_or(true, |stat| says_ending(&stat)) || of("status").map_or(true, |status| says_killed(&status))
}

/// Returns whether SIGKILL is pending in the contents of `/proc/PID/status`. On a busy machine, a killed process may
/// not run, and therefore not end, for a while.
fn says_killed(status: &str) -> bool {
    let pending = status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    let mut pending = pending.filter_map(|set| u64::from_str_radix(set.trim(), 16).ok());
    pending.any(|set| set & KILL != 0)
}

/// Returns whether the process is exiting or has ended, from the contents of `/proc/PID/stat`. Its first fields are the
/// pid, the name in parentheses, the state, four numbers, the terminal's group, and the flags.
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
    fn dying_processes_are_distinguished_from_running_ones() {
        assert!(says_ending("7 (a) b) Z 1 7 7 0 -1 4 0 0"));
        assert!(says_ending("7 (a) R 1 7 7 0 -1 4194564 0 0"));
        assert!(!says_ending("7 (a) R 1 7 7 0 -1 4194560 0 0"));
        assert!(says_killed("State:\tR (running)\nSigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n"));
        assert!(says_killed("SigPnd:\t0000000000000000\nShdPnd:\t0000000000000104\n"));
        assert!(!says_killed("SigPnd:\t0000000000000080\nShdPnd:\t0000000000004000\nSigBlk:\t0000000000000100\n"));
        assert!(!is_ending(std::process::id() as i32));
    }
}
