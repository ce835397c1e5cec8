//! Stentor: group communication at RDMA speed.
//!
//! # Where to begin
//! A replicated service is a [`StateMachine`]: a value that changes by commands and by nothing else. Every member of a group applies the
//! same commands in the same order. [`Cluster::load`] reads `cluster.toml`, which names the groups and their members;
//! [`Cluster::node`] makes a member of a group; [`Node::run`] runs it. A leader that dies is replaced, and a member that is started again
//! gets the state from another one.
//!
//! ```no_run
//! use std::io::{self, Read, Write};
//! use stentor::{Cluster, Context, Frozen, Reply, StateMachine};
//!
//! #[derive(Clone, Copy, Default)]
//! struct Counter(i64);
//!
//! impl StateMachine for Counter {
//!     type Frozen = Counter;
//!
//!     fn apply(&mut self, _: &Context<'_>, command: &[u8], reply: &mut Reply) {
//!         self.0 += command.len() as i64;
//!         reply.extend(&self.0.to_le_bytes());
//!     }
//!
//!     fn freeze(&self) -> Counter {
//!         *self
//!     }
//!
//!     fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
//!         let mut bytes = [0; 8];
//!         from.read_exact(&mut bytes)?;
//!         self.0 = i64::from_le_bytes(bytes);
//!         Ok(())
//!     }
//! }
//!
//! impl Frozen for Counter {
//!     fn write(self, out: &mut dyn Write) -> io::Result<()> {
//!         out.write_all(&self.0.to_le_bytes())
//!     }
//! }
//!
//! fn main() -> Result<(), Box<dyn std::error::Error>> {
//!     let cluster = Cluster::load("cluster.toml")?;
//!     cluster.node("g1.1", Counter::default()).start()?.run()?;
//!     Ok(())
//! }
//! ```
//!
//! Programs that need no replicated state have a [`Channel`] between two processes, and the [`Broadcast`] of one to many that even a lying
//! sender cannot split.
//!
//! A [`Client`] sends commands, and gets what the state machine replied: [`Cluster::client`] begins one, [`Client::call`] calls. Its
//! [`Session`] outlives its process, and a [`Ticket`] says what became of a command.
//!
//! # Below that
//! [`config`] reads and checks `cluster.toml`: who is in the cluster, on which fabric, with which limits. [`runtime`] has the parts of which
//! a [`Node`] is made, for programs that need another loop. The protocols are crates of their own: `stentor-multicast` on the contract
//! `stentor-fabric`.
#![forbid(unsafe_code)]

mod any_core;
pub mod broadcast;
pub mod channel;
mod client;
mod cluster;
pub mod config;
mod descriptor;
mod node;
mod pace;
mod reply;
pub mod runtime;
mod state_machine;

pub use broadcast::{Broadcast, BroadcastBuilder, BroadcastError, BroadcastErrorKind, Heard, NotSent};
pub use channel::{Channel, ChannelBuilder, ChannelError, ChannelErrorKind, Received};
pub use client::{
    Answer, Call, CallError, Client, ClientBuilder, ClientError, Groups, LocalClient, Outcome, Prepared, Preparing,
    Refused, Replies, Request, Session, Ticket, Why,
};
pub use cluster::{Cluster, ClusterBuilder, Group};
pub use config::{ClusterConfig, ConfigError};
pub use node::{
    ApplyThread, MemberStatus, Node, NodeBuilder, NodeError, NodeHandle, Position, StartError, Status, Stopper, Turn,
};
pub use reply::Reply;
pub use state_machine::{Context, Frozen, SessionId, StateMachine, Stateless};
pub use stentor_fabric::WaitMode;
