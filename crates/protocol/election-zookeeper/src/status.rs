//! What an operator may want to know.

use std::time::Duration;

use stentor_fabric::ProcessId;

/// How an election by ZooKeeper is doing, for logs and displays; no part of the protocol.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// Whether the last round was answered.
    pub connected: bool,
    /// The session's id; 0 before the first.
    pub session: i64,
    /// Sessions so far.
    pub sessions: u64,
    /// What the servers granted; zero before the first session.
    pub session_timeout: Duration,
    /// Who stands in line, the leader first, as it was last read.
    pub line: Vec<ProcessId>,
    /// What went wrong last, where, and what to do; nothing while all is well.
    pub error: Option<String>,
    /// Rounds made.
    pub rounds: u64,
    /// Requests sent.
    pub requests: u64,
    /// Watched nodes that changed.
    pub wakes: u64,
    /// Panics of the client that were caught.
    pub panics: u64,
}
