//! Locks with leases, fencing tokens and watches.
//!
//! # The lock
//! A session holds a lock until the first of three things: it releases the lock, its lease runs out, or the session ends. The lease is shorter than the
//! session as a rule, and the holder renews it by a command ([`Holder::renew`]), so a holder that hangs loses its lock although the thread of its client
//! goes on renewing the session. A timer of the state machine ends the lease, at one place in the order that is the same at all nodes ([`Locks`]).
//!
//! # The token
//! Each grant has a **fencing token**, which is larger than all tokens before it, of any lock. A holder cannot know that it was stopped for a while between
//! a look at its lease and the act that needs the lock. So it sends the token with the act, and the resource refuses a token that is smaller than one that it
//! has seen ([`TokenGate`]). No clock is needed for that.
//!
//! # The holder's moment
//! [`Lease::is_sure`] says until when surely nobody else has the lock, by the holder's monotonic clock: the length of the lease after the last renewal
//! was sent, less twice the bound of the clocks of the nodes and 500 millionths (`docs/consistency.md`, "Leases"). A holder that sees that it is over stops by itself.
//! It spares the resource a refusal, and is not what safety rests on.
//!
//! # Watches
//! A session that watches a lock is notified when the lock becomes free, and why ([`End`]). Whoever waits for a lock need not ask again and again.
//!
//! # Invariants
//! - At each place in the order a lock has at most one token that is valid, and along the order the valid tokens of a lock rise.
//! - A token belongs to one session for ever.
//! - A lease does not run out before the end that the reply to the grant or to the last renewal named.
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
