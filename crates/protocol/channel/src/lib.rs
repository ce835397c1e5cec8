//! Ordered channel: messages from one process to another, in order, on fabrics whose completions come in any order.
//!
//! This is the protocol of the notes on EFA, with its gaps closed. [`Connection`] is one end of one connection, a pure
//! state machine: no I/O, no clock, no randomness. It is told what completed, and says what to post; whose memory that
//! is, and which fabric, is not its business.
//!
//! | notes | here |
//! |---|---|
//! | tag: `kLength`, `kPayload`, a message id of 32 bits | [`Tag`]: bits 63–34 connection, 33 payload, 32 length, 31–0 sequence. Connection 0 is the notes' own layout |
//! | `post_send` of the length, then of the payload, `msg_id++` | [`Scheme::LengthPayload`], sent by [`Connection::next_send`] |
//! | a receive of a length with the low 32 bits ignored | [`Connection::next_recv`]: several ahead; which message it is follows from the tag that completed, never from the order of posts |
//! | then a receive of the payload with exactly that id | posted ahead, too, for the next ids: what arrives finds a receive |
//! | mark the operation, call back from the front of `writeOperations_` | a window over numbers, marked in any order; [`Connection::next_notice`] and [`Connection::piece`] give what is complete from the front |
//!
//! A message that is longer than a piece takes as many ids as it has pieces, so lengths are numbered by pieces. With
//! [`Scheme::Eager`] a short message goes in place of its length, which its tag says ([`Tag::WHOLE`]), so that one of 4096 bytes is
//! 4096 bytes of the fabric; lengths and pieces are numbered apart. A message that is one piece goes with no length in front if the
//! peer has a receive for it: its tag has both numbers ([`Tag::PIECE_BITS`]). [`Scheme::Counted`], for fabrics without tags, sends
//! short messages behind their length.
//!
//! [`Endpoint`] puts connections on a fabric. [`Hub`] and [`Channel`] are what applications use: futures for any runtime,
//! and calls that block.
//!
//! # States and invariants
//! A connection is *open*, then *draining*, then *over*. It drains when both ends have finished and read, when something
//! fails, or when its owner gives up. While it drains nothing is posted and every receive is asked back; it is over when
//! the fabric has given everything back, and not before (C4).
//!
//! 1. There is at most one operation of each way, kind and place with the fabric ([`Op`]); a place is written, or sent
//!    from again, only when that one has completed.
//! 2. What is in flight lies in a window of at most [`MAX_WINDOW`] numbers, so a sequence of 32 bits names one of them, and so do
//!    the 15 and the 16 of a message that is one piece. Numbers themselves never wrap.
//! 3. `sent ≤ granted ≤ receives that the peer has posted`, for lengths, for pieces, and for control messages: nothing
//!    that arrives waits for a receive (C3). A message that is one piece takes a credit for a length, too, and uses no receive
//!    for one: the credit is given anew when it was read. The one message with which an end greets may, until the other end is open.
//! 4. Every control message says all that its sender has to say, in cumulative numbers, so their order does not matter and
//!    none is needed that a later one follows. An end sends at most [`CONTROLS`] that the peer has not said it saw.
//! 5. Messages are handed over and written messages are reported from the front of their window only (C1, C2).
//! 6. An end's last control message says how many there were, and is sent when the peer has finished and all of it has
//!    arrived. Who has sent its own and has all of the peer's knows that nothing is under way in either direction.
//! 7. The peer may still have receives out then, so the number's next life begins with a greeting that only this life's
//!    receive takes ([`Kind::Greeting`]), and nothing else is sent before the greeting of the peer's same life has come:
//!    then its old receives are gone. After a failure a number is not used again until the queue pair has been reset.
//!
//! Invariant 2 makes the window a constant of the two ends, which refuse each other if they differ in any parameter.
#![forbid(unsafe_code)]

mod command;
mod config;
mod connection;
mod control;
mod ending;
mod endpoint;
mod error;
mod inbound;
mod layout;
mod lent;
mod mutant;
mod outbound;
mod sequence;
mod surface;
mod tag;
mod window;

pub use command::{Notice, Op, Outcome, Recv, Send, Way, What};
pub use config::{CONTROL_BYTES, CONTROLS, Config, ConfigError, LENGTH_BYTES, MAX_MESSAGE_BYTES, MAX_WINDOW, Scheme};
pub use connection::Connection;
pub use control::VERSION;
pub use endpoint::{Endpoint, EndpointConfig, EndpointError, Handle, OpenError};
pub use error::{Cause, ChannelError, Operation, PostErrorKind, Reason, Refusal, WriteError};
pub use inbound::{Incoming, Piece};
#[doc(hidden)]
pub use mutant::Mutant;
pub(crate) use mutant::mutant;
pub use surface::{CallError, Channel, Hub, Write};
pub use tag::{Kind, MAX_CONNECTIONS, Tag};
