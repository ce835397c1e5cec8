//! The fabric contract: what a protocol may ask of RDMA hardware, of one host's shared memory, or of a simulator.
//!
//! One [`Fabric`] value belongs to one process and is polled by one thread. It offers registered memory with access
//! granted per peer ([`RegionSpec`], [`Fabric::grant`], [`Fabric::revoke`]), one-sided and two-sided verbs
//! ([`Verb`]), completions ([`Completion`]), connection and revocation events ([`Event`]) and waiting
//! ([`Fabric::arm`], [`Fabric::wait`], and [`Fabric::waker`] for other threads of the process).
//!
//! # What the contract promises
//! These are the rules that real NICs keep, and no more. `fabric-sim` breaks everything that is not written here.
//!
//! 1. Writes on one reliable queue pair take effect in posting order. Between two queue pairs: no order at all.
//! 2. Inside one write the order of bytes is not promised, unless [`Capabilities::ordered_bytes`] says so. Writes that adjoin
//!    may be one write on queue pairs whose owner allows it ([`QpConfig::merges`]).
//! 3. A successful completion says that the responder's NIC took the data: a later READ or atomic through that NIC
//!    sees it, the responder's CPU may not yet. NIC atomics are atomic among themselves, never with the CPU's.
//! 4. Nothing wider than 8 aligned bytes is atomic. Remotely written memory is only ever read as [`Word`]s.
//! 5. Some fabrics promise no order between writes at all ([`Capabilities::ordered_writes`]).
//! 6. Protection is per region and peer: a peer that may write one region cannot reach another peer's.
//! 7. An error completion is a suspicion, never proof of a crash. It changes no quorum.
//!
//! # When something breaks
//! Queue pairs break one by one: one (peer, service) at a time. Processes crash and come back under the same
//! [`ProcessId`] as often as they like, links break and return, access is taken and given. Nothing of that needs a new
//! [`Fabric`], nor a limit on how often. What is promised:
//!
//! 8. A queue pair that breaks at one end breaks at the other: by an error, or by [`Event::Disconnected`] alone. Whoever
//!    hears first may reset first; the other end learns it. Only time and a working network are needed, nothing posted.
//! 9. With [`Event::Disconnected`] all completions of the connection can be polled, receives that were not used among
//!    them. What was flushed or failed may have landed all the same, or land later.
//! 10. With [`Event::Connected`] that ends: nothing posted on an earlier connection of the queue pair lands any more, nor
//!     anything of an earlier life of the peer. Before it, and only before it or a revocation, late writes may land. They
//!     are a prefix of what was posted, where writes are ordered.
//! 11. The success of a SEND or WRITE_WITH_IMM on a connection that breaks does not prove that the receive completed:
//!     who needs to know asks again on the next connection. The success of a WRITE proves that its data is in the
//!     owner's memory at the latest when the owner hears [`Event::Connected`] or [`Event::Revoked`].
//! 12. Regions outlive connections: they stay registered, granted and filled until their owner says otherwise, and a
//!     peer's next life resolves them afresh. A [`RemoteRegion`] outlives nothing: with a revocation or the end of the
//!     owner's life it is refused for ever, and never stands for other memory.
//! 13. A WRITE_WITH_IMM or SEND that finds no receive posted waits, and what was posted behind it on its queue pair waits
//!     with it: late, not lost, until the limit ([`Status::RnrRetryExceeded`]) breaks the queue pair.
//! 14. A READ from a process that stands still succeeds and brings what is in its memory. From a process that is gone
//!     it may succeed for a while and bring what was there last; then the queue pair breaks.
//!
//! # Where the network makes the copies
//! With [`Capabilities::hardware_multicast`] processes that [`join_set`](Fabric::join_set) have one queue pair for all of
//! them, and [`post_set`](Fabric::post_set) sends one WRITE of which each target gets a copy.
//!
//! 15. A success says of every target what it says of a WRITE (rule 3). Writes of a set on one queue pair take effect at each
//!     target in posting order. Between a set's writes and a queue pair's there is no order.
//! 16. One target that does not answer breaks the set for everybody. What was outstanding may have landed at some targets
//!     and not at others, and may land late, until [`set_settled`](Fabric::set_settled) says of a target that none of it will
//!     any more. Who writes to a place again by another way asks that first.
//! 17. A set is there for those who have joined and are reached now ([`set_reaches`](Fabric::set_reaches)); that changes
//!     only while the queue pair is not ready. Whoever it does not reach is written to by a queue pair, as without it.
//!
//! # What a node does about it
//! **A queue pair breaks** ([`Event::Disconnected`]): [`poll`](Fabric::poll) until nothing comes;
//! [`SendQueue::reset`]; forget every [`RemoteRegion`] used on it; [`reset`](Fabric::reset);
//! [`post_recv`](Fabric::post_recv) the receives, before [`Event::Connected`] or after. When it is connected,
//! [`resolve`](Fabric::resolve) and go on. The same at both ends, whoever caused it.
//!
//! **A peer restarts:** for its survivors that is a broken queue pair per service and nothing else. The new process
//! registers and grants its regions, then [`connect`](Fabric::connect)s the same services. The fabric does not tell its
//! lives apart: protocols say their incarnation themselves, in what they write first. A survivor that must not take what
//! the old life wrote late for the new one's revokes before it resets: [`revoke`](Fabric::revoke), wait for
//! [`Event::Revoked`], read, clear [`memory`](Fabric::memory), [`grant`](Fabric::grant), [`reset`](Fabric::reset).
//!
//! **Fencing a peer:** [`revoke`](Fabric::revoke); wait for [`Event::Revoked`]; only then look at
//! [`memory`](Fabric::memory) — ask for it again, it may have moved. To let it in again, [`grant`](Fabric::grant). The
//! peer finds a new key with [`resolve`](Fabric::resolve): if it asks before it posts its queue pair does not break;
//! if it was writing it gets [`Status::RemoteAccess`], and both ends reset.
//!
//! # What stands on it
//! [`seal`] makes a record self-validating; [`SealedSlot`] is one such record in a fixed place; [`RingWriter`] and
//! [`RingReader`] are a single-writer ring of them with cumulative credits. `stentor-fabric-conformance` has the
//! suite that every fabric passes.
#![forbid(unsafe_code)]

