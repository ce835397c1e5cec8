//! Exactly-once sessions above atomic multicast: a request is applied once in each of its groups, or in none, whatever is sent
//! again, whichever process asks again, and whoever fails.
//!
//! [`Sessions`] is the table of one group, the same at all its members. [`Caller`] is a process's use of one session. Both are pure
//! state machines: no I/O, no clock, no randomness. Random words and times are arguments. [`Answers`] decides which member sends which record to
//! clients, and when a record is sent again. [`Reader`] and [`Reads`] are the two ends of reads outside the order.
//!
//! # What is assumed
//! The multicast delivers each message at most once in a group, in one global order, with a timestamp that all destination groups share and
//! whose time never falls. A *request* may be carried by several messages. All groups have the same [`SessionLimits`].
//! A group that was reset takes no message that a client multicast to its earlier incarnation.
//!
//! # Why all destination groups judge alike
//! A command is accepted iff the session is known in this generation, the tag is that of the generation's word and the session's pairs for the
//! destination groups, its time is not later than the end *that it names*, the request was not decided before, and it is less than a window
//! ahead of the first unanswered one. Each of these has the same value in all destination groups:
//! - *Time, end, window* are in the message, and in the order, which is the same everywhere.
//! - *Known.* The named end was acknowledged by every destination group, and a table's end never falls. So a table that does not know the session
//!   any more has seen a time beyond the named end, and every message with that end is too late in all groups. A session that was ended is
//!   known as such until its end, and `End` goes to all groups of the session.
//! - *Generation and pairs.* A caller uses groups together only after all of them agreed to one copy of `Open`, `Widen` or `TakeUp`. At that position
//!   they have the same generation, word, widening and pairs. These change only by `Widen`, `TakeUp` and `End`, which each of the
//!   groups accepts only if it went to all groups of the session and names all that it has. So the groups go on in step.
//!   The exception is a group in which the session ran out: no end that is named later includes it, and a renewal from before does not prolong
//!   an entry that was made since (*predates*, below).
//! - *Whose generation.* A number may be taken twice, in groups that have parted. The word in the tag tells the two apart.
//! - *Decided before*: by induction, each earlier message that carried the request had the same destinations and was judged alike. What a
//!   table drops is below `responded`, and a caller lets `responded` pass a request only when it is applied in all its groups, or no copy can be
//!   applied in any ([`Caller`]). Then a table that says `Forgotten` and one that would say `Duplicate` both apply nothing.
//! - *Predates.* An entry that was made at time `since` knows nothing of what an earlier entry applied. That entry had run out before
//!   `since`, so a request that it applied names an end before `since`. Such a request is refused, and its fate is `Forgotten`.
//!   `Open`, `Widen` and `TakeUp` name a last time at which they take effect, and a session's end is never before it. So a late copy of one
//!   of them makes no entry again.
//!
//! A reset is the exception: the multicast itself does not promise agreement over it. The table then says `WrongPairs`, the caller
//! `Unknown(GroupReset)`.
//!
//! # Notifications
//! A state machine sends notifications to sessions. A group numbers those to a session from 1 in each of its generations, and the number is
//! part of the table. The leader sends each once, and keeps none. With the replies that it says again, it tells the number of notifications
//! so far: so a caller knows of each that was lost, a moment after it is connected to a leader again. A session that ran out in a group and
//! is widened into it again is counted anew, and so is one in another incarnation of the group. So each record names both.
//!
//! # Time
//! A session runs out at the first position whose time is later than its end, and a timer of the state machine ([`Timers`]) fires at
//! the first position whose time is not before its own. In an idle group the leader orders time entries, positions without a
//! message: see `replica/time_entry.rs` of the multicast. [`Sessions::next_end`] and [`Timers::earliest`] say when one is needed.
//!
//! # Formats
//! Words are little-endian. Reserved bytes are 0, and a reader refuses others. Every message of a session is an envelope of 64 bytes, followed by the
//! command's bytes or by a body:
//!
//! | envelope | field |
//! |---|---|
//! | 0..16 | session |
//! | 16..24 | request: number, or a random word |
//! | 24..32 | end that the client names |
//! | 32..40 | tag of the generation's word and the pairs of the destination groups ([`pairs_tag`]) |
//! | 40..44 | generation |
//! | 44..48 | behind: request − responded |
//! | 48 | kind: 1 `Command`, 2 `Open`, 3 `Renew`, 4 `Widen`, 5 `TakeUp`, 6 `End`, 7 `Resolve`, 8 `Query` |
//! | 49 | version, 1 |
//! | 50..56 | reserved |
//! | 56..64 | reserved for `not_before` |
//!
//! | body | field |
//! |---|---|
//! | 0..8 | time to live, nanoseconds |
//! | 8..16 | `Widen`: word that the generation began with; else 0 |
//! | 16..20 | number of the widening, or generation of the request that is resolved |
//! | 20..24 | number of pairs, at most 256 |
//! | 24.. | for each pair 16 bytes: group (2), reserved (6), incarnation's number (4) and tag (4) |
//!
//! | reply record | field |
//! |---|---|
//! | 0..16 | session |
//! | 16..24 | request, as in the envelope; of a notification its number |
//! | 24..32 | time where it was applied |
//! | 32..40 | index there |
//! | 40..48 | incarnation of the group that answers |
//! | 48..56 | largest time that the replier has applied |
//! | 56..64 | end of the session in this group, after `Open`, `Renew`, `Widen` and `TakeUp`; of a notification since when the session is open; else 0 |
//! | 64..68 | generation; of `Elsewhere` the process that leads, plus 1 |
//! | 68..72 | bytes of the reply |
//! | 72..74 | group of the timestamp |
//! | 74 | kind of what is answered; of a query that has a place in the order 1, too; of a read 8 |
//! | 75, 76 | outcome and reason |
//! | 77 | version, 1 |
//! | 78..80 | reserved |
//! | 80.. | reply |
//!
//! | read request | field |
//! |---|---|
//! | 0..8 | name; the answer has it as its request |
//! | 8..16 | `Leader`: the time after which it comes; `After`: the number of a command; `Past`: the time of one; else 0 |
//! | 16..24 | `After`: incarnation of that command's history; `Past`: group of the timestamp; else 0 |
//! | 24 | guarantee: 1 `Leader`, 2 `After`, 3 `Local`, 4 `Past` |
//! | 25 | version, 1 |
//! | 26 | 1: it was asked before |
//! | 27..32 | reserved |
//! | 32.. | query |
//!
//! Outcomes: 1 `Applied`, 2 `Overflow`, 3 `Skipped`, 4 `Refused`, 5 `Closed`, 6 `Forgotten`, 7 `SessionNotOpen`, 8 `TableFull`, 9 `WrongPairs`,
//! 10 `Halted`, 11 `Notification`, 12 `Notified`, 13 `Elsewhere`, 14 `OtherHistory`. Reasons of `Refused`: 1 `TooLate`, 2 `Superseded`, 3 `GenerationAhead`, 4 `OutsideWindow`, 5 `Taken`, 6 `TimeToLive`; else 0.
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

/// Bytes by which the message of a command is longer than the command: its envelope, and the time that it comes after.
pub const COMMAND_OVERHEAD: usize = Envelope::BYTES + stentor_multicast::NOT_BEFORE_BYTES;
