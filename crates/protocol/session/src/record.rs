//! The record that answers a message of a session. The crate's header has its layout.

use stentor_multicast::{Incarnation, Timestamp};
use thiserror::Error;

use crate::bytes::{put, u16_at, u32_at, u64_at, u128_at};
use crate::{Envelope, Kind, Position, SessionId};

/// Reason why a group refuses a message. For a command, the reason is the same in all destination groups, and final: no
/// later copy of the command is applied either.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum Reason {
    /// The message's time is later than the end that the message names.
    TooLate = 1,
    /// A later process has taken the session up.
    Superseded = 2,
    /// The session has not reached that generation.
    GenerationAhead = 3,
    /// The message is further ahead of the first unanswered request than the window allows.
    OutsideWindow = 4,
    /// Another command, with a different random word, has already taken the same step.
    Taken = 5,
    /// The time to live is 0 or above the limit, or the last time at which the message may take effect is further ahead
    /// than the limit.
    TimeToLive = 6,
}

impl Reason {
    fn from_byte(byte: u8) -> Option<Reason> {
        use Reason::{GenerationAhead, OutsideWindow, Superseded, Taken, TimeToLive, TooLate};
        let all = [TooLate, Superseded, GenerationAhead, OutsideWindow, Taken, TimeToLive];
        all.into_iter().find(|reason| *reason as u8 == byte)
    }
}

/// Outcome of a message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Outcome {
    /// A command was applied, or a session's command took effect. The bytes are the reply.
    Applied,
    /// A command was applied, and its reply was longer than the limit. There are no bytes.
    Overflow,
    /// An operator skipped the command in this group.
    Skipped,
    /// The message was not applied. A command never will be.
    Refused(Reason),
    /// A question about the message closed it for good before it was applied.
    Closed,
    /// The table does not remember whether the message was applied.
    Forgotten,
    /// The table does not know the session: the session was never opened here, has ended or has expired. Or the message
    /// is older than the present entry of a session that was opened here again.
    SessionNotOpen,
    /// The table has no room for another session.
    TableFull,
    /// The pairs that the message names are not the session's pairs for its destination groups.
    WrongPairs,
    /// The group is halted at a command that its state machine cannot apply.
    Halted,
    /// A notification to the session, not an answer. The bytes are the notification, and `request` is its number.
    Notification,
    /// The number of notifications to the session so far, in `request`. The record is not an answer.
    Notified,
    /// A read was not answered because this member does not lead. `generation` is the leading process plus 1, or 0 if
    /// it is unknown.
    Elsewhere,
    /// A read was not answered because it must reflect a command of another history of the group.
    OtherHistory,
}

impl Outcome {
    pub(crate) fn to_bytes(self) -> [u8; 2] {
        match self {
            Outcome::Applied => [1, 0],
            Outcome::Overflow => [2, 0],
            Outcome::Skipped => [3, 0],
            Outcome::Refused(reason) => [4, reason as u8],
            Outcome::Closed => [5, 0],
            Outcome::Forgotten => [6, 0],
            Outcome::SessionNotOpen => [7, 0],
            Outcome::TableFull => [8, 0],
            Outcome::WrongPairs => [9, 0],
            Outcome::Halted => [10, 0],
            Outcome::Notification => [11, 0],
            Outcome::Notified => [12, 0],
            Outcome::Elsewhere => [13, 0],
            Outcome::OtherHistory => [14, 0],
        }
    }

    pub(crate) fn from_bytes([kind, reason]: [u8; 2]) -> Result<Outcome, RecordError> {
        let outcome = match kind {
            1 => Outcome::Applied,
            2 => Outcome::Overflow,
            3 => Outcome::Skipped,
            4 => return Reason::from_byte(reason).map(Outcome::Refused).ok_or(RecordError::Reason(reason)),
            5 => Outcome::Closed,
            6 => Outcome::Forgotten,
            7 => Outcome::SessionNotOpen,
            8 => Outcome::TableFull,
            9 => Outcome::WrongPairs,
            10 => Outcome::Halted,
            11 => Outcome::Notification,
            12 => Outcome::Notified,
            13 => Outcome::Elsewhere,
            14 => Outcome::OtherHistory,
            _ => return Err(RecordError::Outcome(kind)),
        };
        if reason == 0 { Ok(outcome) } else { Err(RecordError::Reason(reason)) }
    }
}

/// The answer of one group to one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReplyRecord<'a> {
    /// Session of the answered message. It is 0 for a read and for a halt notice.
    pub session: SessionId,
    /// Kind of the answered message, with `Command` for an ordered query and for a notification, and `Query` for a
    /// read. A repeated `Command` and a `Resolve` may get the same outcome, but not the same record.
    pub answers: Kind,
    /// Outcome of the message.
    pub outcome: Outcome,
    /// Generation of the request. For other messages, the generation of the session in this group, or 0 if it is not
    /// open. A halted group repeats the generation of the message.
    pub generation: u32,
    /// The `request` of the envelope: a number, or the random word.
    pub request: u64,
    /// Position at which the message was applied first. If it was not applied, the position at which it was judged.
    pub position: Position,
    /// Largest time that the replier has applied.
    pub applied: u64,
    /// End of the session in this group, after `Open`, `Renew`, `Widen` and `TakeUp` that took effect. For a
    /// notification, the time since which the session is open in this group. Otherwise 0.
    pub end: u64,
    /// The reply. After `Open`, `Widen` and `TakeUp` that took effect, the time since which the session is open in this
    /// group (8 bytes, little-endian; empty if replies must be shorter). After a `TakeUp` with the wrong pairs, the
    /// number of the session's last widening and its pairs.
    pub bytes: &'a [u8],
}

