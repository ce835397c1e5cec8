//! The shared-memory fabric: separate processes on one Linux host. No hardware, no privileges, no files.
//!
//! - **Memory** is memfd only: one per region, passed over a Unix socket to the one peer that it is for, with seals that
//!   forbid changing its size. Nothing is left behind when a process dies, by whatever cause.
//! - **Writes** are relaxed 8-byte atomic stores into the peer's memory, done while posting. A release fence goes before
//!   each write, so that a reader who acquires any word of it sees everything posted before it to the same memory or
//!   elsewhere; word 1 of the span is stored last, with release, because that is the word that readers of sealed records
//!   poll. Nothing else is promised about the order inside a write.
//! - **Completions** are immediate, but no success is reported before [`flush`](stentor_fabric::Fabric::flush) has
//!   checked that the access had not been revoked when the stores were done.
//! - **Revocation** cannot unmap a peer's memory. The owner raises a generation that the peer can only read, copies the
//!   memory and goes on with the copy: a rogue's stores land where nobody reads. What the peer counted as done is in the
//!   copy; what is not, fails there.
//! - **SEND, RECV and immediates** go through a bounded queue per queue pair and direction in shared memory.
//! - **Waiting** is a futex on a word that the peers may write, or the control sockets ([`Fabric::descriptor`]).
//! - **Crashes and returns**: the kernel tells peers at once that a process has died ([`ShmFabric::has_died`]); the end of its
//!   control sockets, after its memory is taken apart, is the end of the process. A peer that hears of it breaks the
//!   queue pairs, forgets that process's regions and keeps its own, which the next life gets when it connects. While both
//!   live, a queue pair that breaks at one end is withdrawn at the other, and offered anew by each end after its reset,
//!   with a fresh queue; an end that was withdrawn stores nothing any more, so nothing old lands once both have offered.
//!   Peers that are gone are looked for every 20 ms, by whoever has the larger id.
//! - **One process of an id**: an abstract Unix socket is the lock on (user, cluster, process), which no cleaner of files can
//!   remove and which dies with its process. It holds within one network namespace. A second one rests on the file of the
//!   configuration alone ([`Source`](stentor_host::Source)), so another directory or other addresses start no second process ([`Running`](stentor_host::Running)). Sockets that are removed from under a
//!   process are made anew within a second ([`ShmFabric::next_note`] says so).
//! - **Namespaces**: processes in different PID namespaces meet if they see the same directory. Lives are told apart by random
//!   numbers, never by pids.
//! - **Nobody else gets in**: sockets live in a 0700 directory, both ends check the other's user id, and a handshake
//!   compares format, version, cluster, configuration and process id.
//!
//! Same-user processes can always harm each other (signals, ptrace); what is guarded against here is a peer of another
//! version or cluster, a peer that crashes anywhere, and one that stores garbage or goes on storing after it was fenced.
//!
//! [`Fabric::descriptor`]: stentor_fabric::Fabric::descriptor

#![deny(unsafe_code)]

#[cfg(loom)]
pub mod doorbell;
#[cfg(not(loom))]
mod doorbell;
#[cfg(loom)]
pub mod gate;
#[cfg(not(loom))]
mod gate;
#[cfg(loom)]
pub mod queue;
#[cfg(not(loom))]
mod queue;

// Under loom only the three algorithms above are built: memory shared with other processes is not loom's.
#[cfg(not(loom))]
mod access;
#[cfg(not(loom))]
mod bare;
#[cfg(not(loom))]
mod bell;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod connect;
#[cfg(not(loom))]
mod control;
#[cfg(not(loom))]
mod copy;
#[cfg(not(loom))]
mod data;
#[cfg(not(loom))]
mod defer;
#[cfg(not(loom))]
mod execute;
#[cfg(not(loom))]
mod fabric;
#[cfg(not(loom))]
mod hello;
#[cfg(not(loom))]
mod life;
#[cfg(not(loom))]
mod local;
#[cfg(not(loom))]
mod mapping;
#[cfg(not(loom))]
mod message;
#[cfg(not(loom))]
mod peer_socket;
#[cfg(not(loom))]
mod post;
#[cfg(not(loom))]
mod pump;
#[cfg(not(loom))]
mod qp;
#[cfg(not(loom))]
mod receive;
#[cfg(not(loom))]
mod remote;
#[cfg(not(loom))]
mod socket;
#[cfg(all(test, not(loom)))]
mod tests;
#[cfg(not(loom))]
mod wait;

#[cfg(not(loom))]
pub use bare::BareMemory;
#[cfg(not(loom))]
pub use config::ShmConfig;
#[cfg(not(loom))]
pub use fabric::ShmFabric;
#[cfg(not(loom))]
pub use stentor_host::StartError;
