//! Ordered channel: delivers messages from one process to another in order, on fabrics whose completions arrive in any
//! order.
//!
//! [`Connection`] is one end of one connection, a pure state machine without I/O, clock or randomness. Its driver
//! reports completions to it and posts the operations that it asks for. The driver also owns the memory and the fabric.
//! [`Endpoint`] drives connections on a fabric. Applications use [`Hub`] and [`Channel`]: futures for any runtime, and
//! calls that block.
//!
//! # Protocol
//! The base scheme for tagged fabrics is [`Scheme::LengthPayload`]:
//!
//! - A message is sent as its length and then its payload, both with the message's id in their tags
//!   ([`Connection::next_send`]). [`Tag`] has the connection in bits 63–34, the payload flag in bit 33, the length flag
//!   in bit 32 and the sequence in bits 31–0.
//! - Receives for lengths ignore the sequence, and several are posted ahead ([`Connection::next_recv`]). The tag that
//!   completed identifies the message, never the order of posts.
//! - Receives for payloads match one id exactly. They are posted ahead for the next ids, so an arriving payload finds
//!   its receive.
//! - Completions mark numbers of a window in any order. [`Connection::next_notice`] and [`Connection::piece`] report
//!   from the front of the window.
//!
//! A message that is longer than a piece uses one id per piece, so this scheme numbers lengths by pieces. The other
//! schemes send fewer messages of the fabric:
//!
//! - [`Scheme::Eager`] sends a message of at most [`Config::eager_bytes`] bytes in place of its length and marks that
//!   in the tag ([`Tag::WHOLE`]). With the default of 4096 bytes, a message of 4096 bytes is one fabric message of 4096
//!   bytes. Lengths and pieces have separate numbers. A message of one piece is sent without a length in front if the
//!   peer has a receive and this end a free slot for the piece; its tag holds both numbers ([`Tag::PIECE_BITS`]).
//! - [`Scheme::Counted`], for fabrics without tags, sends a short message after its length.
//!
//! # States and invariants
//! A connection is *open*, then *draining*, then *over*. An end drains once both ends have finished and it has read all
//! messages of the peer, or once it fails or is aborted ([`Cause`]). While it drains, it posts no receives, and no
//! sends except the notice of a failure to the peer. It cancels its receives; only the receive for the peer's hello
//! stays posted while the notice must wait for that hello. The end is not over before the fabric has completed every
//! outstanding operation (C4; `docs/channel.md` defines the properties C1 to C5).
//!
//! 1. The fabric has at most one operation per direction, kind and slot ([`Op`]). A slot is written, or sent from,
//!    again only after that operation has completed.
//! 2. Numbers in flight lie in a window of at most [`MAX_WINDOW`] + 1 numbers, so 32 bits of sequence identify one of
//!    them. For a message of one piece without a length in front, 15 bits identify the message and 16 bits the piece.
//!    The numbers themselves never wrap.
//! 3. `sent ≤ granted ≤ receives that the peer has posted` holds for lengths, for pieces and for control messages, so
//!    nothing that arrives waits for a receive (C3). A message of one piece without a length in front also consumes a
//!    credit for a length but uses no receive for one; the receiver grants that credit again once the message has been
//!    read. Only an end's hello may wait for a receive, until the other end is open.
//! 4. A control message holds the complete state of its sender in cumulative numbers. The order of control messages
//!    therefore does not matter, and a later one replaces all earlier ones. An end has at most [`CONTROLS`] control
//!    messages that the peer has not acknowledged.
//! 5. Messages are delivered, and written messages are reported, only from the front of their window (C1, C2).
//! 6. An end sends its last control message when both ends have finished and everything from the peer has arrived. That
//!    message holds the total number of the end's control messages. Once all sends of an end have completed, the last
//!    control message included, and all of the peer's control messages have arrived, the end knows that nothing is in
//!    flight in either direction.
//! 7. At that point the peer may still have receives posted. The number's next life (the next time it is opened)
//!    therefore begins with a hello that only the receive of that life matches ([`Kind::Greeting`]). An end sends
//!    nothing else before the peer's hello of the same life has arrived. That hello proves that the peer's receives of
//!    the earlier life have completed. After a failure a number is not used again until the queue pair has been reset.
//!
//! Invariant 2 makes the window a constant of both ends, so ends whose parameters differ refuse each other.
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
