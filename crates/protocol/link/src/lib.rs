//! Handling of queue pairs that break and reconnect, shared by all protocols: the map from queue pair to link, the
//! filter of stale completions, regions that are resolved once per connection, writes that the network copies, and the
//! numbers of regions and services.
//!
//! Rings, cursors, hellos and the defences against Byzantine peers belong to the protocols. This crate does no I/O of
//! its own, reads no clock and does not allocate per message.
//!
//! # States of a link
//!
//! | state | may be posted | next state |
//! |---|---|---|
//! | down | receives only | up, when the fabric reports a connection |
//! | up | everything | down, when a post is refused or the connection ends |
//! | closed | nothing | none |
//!
//! A link becomes up only if its queue pair is ready when the connection is reported. [`Link::close`] closes a link in
//! any state. The queue pair of a closed link is not reset.
//!
//! Between two resets of its queue pair a link has at most one *connection*. It is identified by a number that rises
//! whenever the queue pair is found in the error state ([`Link::connection_id`]). A refused post takes a link down
//! without ending the connection, because requests that were posted before may still complete. A connection ends when
//! the queue pair is found in the error state; the same call resets the queue pair.
//!
//! # Invariants
//! - Information that was obtained over a link (a resolved region, a hello, a posted receive) belongs to one connection
//!   and is never used in a later one.
//! - Requests are numbered across all connections. A request is *done* when it has completed or its connection has
//!   ended. In both cases its source may be reused.
//! - The id of a work request identifies the connection for which it was posted.
//! - An event counts only if the state of the queue pair agrees with it:
//!   [`Event::Connected`](stentor_fabric::Event::Connected) with a link that is down and a queue pair that is ready,
//!   [`Event::Disconnected`](stentor_fabric::Event::Disconnected) with a queue pair in the error state. Any other event
//!   is ignored.
//!
//! # Stale completions
//! A completion is stale if its request was posted for an earlier connection than the present one ([`Link::number`]
//! returns `None`).
//!
//! - A stale *success* or receive is ignored. It contains no information: when a connection ends, everything posted on
//!   it is done, and its receives are posted again.
//! - A *failure*, stale or not, only shows that some connection of the link broke. The state of the queue pair shows
//!   whether that is the present one ([`Links::check`]).
//! - A protocol that needs every completion of a connection polls until none is left before it lets the connection end.
//!   A channel does, because each of its requests occupies memory until its completion is polled. Rule 9 of the fabric
//!   contract guarantees that all of them can be polled then.
#![forbid(unsafe_code)]

mod fanout;
mod link;
mod links;
pub mod purpose;
mod resolved;
pub mod service;

pub use fanout::{FanoutSet, JoinedSets};
pub use link::Link;
pub use links::{LinkEvent, Links};
pub use resolved::Resolved;
