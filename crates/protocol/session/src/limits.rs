//! Bounds of a table of sessions.

/// Bounds of a table. They are equal in all groups of a cluster, because a command that one group refuses by a bound
/// must be refused by all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// Largest number of open sessions of a group.
    pub sessions: u32,
    /// Number of ended sessions that a group remembers without counting them as open, each until the session's end is
    /// reached. Further ended sessions count as open.
    pub ended: u32,
    /// Largest number of unanswered requests of one session, at least 1. It also bounds the replies that are kept of
    /// the current generation, the replies that are kept of all earlier generations together, and the number of earlier
    /// generations.
    pub window: u32,
    /// Length of the longest reply, in bytes.
    pub reply_bytes: u32,
    /// Longest time to live of a session, in nanoseconds.
    pub ttl: u64,
}

impl Default for SessionLimits {
    /// Returns limits of 1024 open and 4096 ended sessions, 64 requests per window, 4096 bytes per reply and 10 minutes
    /// to live.
    fn default() -> Self {
        SessionLimits { sessions: 1024, ended: 4096, window: 64, reply_bytes: 4096, ttl: 600_000_000_000 }
    }
}
