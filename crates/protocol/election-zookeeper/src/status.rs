//! Status of an election, for operators.

use std::time::Duration;

use stentor_fabric::ProcessId;

/// Status of an election by ZooKeeper, for logs and displays. It is not part of the protocol.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Status {
    /// `true` if the last round was answered.
    pub connected: bool,
    /// Id of the session, or 0 before the first one.
    pub session: i64,
    /// Number of sessions so far.
    pub sessions: u64,
    /// Session timeout that the servers granted, or 0 before the first session.
    pub session_timeout: Duration,
    /// Candidates in the line when it was last read, the leader first.
    pub line: Vec<ProcessId>,
    /// Description of the last failure, its place and its remedy, or `None` if the line has been read since without
    /// one.
    pub error: Option<String>,
    /// Number of rounds that have read the line.
    pub rounds: u64,
    /// Number of requests sent.
    pub requests: u64,
    /// Number of changes of watched nodes.
    pub wakes: u64,
    /// Number of panics of the client that were caught.
    pub panics: u64,
}
