//! Stentor: group communication at RDMA speed.
//!
//! Processes form groups, and each group keeps copies of a value. Clients send commands to one group or to several. All members of a group
//! apply the same commands in the same order, and commands to several groups have one place in the order of all of them.
//!
//! # First: a node and a client
//! 1. Write `cluster.toml`, which names the groups and their members. `stentor config init` writes one; [`Cluster::builder`] does it in code.
//! 2. Implement [`StateMachine`] for the value that is replicated: it changes by commands, and replies to them.
//! 3. [`Cluster::node`] makes a member of a group, and [`Node::run`] runs it. Run each member in a process of its own.
//! 4. [`Cluster::client`] makes a client, and [`Client::call`] sends a command and returns its reply.
//!
//! This program is a node if it is given a member's name, and a client otherwise:
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
//! A leader that dies is replaced, and a member that is started again gets the state from another one.
//!
//! # Where to go on
//! - What a state machine may do, and what happens if it panics: [`StateMachine`]. Which thread it runs on: [`ApplyThread`].
//! - A node on a thread of its own: [`NodeBuilder::spawn`]. In an event loop of the caller's: [`Node::turn`].
//! - A command that was sent and whose outcome is not known: [`CallError`], [`Ticket`] and [`Client::resolve`]. A client that outlives its
//!   process: [`Session`].
//! - A client without a thread: [`LocalClient`].
//! - No replicated state: a [`Channel`] between two processes, or the [`Broadcast`] of one to many that even a lying sender cannot split.
//! - Sizes, and the memory that follows from them: [`Limits`], [`Cluster::memory`].
//!
//! # Features
//! A fabric carries what processes write to each other. The configuration names one, and a process starts on those that are built in: the
//! error of any other start names the feature. Reading and checking a configuration needs no feature, so one file serves all processes.
//!
//! | feature | what it builds in |
//! |---|---|
//! | `shm` (default) | shared memory, between processes of one host |
//! | `roce` (default) | RoCEv2 in user space, between hosts |
//! | `verbs` | RDMA devices, through rdma-core |
//! | `ofi` | libfabric: EFA and others |
//! | `unstable-core` | the modules `config`, `operator` and `runtime`, of which all this is made. They may change with every version |
//! | `sim` | the module `sim`: a state machine and its clients under simulation, in tests |
//! | `checker` | histories of runs, for `stentor check`; with them comes `unstable-core` |
//!
//! At least one of the fabrics is needed.
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

pub use broadcast::{Broadcast, BroadcastBuilder, BroadcastError, BroadcastErrorKind, Heard, NotSent};
#[cfg(any(feature = "shm", feature = "roce", feature = "ofi"))]
pub use channel::{Channel, ChannelBuilder, ChannelError, ChannelErrorKind, Received};
pub use client::{
    Answer, Call, CallError, Client, ClientBuilder, ClientError, ClientErrorKind, Consistency, Groups, LocalClient,
    Notification, Notifications, Outcome, Prepared, Preparing, Refused, Replies, Request, Session, Ticket, Why,
};
#[cfg(feature = "unstable-core")]
pub use client::{ClientWatch, OnSender, SeesMulticast};
pub use cluster::{Cluster, ClusterBuilder, ConfigError, ConfigErrorKind, Group};
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
