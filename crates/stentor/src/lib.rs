//! Stentor: group communication at RDMA speed.
//!
//! Processes form groups, and the members of each group replicate one value. Clients send commands to one group or to
//! several. All members of a group apply the same commands in the same order. A command to several groups has one
//! position in the order of all of them.
//!
//! # First: a node and a client
//! 1. Write `cluster.toml`, which names the groups and their members. `stentor config init` writes a template;
//!    [`Cluster::builder`] builds a configuration in code.
//! 2. Implement [`StateMachine`] for the replicated value: it applies commands and replies to them.
//! 3. [`Cluster::node`] configures a member of a group, and [`Node::run`] runs it. Run each member in its own process.
//! 4. [`Cluster::client`] configures a client, [`Client::call`] sends a command, and [`Call::wait`] returns the reply.
//!
//! With a member's name as its argument, this program runs a node. Without an argument, it runs a client:
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
//!     if let Some(name) = std::env::args().nth(1) {
//!         cluster.node(&name, Counter::default()).start()?.run()?;
//!     } else {
//!         let (group, client) = (cluster.group("g1")?, cluster.client().connect()?);
//!         let answer = client.call(group, b"five!").wait()?;
//!         println!("{:?} at {:?}", answer.bytes(), answer.position());
//!     }
//!     Ok(())
//! }
//! ```
//!
//! The group replaces a leader that dies. A member that restarts receives the state from another member.
//!
//! # Where to read on
//! - The rules for a state machine, and the effect of a panic: [`StateMachine`]. The thread that it runs on:
//!   [`ApplyThread`].
//! - A node on a thread of its own: [`NodeBuilder::spawn`]. A node in the caller's event loop: [`Node::turn`].
//! - A command whose outcome is unknown: [`CallError`], [`Ticket`] and [`Client::resolve`]. A client identity that
//!   survives a restart of its process: [`Session`].
//! - A client without a thread: [`LocalClient`].
//! - Messages without replicated state: a [`Channel`] between two processes, or a [`Broadcast`] from one process to
//!   many. A Byzantine sender cannot make two correct receivers of a broadcast deliver different values.
//! - Sizes, and the memory that they require: [`Limits`], [`Cluster::memory`].
//!
//! # Features
//! A fabric carries the writes between processes. The configuration names one fabric, and a process can start only on a
//! fabric that is built in; otherwise the error names the missing feature. Reading and checking a configuration needs
//! no feature, so all processes can use the same file.
//!
//! | feature | what it enables |
//! |---|---|
//! | `shm` (default) | shared memory, between processes of one host |
//! | `roce` (default) | RoCEv2 in user space, between hosts |
//! | `verbs` | RDMA devices, through rdma-core |
//! | `ofi` | libfabric: EFA and other providers |
//! | `unstable-core` | the modules `config`, `operator` and `runtime`, and hooks, without any promise of stability |
//! | `sim` | the module `sim`: simulates a state machine and its clients, for tests |
//! | `checker` | histories of runs, for `stentor check`; implies `unstable-core` |
//!
//! At least one fabric must be enabled.
#![forbid(unsafe_code)]

#[cfg(not(any(feature = "shm", feature = "roce", feature = "verbs", feature = "ofi")))]
compile_error!("the crate `stentor` needs a fabric: enable one of its features `shm`, `roce`, `verbs` and `ofi`");

mod any_core;
pub mod broadcast;
#[cfg(any(feature = "shm", feature = "roce", feature = "ofi"))]
pub mod channel;
mod client;
mod cluster;
#[cfg(not(feature = "unstable-core"))]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "the feature `unstable-core` publishes it whole")]
mod config;
#[cfg(feature = "unstable-core")]
pub mod config;
mod debug;
mod descriptor;
mod node;
mod notes;
mod observer;
#[cfg(not(feature = "unstable-core"))]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "the feature `unstable-core` publishes it whole")]
mod operator;
#[cfg(feature = "unstable-core")]
pub mod operator;
mod pace;
mod position;
mod reply;
#[cfg(not(feature = "unstable-core"))]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "the feature `unstable-core` publishes it whole")]
mod runtime;
#[cfg(feature = "unstable-core")]
#[cfg_attr(
    not(all(feature = "shm", feature = "roce", feature = "verbs", feature = "ofi")),
    allow(dead_code, reason = "fabrics share parts that are dead without them")
)]
pub mod runtime;
#[cfg(feature = "sim")]
pub mod sim;
mod state_machine;
mod timers;
mod wake;

pub use broadcast::{Broadcast, BroadcastBuilder, BroadcastError, BroadcastErrorKind, Heard, NotSent};
#[cfg(any(feature = "shm", feature = "roce", feature = "ofi"))]
pub use channel::{Channel, ChannelBuilder, ChannelError, ChannelErrorKind, Received};
pub use client::{
    Answer, Call, CallError, Client, ClientBuilder, ClientError, ClientErrorKind, Consistency, Groups, LocalClient,
    Notification, Notifications, Outcome, Prepared, Preparing, Refused, Replies, Request, Session, Ticket, Why,
};
#[cfg(feature = "unstable-core")]
pub use client::{ClientWatch, OnSender, SeesMulticast};
pub use cluster::{BroadcastConfig, Cluster, ClusterBuilder, ConfigError, ConfigErrorKind, Group};
#[cfg(feature = "unstable-core")]
pub use config::ClusterConfig;
pub use config::{FabricKind, Limits, MemoryPlan, MemoryRow, ProcessMemory, limits};
pub use node::{
    ApplyThread, MemberStatus, Node, NodeBuilder, NodeError, NodeErrorKind, NodeHandle, StartError, StartErrorKind,
    Status, Stopper, Turn,
};
#[cfg(feature = "unstable-core")]
pub use node::{Hooks, Round, Voice, Wish};
pub use observer::{
    ObserveError, ObserveErrorKind, Observed, ObservedCommand, ObservedPosition, ObservedReset, ObservedState,
    Observer, ObserverBuilder,
};
pub use position::{Position, PositionError};
pub use reply::Reply;
pub use state_machine::{Context, Frozen, ReadContext, SessionId, StateMachine, Stateless};
#[doc(inline)]
pub use stentor_fabric::WaitMode;
