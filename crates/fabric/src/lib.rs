//! The fabric contract: what a protocol may ask of RDMA hardware, of one host's shared memory, or of a simulator.
//!
//! One [`Fabric`] value belongs to one process and is polled by one thread. It offers registered memory with access
//! granted per peer ([`RegionSpec`], [`Fabric::grant`], [`Fabric::revoke`]), one-sided and two-sided verbs
//! ([`Verb`]), completions ([`Completion`]), connection and revocation events ([`Event`]) and waiting
//! ([`Fabric::arm`], [`Fabric::wait`]).
//!
//! # What the contract promises
//! These are the rules that real NICs keep, and no more. `fabric-sim` breaks everything that is not written here.
//!
//! 1. Writes on one reliable queue pair take effect in posting order. Between two queue pairs: no order at all.
//! 2. Inside one write the order of bytes is not promised, unless [`Capabilities::ordered_bytes`] says so.
//! 3. A successful completion says that the responder's NIC took the data: a later READ or atomic through that NIC
//!    sees it, the responder's CPU may not yet. NIC atomics are atomic among themselves, never with the CPU's.
//! 4. Nothing wider than 8 aligned bytes is atomic. Remotely written memory is only ever read as [`Word`]s.
//! 5. Some fabrics promise no order between writes at all ([`Capabilities::ordered_writes`]).
//! 6. Protection is per region and peer: a peer that may write one region cannot reach another peer's.
//! 7. An error completion is a suspicion, never proof of a crash. It changes no quorum.
//!
//! # What stands on it
//! [`seal`] makes a record self-validating; [`SealedSlot`] is one such record in a fixed place; [`RingWriter`] and
//! [`RingReader`] are a single-writer ring of them with cumulative credits. [`conformance`] is the suite that every
//! fabric passes.
#![forbid(unsafe_code)]

mod backoff;
mod capabilities;
mod completion;
pub mod conformance;
mod contract;
mod error;
mod ids;
pub mod memory;
mod plant;
mod post;
mod region;
pub mod ring;
pub mod seal;
mod send_queue;
mod slot;

pub use backoff::{Backoff, Idle, WaitMode};
pub use capabilities::Capabilities;
pub use completion::{Completion, Event, Opcode, Status};
pub use contract::{Fabric, Wake};
pub use error::{AccessError, ConnectError, PostError, RegisterError, WaitError};
pub use ids::{ProcessId, Purpose, QpId, RegionId, Service};
pub use memory::Word;
pub use plant::Plant;
pub use post::{Source, Span, Verb, WorkRequest};
pub use region::{Access, QpConfig, QpKind, QpState, RegionSpec, RemoteRegion, RemoteSpan};
pub use ring::{Record, RingReader, RingWriter};
pub use send_queue::SendQueue;
pub use slot::{SealedSlot, SlotReader};
