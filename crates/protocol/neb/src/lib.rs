//! Non-equivocating broadcast (Aguilera et al., "The Impact of RDMA on Agreement", PODC 2019): one sender to many
//! receivers. No two correct receivers deliver different bytes for an index, even if the sender lies.
//!
//! [`Replay`] and [`Broadcast`] are the pure state machines, without I/O, clock or randomness. [`Node`] runs them on
//! any [`Fabric`](stentor_fabric::Fabric).
//!
//! | step | implemented in |
//! |---|---|
//! | broadcast | [`Node::broadcast`] |
//! | take values from the broadcast buffers | [`Replay::poll_bcast_bufs`], `node/scan.rs` |
//! | publish registers and read the others' | `node/publish.rs`, `node/read.rs`; [`Replay::next_round`] |
//! | judge what was read | [`Replay::poll_read_cq`], [`Replay::answered`] |
//! | deliver | [`Replay::next_outcome`], in the order of indices |
//! | number work requests | [`Link`](stentor_link::Link) |
//!
//! # Correctness
//! Every process publishes the value that it received in a write-once register before it reads the others' registers.
//! If two correct processes hold different values, the one that publishes later reads the other's. An empty register is
//! no conflict. In mode `quorum` registers are kept at several hosts, written to a quorum and read from a quorum. Two
//! quorums intersect in a host that does not lie ([`Config`] has the formulas). Every READ through a host's NIC returns
//! what that NIC has accepted before. A process therefore also reads its local replica by READ.
//!
//! The fast path needs no READ. Registers are written to every host in any case, so every host of the registers sees
//! those of all other processes arrive. When *all* processes besides the sender and the receiver itself show the
//! receiver's value, no correct process holds another one.
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
