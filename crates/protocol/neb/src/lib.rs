//! Non-equivocating broadcast: one sender to many, the same bytes for everybody even if the sender lies.
//!
//! This is the pseudocode of the notes read as a protocol, with its gaps closed. [`Replay`] and [`Broadcast`] are the pure
//! state machines: no I/O, no clock, no randomness. [`Node`] puts them on any [`Fabric`](stentor_fabric::Fabric).
//!
//! | pseudocode | here |
//! |---|---|
//! | `broadcast` | [`Node::broadcast`] |
//! | `poll_bcast_bufs` | [`Replay::poll_bcast_bufs`], `node/scan.rs` |
//! | `replay_buf`, `post_read` | registers: `node/publish.rs`, `node/read.rs`; [`Replay::next_round`] |
//! | `poll_read_cq`, `read_tracker` | [`Replay::poll_read_cq`], [`Replay::answered`]: sets, not counters |
//! | `deliver` | [`Replay::next_outcome`], in the order of indices |
//! | work-request ids | [`Link`](stentor_link::Link) |
//!
//! # Why it works
//! Everybody publishes what it got in a write-once register before it reads the others'. Of two correct processes with
//! different values, whichever publishes later reads the other's; an empty register is no conflict. In mode `quorum`
//! registers are kept at several hosts, written to a quorum and read from a quorum; two quorums meet in a host that does
//! not lie ([`Config`] has the arithmetic). What the host's NIC took is what every later READ returns, so also one's own
//! replica is read by READ.
//!
//! The fast path needs no READ: registers are written to every host anyway, so everybody sees those of all others arrive.
//! When *all* other processes show the same value, no correct process holds another one.
#![forbid(unsafe_code)]

mod adversary;
mod authority;
mod broadcast;
mod config;
mod layout;
mod lies;
mod mutant;
mod node;
pub mod removal;
mod replay;
mod set;
mod value;

pub use adversary::Liar;
pub use authority::{Authority, KeyError};
pub use broadcast::Broadcast;
pub use config::{Config, ConfigError, FaultModel, Mode};
pub use layout::{Layout, broadcast_seal, credit_seal, register_seal};
pub use lies::{Lies, Told};
#[doc(hidden)]
pub use mutant::Mutant;
pub(crate) use mutant::mutant;
pub use node::{BroadcastError, Counts, Endpoint, Node, NodeError, Notice};
pub(crate) use removal::{Cut, Holding};
pub use replay::{Evidence, Outcome, Replay, Round, Seen};
pub use set::ProcessSet;
pub use value::{Refused, Value};