mod backoff;
mod capabilities;
pub mod codec;
mod completion;
mod contract;
mod error;
mod ids;
pub mod memory;
mod mutant;
mod os_error;
mod poll_hint;
mod post;
mod refusal;
mod region;
pub mod ring;
pub mod seal;
mod send_queue;
mod set;
mod slot;
mod splitmix;
mod waker;

pub use backoff::{Backoff, Idle, REST_AFTER, WaitMode};
pub use capabilities::{Capabilities, CapabilityMask};
pub use completion::{Completion, Event, Opcode, Status};
pub use contract::{Fabric, Wake};
pub use error::{AccessError, ConnectError, PostError, RegisterError, WaitError};
pub use ids::{ProcessId, Purpose, QpId, RegionId, Service};
pub use memory::Word;
pub use mutant::Mutant;
pub use os_error::OsError;
pub use poll_hint::PollHint;
pub use post::{Operation, Source, Span, Verb, WorkRequest};
pub use refusal::{Refusal, differing_settings};
pub use region::{Access, QpConfig, QpKind, QpState, RegionSpec, RemoteRegion, RemoteSpan};
pub use ring::{Record, RingReader, RingWriter};
pub use send_queue::SendQueue;
pub use set::{SetSpec, SetTarget, SetWrite};
pub use slot::{SealedSlot, SlotReader};
pub use splitmix::SplitMix64;
pub use waker::{Alarm, Waker};
