//! Leader election by ZooKeeper, for clusters that already run an ensemble: ZooKeeper's leader-election recipe,
//! extended to survive lost data and stalled processes.
//!
//! Every candidate has an ephemeral sequential node under `<root>/election/<group>`. The first candidate in this line
//! leads. Every other candidate watches the node before its own and nothing else, so a death wakes one process instead
//! of all.
//!
//! # States
//! One thread per election has at most one session. It repeats a round: list the line, find or create this process's
//! node, then lead or watch. It sends changes over a channel, from which [`ZookeeperElection`] receives them without
//! blocking.
//!
//! - The **epoch** is a number in the data of `<root>/election/<group>`, the register. The candidate that becomes first
//!   in line raises it there and writes it into its own node. Both writes are one transaction, which fails if the
//!   register has changed meanwhile. So no two reigns share an epoch, and all processes that read the first node agree
//!   on it.
//! - **Epochs never decrease.** A process may have seen a larger epoch than the ensemble holds, because the ensemble's
//!   data was lost or because the multicast has seen a larger ballot. It then raises the number. The leader watches the
//!   register, and announces itself under a larger epoch.
//! - **This process's node** is recognized by its creation (czxid) and its owner, which must be those of this session.
//!   Both are checked after every reconnection. Nodes with this process's name from an earlier life are removed.
//! - **Hand-over.** The leader writes the preferred successor next to the epoch and removes its own node, in one
//!   transaction. It then joins the end of the line. A candidate that becomes first and is not the preferred one also
//!   moves to the end, provided that the preferred one is in the line. So only neighbours wake, and no step waits for a
//!   timeout.
//! - **Silence.** A leader that received no answer for the session timeout resigns, because the ensemble may have ended
//!   its session by then. A process whose owner stops polling for that long leaves the line: heartbeats of a separate
//!   thread prove nothing about the process.
//!
//! Candidates further back learn of a new leader when they read the line again. That happens when the node before
//! theirs changes, and every third of the session timeout. A new leader also announces itself to all members in phase 1
//! of Paxos.
//!
//! # Limits
//! Safety rests on ballots, never on this election: a leader that was stopped may believe for a while that it still
//! leads. Connections are neither encrypted nor authenticated. Any client that reaches the ensemble can change the
//! nodes.
#![forbid(unsafe_code)]

mod config;
mod diagnose;
mod handle;
mod line;
mod session;
mod shared;
mod status;
mod teller;
mod worker;

pub use config::{ConfigError, ZookeeperConfig};
pub use handle::ZookeeperElection;
pub use status::Status;
