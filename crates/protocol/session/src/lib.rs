//! Exactly-once sessions on top of atomic multicast. A request is applied once in each of its groups, or in none,
//! regardless of retransmissions, of the process that retries, and of failures.
//!
//! [`Sessions`] is the table of one group, which is equal at all its members. [`Caller`] is a process's use of one
//! session. Both are pure state machines without I/O, clock or randomness; random words and times are arguments.
//! [`Answers`] decides which member sends which record to clients, and when a record is sent again. [`Reader`] and
//! [`Reads`] are the two ends of reads outside the order.
//!
//! # Assumptions
//! The multicast delivers each message at most once in a group, in one global order, with a timestamp that all
//! destination groups share and whose time never decreases. A *request* may be carried by several messages. All groups
//! have the same [`SessionLimits`]. A group that was reset accepts no message that a client multicast to its earlier
//! incarnation.
//!
//! # Why all destination groups reach the same verdict
//! A session's *end* is the time after which a group removes it. Its *pairs* are its groups, each with the group's
//! incarnation. A table accepts a command if and only if all of these conditions are true: the table knows the session
//! in this generation; the command's tag matches the generation's random word and the session's pairs for the
//! destination groups; the command's time is not later than the end *that the command names*; the request was not
//! decided before; and the request is less than a window ahead of the first unanswered one. Each condition has the same
//! value in all destination groups:
//! - *Time, end, window* are in the message and in the order, which is the same everywhere.
//! - *Known.* Every destination group acknowledged the named end, and a table's end never decreases. A table that no
//!   longer knows the session has therefore seen a time beyond the named end, so every message with that end is too
//!   late in all groups. A session that was ended is known as ended until its end, and `End` goes to all groups of the
//!   session.
//! - *Generation and pairs.* A caller uses groups together only after all of them agreed to one copy of `Open`, `Widen`
//!   or `TakeUp`. At that position they have the same generation, word, widening and pairs. These change only by
//!   `Widen`, `TakeUp` and `End`. Each group accepts those only if they went to all groups of the session and name all
//!   of its pairs, so the groups stay in step. The exception is a group in which the session expired. A command to that
//!   group can name only an end that the group acknowledged, and that end has passed. A renewal that was sent before
//!   does not extend an entry that was made since (*predates*, below).
//! - *Owner of the generation.* In groups that have diverged, two processes may begin generations with the same number.
//!   The random word in the tag distinguishes the two generations.
//! - *Decided before*: by induction, each earlier message that carried the request had the same destinations and
//!   received the same verdict everywhere. A table drops only requests below `responded`. A caller lets `responded`
//!   pass a request only when it is applied in all its groups, or when no copy can be applied in any ([`Caller`]). A
//!   table that answers `Forgotten` and one that would answer `Duplicate` then both apply nothing.
//! - *Predates.* An entry that was made at time `since` does not know the requests that an earlier entry applied. That
//!   earlier entry had expired before `since`, so a request that it applied names an end before `since`. Such a request
//!   is refused, and its fate is `Forgotten`. `Open`, `Widen` and `TakeUp` name a last time at which they take effect,
//!   and a session's end is never before it. A late copy of such a command therefore cannot make an entry again.
//!
//! A reset is the exception, because the multicast itself does not guarantee agreement across one. The table then
//! answers `WrongPairs`, and the caller reports `Unknown(GroupReset)`.
//!
//! # Notifications
//! A state machine sends notifications to sessions. In each generation of a session, a group numbers the notifications
//! to it from 1, and the number is part of the table. The leader sends each notification once and keeps no copy.
//! Whenever the leader resends replies, it also sends the number of notifications so far. A caller therefore learns of
//! each lost notification shortly after it has connected to a leader again. The numbering restarts when a session that
//! expired in a group is widened into that group again, and when the group begins another incarnation. Each record
//! therefore names the incarnation, and the time since which the session has been open.
//!
//! # Time
//! A session expires at the first position whose time is later than its end. A timer of the state machine ([`Timers`])
//! fires at the first position whose time is not before its own. In an idle group the leader orders time entries,
//! positions without a message: see `replica/time_entry.rs` of the multicast. [`Sessions::next_end`] and
//! [`Timers::earliest`] return when one is needed.
//!
//! # Formats
//! Words are little-endian. Reserved bytes are 0, and a reader refuses others. Every message of a session is an
//! envelope of 64 bytes, followed by the command's bytes or by a body:
//!
//! | envelope | field |
//! |---|---|
//! | 0..16 | session |
//! | 16..24 | request: number, or a random word |
//! | 24..32 | end that the client names |
//! | 32..40 | tag of the generation's word and the destination groups' pairs ([`pairs_tag`]) |
//! | 40..44 | generation |
//! | 44..48 | behind: request − responded |
//! | 48 | kind |
//! | 49 | version, 1 |
//! | 50..56 | reserved |
//! | 56..64 | reserved for `not_before` |
//!
//! Kinds: 1 `Command`, 2 `Open`, 3 `Renew`, 4 `Widen`, 5 `TakeUp`, 6 `End`, 7 `Resolve`, 8 `Query`.
//!
//! | body | field |
//! |---|---|
//! | 0..8 | time to live, nanoseconds |
//! | 8..16 | `Widen`: word that began the generation; otherwise 0 |
//! | 16..20 | number of the widening, or generation of the resolved request |
//! | 20..24 | number of pairs, at most 256 |
//! | 24.. | for each pair 16 bytes: group (2), reserved (6), incarnation's number (4) and tag (4) |
//!
//! | reply record | field |
//! |---|---|
//! | 0..16 | session |
//! | 16..24 | request, as in the envelope; number of a notification |
//! | 24..32 | time at which it was applied |
//! | 32..40 | index at which it was applied |
//! | 40..48 | incarnation in which the answering group's history began |
//! | 48..56 | largest time that the replier has applied |
//! | 56..64 | end of the session in this group, see below |
//! | 64..68 | generation; `Elsewhere`: the leading process, plus 1 |
//! | 68..72 | number of bytes of the reply |
//! | 72..74 | group of the timestamp |
//! | 74 | kind of the answered message, see below |
//! | 75, 76 | outcome and reason |
//! | 77 | version, 1 |
//! | 78..80 | reserved |
//! | 80.. | reply |
//!
//! Bytes 56..64 hold the end after `Open`, `Renew`, `Widen` and `TakeUp`. In a notification they hold the time since
//! which the session is open. Otherwise they are 0. Byte 74 is also 1 for an ordered query, and 8 for a read, which is
//! outside the order.
//!
//! | read request | field |
//! |---|---|
//! | 0..8 | name, which the answer has as its request |
//! | 8..16 | `Leader`: time that the answer reflects; `After`: index of a command; `Past`: its time; otherwise 0 |
//! | 16..24 | `After`: incarnation of that command's history; `Past`: group of the timestamp; otherwise 0 |
//! | 24 | guarantee: 1 `Leader`, 2 `After`, 3 `Local`, 4 `Past` |
//! | 25 | version, 1 |
//! | 26 | 1 if the read was sent before |
//! | 27..32 | reserved |
//! | 32.. | query |
//!
//! Outcomes: 1 `Applied`, 2 `Overflow`, 3 `Skipped`, 4 `Refused`, 5 `Closed`, 6 `Forgotten`, 7 `SessionNotOpen`, 8
//! `TableFull`, 9 `WrongPairs`, 10 `Halted`, 11 `Notification`, 12 `Notified`, 13 `Elsewhere`, 14 `OtherHistory`.
//! Reasons of `Refused`: 1 `TooLate`, 2 `Superseded`, 3 `GenerationAhead`, 4 `OutsideWindow`, 5 `Taken`, 6
//! `TimeToLive`; otherwise 0.
#![forbid(unsafe_code)]

