//! The fabric contract: the operations and guarantees on which a protocol may rely, over RDMA hardware, the shared
//! memory of one host, or a simulator.
//!
//! One [`Fabric`] value belongs to one process and is polled by one thread. It offers registered memory with access
//! granted per peer ([`RegionSpec`], [`Fabric::grant`], [`Fabric::revoke`]), one-sided and two-sided verbs ([`Verb`]),
//! completions ([`Completion`]), connection and revocation events ([`Event`]) and waiting ([`Fabric::arm`],
//! [`Fabric::wait`], and [`Fabric::waker`] for other threads of the process).
//!
//! # Guarantees
//! The rules promise what real NICs guarantee, and no more. The simulator (`stentor-fabric-sim`) violates every
//! ordering and visibility that these rules do not promise.
//!
//! 1. Writes on one reliable queue pair take effect in posting order. There is no order between two queue pairs.
//! 2. The bytes of one write land in any order, unless [`Capabilities::ordered_bytes`] is true. Adjacent writes may be
//!    merged into one write on queue pairs whose owner allows it ([`QpConfig::merges`]).
//! 3. A successful completion means that the responder's NIC has accepted the data. A later READ or atomic through that
//!    NIC sees it; the responder's CPU may not see it yet. NIC atomics are atomic among themselves, never with the
//!    CPU's.
//! 4. Nothing wider than 8 aligned bytes is atomic. Remotely written memory is only ever read as [`Word`]s.
//! 5. Some fabrics promise no order between writes at all ([`Capabilities::ordered_writes`]).
//! 6. Protection is per region and peer: a peer that may write one region cannot reach another peer's.
//! 7. An error completion is a suspicion, never proof of a crash. It changes no quorum.
//!
//! # Failures of queue pairs, processes and grants
//! Queue pairs break individually, one (peer, service) at a time. Processes crash and restart under the same
//! [`ProcessId`], links fail and recover, and access is revoked and granted. All this may happen any number of times
//! without a new [`Fabric`]. The contract promises:
//!
//! 8. A queue pair that breaks at one end breaks at the other end, either with an error or with [`Event::Disconnected`]
//!    alone. The end that detects the break first may reset first; the other end is notified. The notification needs
//!    only time and a working network. No request needs to be posted.
//! 9. With [`Event::Disconnected`] all completions of the connection can be polled, including those of unused receives.
//!    Requests that were flushed or failed may have landed all the same, or may land later.
//! 10. After [`Event::Connected`], nothing posted on an earlier connection of the queue pair lands any more, nor
//!     anything of an earlier life of the peer. Late writes land only before this event or before a revocation takes
//!     effect. They are a prefix of the posted writes, where writes are ordered.
//! 11. The success of a SEND or WRITE_WITH_IMM on a connection that breaks does not prove that the receive completed. A
//!     sender that needs to know asks the peer on the next connection. The success of a WRITE proves that its data is
//!     in the owner's memory no later than the owner's next [`Event::Connected`] or [`Event::Revoked`].
//! 12. Regions outlive connections: they stay registered, granted and filled until their owner changes that, and a
//!     peer's next life resolves them again. A [`RemoteRegion`] does not outlive its grant. After a revocation or the
//!     end of the owner's life the fabric refuses it for ever, and it never denotes other memory.
//! 13. A WRITE_WITH_IMM or SEND that finds no receive posted waits, and so do the requests posted after it on its queue
//!     pair. They are late, not lost, until the retry limit ([`Status::RnrRetryExceeded`]) breaks the queue pair.
//! 14. A READ from a stalled process succeeds and returns the contents of its memory. A READ from a process that has
//!     ended may succeed for a while and return the last contents; then the queue pair breaks.
//!
//! # Fan-out sets: copies made by the network
//! With [`Capabilities::hardware_multicast`], the processes that join a fan-out set ([`join_set`](Fabric::join_set))
//! each have one queue pair that reaches all others. [`post_set`](Fabric::post_set) sends one WRITE, of which each
//! target gets a copy.
//!
//! 15. A successful completion means for every target what it means for a single WRITE (rule 3). The writes of a set on
//!     one queue pair take effect at each target in posting order. There is no order between the writes of a set and
//!     those of an ordinary queue pair.
//! 16. One target that does not answer breaks the set for all its processes. Outstanding writes may have landed at some
//!     targets and not at others. They may land late, until [`set_settled`](Fabric::set_settled) returns true for a
//!     target. Before a process writes the same location by another path, it waits until `set_settled` returns true.
//! 17. A set serves the processes that have joined it and are reached now ([`set_reaches`](Fabric::set_reaches)). The
//!     reached processes change only while the queue pair is not ready. A sender writes to all other processes by
//!     ordinary queue pairs, as on fabrics without sets.
//!
//! # Recovery procedures
//! **After a broken queue pair** ([`Event::Disconnected`]): [`poll`](Fabric::poll) until no completion is left; call
//! [`SendQueue::reset`]; drop every [`RemoteRegion`] used on it; call [`reset`](Fabric::reset); post the receives with
//! [`post_recv`](Fabric::post_recv), before or after [`Event::Connected`]. Once it is connected,
//! [`resolve`](Fabric::resolve) the regions and continue. Both ends do this, whichever caused the break.
//!
//! **After a peer's restart:** the other processes see one broken queue pair per service and nothing else. The new
//! process registers and grants its regions, then [`connect`](Fabric::connect)s the same services. The fabric does not
//! distinguish the lives of a process: protocols put an identifier of the life into what they write first. A process
//! may have to separate late writes of the peer's old life from writes of its new life. It then revokes before it
//! resets: [`revoke`](Fabric::revoke), wait for [`Event::Revoked`], read, clear [`memory`](Fabric::memory),
//! [`grant`](Fabric::grant), [`reset`](Fabric::reset).
//!
//! **To fence a peer:** call [`revoke`](Fabric::revoke), wait for [`Event::Revoked`], and only then read
//! [`memory`](Fabric::memory). Call `memory` again for that, because the memory may have moved. To readmit the peer,
//! call [`grant`](Fabric::grant). The peer finds the new key with [`resolve`](Fabric::resolve). If it resolves before
//! it posts, its queue pair does not break. If it was writing, it gets [`Status::RemoteAccess`], and both ends reset.
//!
//! # Layers above the contract
//! [`seal`] makes a record self-validating. [`SealedSlot`] is one such record at a fixed location. [`RingWriter`] and
//! [`RingReader`] are a single-writer ring of such records with cumulative credits. `stentor-fabric-conformance` has
//! the test suite that every fabric passes.
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
