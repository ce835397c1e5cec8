//! Election by ZooKeeper, for who has an ensemble anyhow: the recipe of the notes, made to survive.
//!
//! Every candidate has an ephemeral sequential node under `<root>/election/<group>`. The first in line leads. Everybody
//! else watches the node before its own and nothing else, so a death wakes one process and not the herd.
//!
//! # States
//! One thread per election holds at most one session and repeats a round: list the line, find or create the own node,
//! then lead or watch. It tells changes over a channel; [`ZookeeperElection`] takes them out without blocking.
//!
//! - The **epoch** is a number in the data of `<root>/election/<group>`. Who comes first in line raises it there and
//!   writes it into its own node, both in one transaction that fails if anybody else was quicker. So no two reigns share
//!   an epoch, and all that read the first node agree on it.
//! - **Nobody goes back.** A process that has seen a larger epoch than the ensemble holds (its data was lost, or the
//!   multicast met a larger ballot) raises the number; the leader, who watches it, announces itself under a larger one.
//! - **The own node is the own node** if its creation (czxid) and its owner are those of this session: checked after
//!   every reconnection. What stands in line under this process's name from an earlier life is removed.
//! - **Hand-over.** The leader writes whom it prefers beside the epoch and removes its node, in one transaction, and goes
//!   to the end of the line. Whoever comes first and is not the preferred one goes behind too, if that one stands in
//!   line. So only neighbours wake, and nothing waits for a timeout.
//! - **Silence.** A leader that got no answer for the session's timeout resigns; by then the ensemble may have given its
//!   place away. One whose owner stops polling for so long leaves the line: a heart that beats in a thread of its own
//!   proves nothing about the process.
//!
//! Candidates further back learn who leads when they read the line again: when the node before theirs changes, and every
//! third of the session's timeout. A new leader announces itself to all anyway, by phase 1.
//!
//! # What it is not
//! Safety rests on ballots, never on this: a leader that was stopped may believe in its reign for a while after it ended.
//! Connections are neither encrypted nor authenticated; nodes are open to anybody who reaches the ensemble.
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