/// Reason why bytes are not a valid reply record.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The length does not match that of the reply.
    #[error("{bytes} bytes cannot be a reply record with {reply} bytes of reply")]
    Length {
        /// Number of bytes.
        bytes: usize,
        /// Length of the reply according to the record, in bytes.
        reply: u32,
    },
    /// The record has another version.
    #[error("reply record of version {0}; this process reads {version}", version = ReplyRecord::VERSION)]
    Version(u8),
    /// The kind of the answered message is unknown.
    #[error("no kind of message has the number {0}")]
    Kind(u8),
    /// The outcome is unknown.
    #[error("no outcome has the number {0}")]
    Outcome(u8),
    /// The reason is unknown, or the outcome has none.
    #[error("no reason of this outcome has the number {0}")]
    Reason(u8),
    /// Reserved bytes are not 0.
    #[error("reserved bytes of the reply record are not 0")]
    Reserved,
}

impl<'a> ReplyRecord<'a> {
    /// Number of bytes before the reply.
    pub const HEAD_BYTES: usize = 80;
    /// Version that is written and accepted.
    pub const VERSION: u8 = 1;

    /// Returns the record that a halted group answers with, without judging the message.
    #[must_use]
    pub fn halted(envelope: &Envelope, position: Position, applied: u64) -> ReplyRecord<'static> {
        ReplyRecord {
            session: envelope.session,
            answers: envelope.kind,
            outcome: Outcome::Halted,
            generation: envelope.generation,
            request: envelope.request,
            position,
            applied,
            end: 0,
            bytes: &[],
        }
    }

    /// Returns the notice that a group is halted at the command with this index, which its state machine cannot apply.
    /// The notice answers no message: members repeat it to every client while the group is halted. The notice names
    /// session 0, an id that no session has.
    #[must_use]
    pub fn halt_notice(index: u64) -> ReplyRecord<'static> {
        ReplyRecord::halted(&Envelope::default(), Position { index, ..Position::default() }, 0)
    }

    /// Returns whether this is a [halt notice](ReplyRecord::halt_notice).
    #[inline]
    #[must_use]
    pub fn is_halt_notice(&self) -> bool {
        self.outcome == Outcome::Halted && self.session == SessionId::default()
    }

    /// Returns the answer to a [read](crate::ReadRequest) with this name, which belongs to no session. `position` holds
    /// the last position that the answer reflects, and the time that the group has certainly reached, or 0.
    #[must_use]
    pub fn read(name: u64, outcome: Outcome, position: (Position, u64), bytes: &'a [u8]) -> ReplyRecord<'a> {
        let (position, heard) = position;
        ReplyRecord {
            session: SessionId::default(),
            answers: Kind::Query,
            outcome,
            generation: 0,
            request: name,
            position,
            applied: position.timestamp.time.max(heard),
            end: 0,
            bytes,
        }
    }

    /// Returns whether this answers a [read](ReplyRecord::read).
    #[inline]
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.answers == Kind::Query
    }

    /// Serializes the record, and overwrites `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut head = [0; ReplyRecord::HEAD_BYTES];
        put(&mut head, 0, &self.session.0.to_le_bytes());
        put(&mut head, 16, &self.request.to_le_bytes());
        put(&mut head, 24, &self.position.timestamp.time.to_le_bytes());
        put(&mut head, 32, &self.position.index.to_le_bytes());
        put(&mut head, 40, &self.position.incarnation.to_word().to_le_bytes());
        put(&mut head, 48, &self.applied.to_le_bytes());
        put(&mut head, 56, &self.end.to_le_bytes());
        put(&mut head, 64, &self.generation.to_le_bytes());
        put(&mut head, 68, &(self.bytes.len() as u32).to_le_bytes());
        put(&mut head, 72, &self.position.timestamp.group.to_le_bytes());
        head[74] = self.answers as u8;
        put(&mut head, 75, &self.outcome.to_bytes());
        head[77] = ReplyRecord::VERSION;
        out.clear();
        out.extend_from_slice(&head);
        out.extend_from_slice(self.bytes);
    }

    /// Parses a record.
    ///
    /// # Errors
    /// Returns an error if the bytes are not a valid record of this version.
    pub fn parse(bytes: &'a [u8]) -> Result<ReplyRecord<'a>, RecordError> {
        let Some((head, reply)) = bytes.split_at_checked(ReplyRecord::HEAD_BYTES) else {
            return Err(RecordError::Length { bytes: bytes.len(), reply: 0 });
        };
        if head[77] != ReplyRecord::VERSION {
            return Err(RecordError::Version(head[77]));
        }
        let counted = u32_at(head, 68);
        if reply.len() as u64 != u64::from(counted) {
            return Err(RecordError::Length { bytes: bytes.len(), reply: counted });
        }
        if head[78..] != [0; 2] {
            return Err(RecordError::Reserved);
        }
        let timestamp = Timestamp { time: u64_at(head, 24), group: u16_at(head, 72) };
        let incarnation = Incarnation::from_word(u64_at(head, 40));
        Ok(ReplyRecord {
            session: SessionId(u128_at(head, 0)),
            answers: Kind::from_byte(head[74]).ok_or(RecordError::Kind(head[74]))?,
            outcome: Outcome::from_bytes([head[75], head[76]])?,
            generation: u32_at(head, 64),
            request: u64_at(head, 16),
            position: Position { timestamp, index: u64_at(head, 32), incarnation },
            applied: u64_at(head, 48),
            end: u64_at(head, 56),
            bytes: reply,
        })
    }
}