mod answer_buffer;
mod answers;
mod body;
mod bytes;
mod caller;
mod envelope;
mod ids;
mod limits;
mod mutant;
mod read_request;
mod reader;
mod reads;
mod record;
mod reply;
mod table;
mod timers;

pub use answer_buffer::AnswerBuffer;
pub use answers::{Answer, Answers};
pub use body::{Body, BodyError};
pub use caller::{
    Caller, CallerConfig, CallerError, Event, Fate, Finished, GroupReply, Message, NotApplied, Notified, Replies,
    SessionKey, Ticket, TicketError, Why,
};
pub use envelope::{Envelope, EnvelopeError, Kind};
pub use ids::{Pair, Position, SessionId, pairs_tag};
pub use limits::SessionLimits;
#[doc(hidden)]
pub use mutant::Mutant;
pub use read_request::{ReadGuarantee, ReadRequest, ReadRequestError};
pub use reader::{ReadOutcome, Reader, ReaderError};
pub use reads::{ReadCounts, Reads, ReadyRead};
pub use record::{Outcome, Reason, RecordError, ReplyRecord};
pub use reply::Reply;
pub use table::{At, Call, Delivered, PayloadError, Service, Sessions, SnapshotError, Verdict};
pub use timers::{Timers, TimersError};

/// Number of bytes that a command's message has in addition to the command: the envelope, and the time before which the
/// message is not ordered.
pub const COMMAND_OVERHEAD: usize = Envelope::BYTES + stentor_multicast::NOT_BEFORE_BYTES;
