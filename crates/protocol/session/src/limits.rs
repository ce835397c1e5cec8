//! What bounds a table of sessions.

/// Bounds of a table. They are the same in all groups of a cluster: a command that one group refuses by a bound must be refused
/// by all.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionLimits {
    /// Most sessions of a group.
    pub sessions: u32,
    /// Sessions that were ended and whose end is still to come. Those beyond this number take places of open sessions.
    pub ended: u32,
    /// Requests of one session that may be unanswered, and so the replies that are kept of one generation. As many are kept of all
    /// generations before it together, and as many of these generations. At least 1.
    pub window: u32,
    /// Most bytes of one reply.
    pub reply_bytes: u32,
    /// Longest time to live of a session, nanoseconds.
    pub ttl: u64,
}

impl Default for SessionLimits {
    /// 1024 sessions and 4096 ended ones, 64 requests, 4096 bytes, 10 minutes.
    fn default() -> Self {
        SessionLimits { sessions: 1024, ended: 4096, window: 64, reply_bytes: 4096, ttl: 600_000_000_000 }
    }
}
