//! Locks with leases, fencing tokens and watches.
//!
//! # The lock
//! A session holds a lock until the first of three events: it releases the lock, its lease runs out, or the session
//! ends. The lease is usually shorter than the session, and the holder renews it by a command ([`Holder::renew`]). So a
//! hung holder loses its lock, although its client's thread still renews the session. A timer of the state machine ends
//! the lease, at a position of the order that is the same at all nodes ([`Locks`]).
//!
//! # The token
//! Each grant has a **fencing token**, which is larger than all earlier tokens of any lock. A holder cannot notice that
//! it was stopped between the check of its lease and the act that needs the lock. So it sends the token with the act,
//! and the resource refuses a token that is smaller than one that it has seen ([`TokenGate`]). This needs no clock.
//!
//! # The end of a lease at the holder
//! [`Lease::is_sure`] returns whether surely no other session has the lock, by the holder's monotonic clock. This is
//! certain from the sending of the last renewal for the length of the lease, less two amounts: twice the clock error of
//! the nodes, and 500 millionths of the length (`docs/consistency.md`, "Leases"). After this time the holder should not
//! use the lock before it has renewed the lease. The check saves a refusal by the resource; safety does not depend on
//! it.
//!
//! # Watches
//! A session that watches a lock is notified when the lock becomes free, with the reason ([`End`]). So a client that
//! waits for a lock does not have to poll.
//!
//! # Invariants
//! - At each position of the order a lock has at most one valid token. The valid tokens of a lock rise along the order.
//! - A token never belongs to two sessions.
//! - A lease does not run out before the end that was named in the reply to the grant or to the last renewal.
#![forbid(unsafe_code)]

mod command;
mod gate;
mod holder;
mod lease;
mod locks;

pub use command::{Cause, Command, End, Held, LONGEST_LEASE, LONGEST_NAME, Query, Refusal, Verdict};
pub use gate::{Stale, TokenGate};
pub use holder::{Attempt, Holder, HolderError};
pub use lease::Lease;
pub use locks::Locks;
