//! The shared-memory fabric: separate processes on one Linux host. It needs no hardware and no privileges.
//!
//! - **Memory** that peers use consists of memfds only: one for each region, passed over a Unix socket to the peers
//!   that were granted access, with seals that forbid changing its size. Nothing is left behind when a process dies,
//!   for whatever reason.
//! - **Writes** are relaxed 8-byte atomic stores into the peer's memory, made while posting. A release fence precedes
//!   each write, so a reader that acquires any word of it sees everything posted before it, to the same memory or
//!   elsewhere. Word 1 of the span is stored last, with release, because readers of sealed records poll that word. The
//!   order inside a write is otherwise unspecified.
//! - **Completions** are immediate, but no success is reported before a check, at the latest in
//!   [`flush`](stentor_fabric::Fabric::flush), has shown that the access had not been revoked when the stores were
//!   made.
//! - **Revocation** cannot unmap a peer's memory. The owner increments a generation that the peer can only read, copies
//!   the memory and continues with the copy: stores of a rogue peer land in the old memory, which no process reads.
//!   Everything that the peer counted as done is in the copy; everything else fails at the peer.
//! - **SEND, RECV and immediates** use one bounded queue in shared memory for each queue pair and direction.
//! - **Waiting** is a futex on a word that the peers may write, or a wait for an eventfd that the peers have and for the
//!   control sockets ([`Fabric::descriptor`]).
//! - **Crashes and restarts**: the kernel reports the death of a process to its peers at once
//!   ([`ShmFabric::has_died`]). The connection ends later, when the kernel closes the control sockets after it has
//!   freed the memory of the process. A peer then breaks the queue pairs, forgets that process's regions and keeps its
//!   own, which the next life gets when it connects. While both processes live, a queue pair that breaks at one end is
//!   withdrawn at the other, and each end offers it again after its reset, with a fresh queue. A withdrawn end stores
//!   nothing any more, so nothing old lands once both have offered. Of two processes, the one with the larger id dials
//!   the other, at intervals of up to 20 ms.
//! - **One process for each id**: an abstract Unix socket is the lock on (user, cluster, process). No cleaner of files
//!   can remove the lock, and it disappears with its process. It is effective within one network namespace. A second
//!   lock depends only on the configuration file ([`Source`](stentor_host::Source)), so another directory or other
//!   addresses start no second process ([`Running`](stentor_host::Running)). A process whose socket is removed
//!   recreates it within a second, and [`ShmFabric::next_note`] reports that.
//! - **Namespaces**: processes in different PID namespaces can connect if they see the same directory. Lives are
//!   distinguished by random numbers, never by pids.
//! - **Access control**: sockets are in a directory with mode 0700, both ends check the other's user id, and a
//!   handshake compares format, version, cluster, configuration and process id.
//!
//! Processes of the same user can always harm each other (signals, ptrace). The fabric protects against a peer of
//! another version or cluster, a peer that crashes at any point, and a peer that stores garbage or continues to store
//! after it was fenced.
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

// Under loom only the three algorithms above are built, because loom cannot model memory that other processes share.
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
