//! What every protocol does alike about queue pairs that break and come back: the map from queue pair to peer, the filter of
//! stale completions, regions that are resolved once per connection, writes that the network copies, and the numbers of
//! regions and queue pairs.
//!
//! Rings, cursors, greetings and the rules against liars belong to the protocols. Nothing here does I/O of its own, reads a
//! clock or allocates per message.
//!
//! # States of a link
//!
//! | state | what is posted | goes to |
//! |---|---|---|
//! | down | receives only | up, when the fabric reports a connection and the queue pair is ready |
//! | up | everything | down, when a post is refused or the connection ends |
//! | closed | nothing, for good | none: a closed queue pair is not reset |
//!
//! Between two resets of its queue pair a link has one *connection* at most, which is named by a number that every reset
//! renews ([`Link::connection_id`]). A refused post takes a link down without ending the connection: what was posted before
//! may still complete. A connection ends when the queue pair is found in the error state, and the queue pair is reset in the
//! same call.
//!
//! # Invariants
//! - Whatever was learned over a link (a resolved region, a hello, a receive that is posted) belongs to one connection.
//!   Nothing of it is used in a later one.
//! - Requests are numbered through all connections. A request is *done* when it completed or its connection ended: in both
//!   cases its source may be used again.
//! - The id of a work request names the connection for which it was posted.
//! - An event counts only if the state of the queue pair agrees with it: [`Event::Connected`](stentor_fabric::Event::Connected)
//!   with a link that is down and a queue pair that is ready, [`Event::Disconnected`](stentor_fabric::Event::Disconnected)
//!   with a queue pair in the error state. Any other event is about a connection that is over.
//!
//! # Which completion is stale?
//! One whose request was posted for an earlier connection than the present one ([`Link::number`] returns `None`).
//!
//! - A stale *success* or receive is ignored. What it reports is known already: when a connection ends, everything posted on
//!   it is done, and its receives are posted again.
//! - A *failure*, stale or not, says only that some connection of the link broke. The state of the queue pair says whether
//!   that is the present one ([`Links::check`]).
//! - A protocol that needs every completion of a connection (a channel, which has lent memory to each request) polls until
//!   nothing is left before it lets the connection end. Rule 9 of the fabric contract promises that all of them can be
//!   polled then.
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
