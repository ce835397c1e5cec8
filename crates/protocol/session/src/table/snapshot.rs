//! A table's snapshot: equal tables have equal bytes, and a snapshot is restored as a whole or not at all.
//!
//! ```text
//! magic "STNSESS" and version (8 bytes) | length of the body u64 | body | digest of the body u64
//! ```
//! The body begins with the group, the window and the time. The ended sessions and then the open ones follow, each by
//! ascending id. An open session's replies are those of its current generation, followed by those of earlier ones,
//! oldest first.

use stentor_fabric::SplitMix64;
use stentor_multicast::{GroupId, Incarnation, StateReader, Timestamp};
use thiserror::Error;

use super::Sessions;
use super::earlier::Earlier;
use super::entry::Entry;
use super::replies::{Kept, Replies};
use crate::body::{parse_pairs, write_pairs};
use crate::bytes::{u16_at, u32_at, u64_at, u128_at};
use crate::{Body, Outcome, Position, SessionId, SessionLimits};

/// Magic word and version.
const MAGIC: [u8; 8] = *b"STNSESS\x03";

/// Reason why a snapshot was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The snapshot is truncated.
    #[error("the sessions' snapshot should have {length} bytes, but only {bytes} exist")]
    Short {
        /// Number of bytes that exist.
        bytes: usize,
        /// Number of bytes of the snapshot.
        length: u64,
    },
    /// The bytes are not a snapshot of sessions, or have another version.
    #[error("not a snapshot of sessions in the version that this process reads")]
    Magic,
    /// The digest does not match.
    #[error("the sessions' snapshot is damaged: its digest is wrong")]
    Digest,
    /// The snapshot belongs to another group.
    #[error("the snapshot holds the sessions of group {found}, not of group {expected}")]
    Group {
        /// Group of the snapshot.
        found: u16,
        /// Group that restores the snapshot.
        expected: u16,
    },
    /// The snapshot does not fit the limits of this table.
    #[error("the snapshot's {0} is not within this table's limits; all members need the same limits")]
    Limits(&'static str),
    /// A field holds a value that no table has.
    #[error("the snapshot is malformed: {0}")]
    Malformed(&'static str),
}

impl Sessions {
    /// Number of bytes that a reply occupies in the table in addition to its own.
    pub const KEPT_BYTES: u64 = size_of::<Option<Kept>>() as u64;
    /// Number of bytes that determine the length of a snapshot.
    const SNAPSHOT_HEAD: usize = 16;

    /// Appends the table's snapshot.
    pub fn write(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        body.extend(self.group.0.to_le_bytes());
        body.extend(self.limits.window.to_le_bytes());
        body.extend(self.time.to_le_bytes());
        body.extend((self.ended.len() as u64).to_le_bytes());
        for (session, end) in &self.ended {
            body.extend(session.0.to_le_bytes());
            body.extend(end.to_le_bytes());
        }
        body.extend((self.open.len() as u64).to_le_bytes());
        for (session, entry) in &self.open {
            body.extend(session.0.to_le_bytes());
            write_entry(entry, &mut body);
        }
        out.extend(MAGIC);
        out.extend((body.len() as u64).to_le_bytes());
        out.extend(&body);
        out.extend(digest(&body).to_le_bytes());
    }

    /// Returns the total size of the snapshot that begins with this head, in bytes.
    ///
    /// # Errors
    /// Returns an error if it is not a snapshot of sessions.
    fn snapshot_length(head: &[u8; Sessions::SNAPSHOT_HEAD]) -> Result<u64, SnapshotError> {
        let around = Sessions::SNAPSHOT_HEAD as u64 + 8;
        let length = u64_at(head, 8).checked_add(around);
        length.filter(|_| head[..8] == MAGIC).ok_or(SnapshotError::Magic)
    }

    /// Parses a table that [`write`](Sessions::write) wrote. Returns it with the bytes that follow.
    ///
    /// # Errors
    /// Returns an error if the bytes are truncated, damaged, or do not fit this group and these limits.
    pub fn read(group: GroupId, limits: SessionLimits, bytes: &[u8]) -> Result<(Sessions, &[u8]), SnapshotError> {
        let short = |length| SnapshotError::Short { bytes: bytes.len(), length };
        let head = bytes.first_chunk().ok_or(short(Sessions::SNAPSHOT_HEAD as u64))?;
        let length = Sessions::snapshot_length(head)?;
        let split = usize::try_from(length).ok().and_then(|length| bytes.split_at_checked(length));
        let (whole, rest) = split.ok_or(short(length))?;
        let (body, sum) = whole[Sessions::SNAPSHOT_HEAD..].split_at(whole.len() - Sessions::SNAPSHOT_HEAD - 8);
        if u64_at(sum, 0) != digest(body) {
            return Err(SnapshotError::Digest);
        }
        let mut sessions = Sessions::new(group, limits);
        let mut from = Fields(body);
        sessions.take_over(&mut from)?;
        if from.0.is_empty() {
            Ok((sessions, rest))
        } else {
            Err(SnapshotError::Malformed("bytes after the last session"))
        }
    }

    /// Reads a table that [`write`](Sessions::write) wrote from the beginning of a state, and leaves the rest of the
    /// state unread.
    ///
    /// # Errors
    /// See [`read`](Sessions::read).
    pub fn read_from(
        group: GroupId,
        limits: SessionLimits,
        state: &mut StateReader<'_>,
    ) -> Result<Sessions, SnapshotError> {
        let mut head = [0; Sessions::SNAPSHOT_HEAD];
        let there = state.read(&mut head);
        let length = if there < head.len() { head.len() as u64 } else { Sessions::snapshot_length(&head)? };
        let rest = length - there as u64;
        // The length is not trusted: memory is allocated only for bytes that exist.
        if rest > state.left() {
            return Err(SnapshotError::Short { bytes: there + state.left() as usize, length });
        }
        let mut table = head.to_vec();
        table.resize(length as usize, 0);
        state.read(&mut table[there..]);
        Sessions::read(group, limits, &table).map(|(sessions, _)| sessions)
    }

    fn take_over(&mut self, from: &mut Fields<'_>) -> Result<(), SnapshotError> {
        let found = from.u16()?;
        if found != self.group.0 {
            return Err(SnapshotError::Group { found, expected: self.group.0 });
        }
        if from.u32()? != self.limits.window {
            return Err(SnapshotError::Limits("window"));
        }
        self.time = from.u64()?;
        for _ in 0..from.u64()? {
            let (session, end) = (SessionId(from.u128()?), from.u64()?);
            self.admit(self.ended.keys().next_back().copied(), session, end)?;
            self.ended.insert(session, end);
        }
        let count = from.u64()?;
        if count > u64::from(self.limits.sessions) {
            return Err(SnapshotError::Limits("number of sessions"));
        }
        for _ in 0..count {
            let session = SessionId(from.u128()?);
            let entry = read_entry(&self.limits, from)?;
            self.admit(self.open.keys().next_back().copied(), session, entry.end)?;
            self.open.insert(session, entry);
        }
        Ok(())
    }

    /// Inserts a session's end. Ids must ascend among the open sessions and among the ended ones. No session is both.
    fn admit(&mut self, last: Option<SessionId>, session: SessionId, end: u64) -> Result<(), SnapshotError> {
        if last.is_some_and(|last| last >= session) || self.ended.contains_key(&session) || end < self.time {
            return Err(SnapshotError::Malformed("a session twice, out of order, or past its end"));
        }
        self.ends.insert((end, session));
        Ok(())
    }
}

fn write_entry(entry: &Entry, out: &mut Vec<u8>) {
    out.extend((entry.earlier.len() as u32).to_le_bytes());
    out.extend(entry.generation.to_le_bytes());
    out.extend(entry.word.to_le_bytes());
    out.extend(entry.widening.to_le_bytes());
    out.extend(entry.widened.to_le_bytes());
    out.extend(entry.client.to_le_bytes());
    out.extend(entry.since.to_le_bytes());
    out.extend(entry.end.to_le_bytes());
    out.extend(entry.notified.to_le_bytes());
    out.extend((entry.pairs.len() as u32).to_le_bytes());
    write_pairs(&entry.pairs, out);
    write_replies(&entry.current, out);
    for (word, replies) in entry.earlier.iter() {
        out.extend(word.to_le_bytes());
        write_replies(replies, out);
    }
}

fn read_entry(limits: &SessionLimits, from: &mut Fields<'_>) -> Result<Entry, SnapshotError> {
    let generations = from.u32()?;
    let (generation, word) = (from.u32()?, from.u64()?);
    let (widening, widened) = (from.u32()?, from.u64()?);
    let (client, since, end) = (from.u16()?, from.u64()?, from.u64()?);
    let notified = from.u64()?;
    let count = from.u32()?;
    let bytes = from.take(u64::from(count) * Body::PAIR_BYTES as u64)?;
    let pairs = parse_pairs(count, bytes).map_err(|_| SnapshotError::Malformed("pairs of a session"))?;
    let current = read_replies(limits, from)?;
    if generations >= generation {
        return Err(SnapshotError::Malformed("generation 0, or one before it"));
    }
    let earlier = read_earlier(generations, limits, from)?;
    Ok(Entry { generation, word, widening, widened, client, since, end, pairs, notified, current, earlier })
}

fn read_earlier(generations: u32, limits: &SessionLimits, from: &mut Fields<'_>) -> Result<Earlier, SnapshotError> {
    let beyond = SnapshotError::Malformed("more of earlier generations than a window");
    if generations > limits.window {
        return Err(beyond);
    }
    let mut earlier = Earlier::default();
    let mut span = 0;
    for _ in 0..generations {
        let (word, replies) = (from.u64()?, read_replies(limits, from)?);
        span += replies.span();
        if span > limits.window as usize {
            return Err(beyond);
        }
        earlier.push(word, replies, limits.window, &mut Vec::new());
    }
    Ok(earlier)
}

fn write_replies(replies: &Replies, out: &mut Vec<u8>) {
    out.extend(replies.low().to_le_bytes());
    out.extend((replies.iter().count() as u32).to_le_bytes());
    for (request, Kept { outcome, position, bytes }) in replies.iter() {
        out.extend(request.to_le_bytes());
        out.extend(outcome.to_bytes());
        out.extend(position.timestamp.time.to_le_bytes());
        out.extend(position.timestamp.group.to_le_bytes());
        out.extend(position.index.to_le_bytes());
        out.extend(position.incarnation.to_word().to_le_bytes());
        out.extend((bytes.len() as u32).to_le_bytes());
        out.extend(bytes);
    }
}

fn read_replies(limits: &SessionLimits, from: &mut Fields<'_>) -> Result<Replies, SnapshotError> {
    let low = from.u64()?;
    let mut replies = Replies::new();
    replies.acknowledge(low, &mut Vec::new());
    let mut next = low;
    for _ in 0..from.u32()? {
        let request = from.u64()?;
        if request < next || request - low >= u64::from(limits.window) {
            return Err(SnapshotError::Malformed("a reply outside the window, or out of order"));
        }
        next = request.saturating_add(1);
        let outcome = from.take(2)?;
        let outcome = Outcome::from_bytes([outcome[0], outcome[1]]);
        let Ok(outcome @ (Outcome::Applied | Outcome::Overflow | Outcome::Skipped | Outcome::Closed)) = outcome else {
            return Err(SnapshotError::Malformed("outcome of a request"));
        };
        let timestamp = Timestamp { time: from.u64()?, group: from.u16()? };
        let (index, incarnation) = (from.u64()?, Incarnation::from_word(from.u64()?));
        let length = from.u32()?;
        if length > limits.reply_bytes {
            return Err(SnapshotError::Limits("reply"));
        }
        let bytes = from.take(u64::from(length))?.to_vec();
        replies.put(request, Kept { outcome, position: Position { timestamp, index, incarnation }, bytes });
    }
    if low == 0 { Err(SnapshotError::Malformed("request 0")) } else { Ok(replies) }
}

/// The part of a body that is not parsed yet.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn take(&mut self, bytes: u64) -> Result<&'a [u8], SnapshotError> {
        let split = usize::try_from(bytes).ok().and_then(|bytes| self.0.split_at_checked(bytes));
        let (taken, rest) = split.ok_or(SnapshotError::Malformed("it ends inside a field"))?;
        self.0 = rest;
        Ok(taken)
    }

    fn u16(&mut self) -> Result<u16, SnapshotError> {
        Ok(u16_at(self.take(2)?, 0))
    }

    fn u32(&mut self) -> Result<u32, SnapshotError> {
        Ok(u32_at(self.take(4)?, 0))
    }

    fn u64(&mut self) -> Result<u64, SnapshotError> {
        Ok(u64_at(self.take(8)?, 0))
    }

    fn u128(&mut self) -> Result<u128, SnapshotError> {
        Ok(u128_at(self.take(16)?, 0))
    }
}

/// A digest against damage. Snapshots need no protection against forgery.
fn digest(bytes: &[u8]) -> u64 {
    bytes.chunks(8).fold(bytes.len() as u64, |hash, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        SplitMix64::finish(hash.rotate_left(7) ^ u64::from_le_bytes(word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{At, Call, Caller, CallerConfig, Envelope, Reply, Service};

    struct Echo;

    impl Service for Echo {
        fn apply(&mut self, call: Call<'_>, reply: &mut Reply<'_>) {
            reply.extend(call.command);
        }

        fn ended(&mut self, _: SessionId) {}
    }

    const GROUP: GroupId = GroupId(2);
    const LIMITS: SessionLimits = SessionLimits { sessions: 4, ended: 2, window: 4, reply_bytes: 8, ttl: 1_000 };

    fn deliver(sessions: &mut Sessions, payload: &[u8]) -> Vec<u8> {
        let index = sessions.time() + 1;
        let time = Timestamp { time: index, group: GROUP.0 };
        let at = At { time, index, incarnation: Incarnation::FIRST, destinations: &[GROUP], client: 1 };
        sessions.deliver(&at, payload, &mut Echo).expect("the message is valid").record.to_vec()
    }

    /// Delivers the pending command and its answer.
    fn agree(sessions: &mut Sessions, caller: &mut Caller) {
        let payload = caller.message().expect("a message is in progress").payload.to_vec();
        let record = deliver(sessions, &payload);
        caller.on_reply(GROUP, &crate::ReplyRecord::parse(&record).expect("the record is valid"));
    }

    /// Creates a table with two sessions that were ended, and two that were taken up, with replies of both generations.
    fn table() -> Sessions {
        let mut sessions = Sessions::new(GROUP, LIMITS);
        let config = CallerConfig { window: 4, ttl: 500, renewal_timeout: 1 };
        let pairs = [crate::Pair { group: GROUP, incarnation: Incarnation::FIRST }];
        for session in (1..=4).map(SessionId) {
            let mut caller = Caller::new(session, config);
            caller.open(7, &pairs, 900).expect("the caller is new");
            agree(&mut sessions, &mut caller);
            if session.0 % 2 == 1 {
                caller.end(8).expect("the session is open");
                agree(&mut sessions, &mut caller);
                continue;
            }
            for by in [9, 10] {
                for command in [&b"reply"[..], b"longer than the limit"] {
                    let request = caller.begin(&[GROUP]).expect("the session is open");
                    let mut head = [0; Envelope::BYTES];
                    assert!(caller.envelope(request, &mut head));
                    deliver(&mut sessions, &[&head[..], command].concat());
                }
                if by == 9 {
                    caller = Caller::resume(&caller.key(), config);
                    caller.take_up(by, 900).expect("a key");
                    agree(&mut sessions, &mut caller);
                }
            }
        }
        sessions
    }

    /// Checks bodies with valid digests: each is refused, or the table that is read from it writes the same bytes.
    #[test]
    fn body_is_refused_or_written_unchanged() {
        let table = table();
        let mut bytes = Vec::new();
        table.write(&mut bytes);
        assert_eq!(Sessions::read(GROUP, LIMITS, &bytes), Ok((table, &[][..])));
        let body = Sessions::SNAPSHOT_HEAD..bytes.len() - 8;
        for (at, flips) in body.clone().flat_map(|at| [1, 2, 3, 0x80, 0xff].map(|flips| (at, flips))) {
            let mut changed = bytes.clone();
            changed[at] ^= flips;
            let sum = digest(&changed[body.clone()]);
            changed[body.end..].copy_from_slice(&sum.to_le_bytes());
            let mut again = Vec::new();
            if let Ok((read, _)) = Sessions::read(GROUP, LIMITS, &changed) {
                read.write(&mut again);
                assert_eq!(again, changed, "byte {at} ^ {flips:#x}");
                let is_sound = |(id, entry): (&SessionId, &Entry)| entry.generation > 0 && !read.ended.contains_key(id);
                assert!(read.open.iter().all(is_sound), "byte {at} ^ {flips:#x}");
                assert!(read.ends.first().is_some_and(|(end, _)| *end >= read.time), "byte {at} ^ {flips:#x}");
            }
        }
    }

    #[test]
    fn bytes_after_the_last_session_are_refused() {
        let mut bytes = Vec::new();
        table().write(&mut bytes);
        bytes.truncate(bytes.len() - 8);
        bytes.push(0);
        let length = (bytes.len() - Sessions::SNAPSHOT_HEAD) as u64;
        bytes[8..16].copy_from_slice(&length.to_le_bytes());
        let sum = digest(&bytes[Sessions::SNAPSHOT_HEAD..]);
        bytes.extend(sum.to_le_bytes());
        let read = Sessions::read(GROUP, LIMITS, &bytes).map(|_| ());
        assert_eq!(read, Err(SnapshotError::Malformed("bytes after the last session")));
    }

    #[test]
    fn table_beyond_the_limits_is_refused() {
        let mut bytes = Vec::new();
        table().write(&mut bytes);
        let read = |limits| Sessions::read(GROUP, limits, &bytes).map(|_| ());
        assert_eq!(read(SessionLimits { sessions: 2, reply_bytes: 5, ..LIMITS }), Ok(()));
        let few = SessionLimits { sessions: 1, ..LIMITS };
        assert_eq!(read(few), Err(SnapshotError::Limits("number of sessions")));
        assert_eq!(read(SessionLimits { reply_bytes: 4, ..LIMITS }), Err(SnapshotError::Limits("reply")));
        assert_eq!(read(SessionLimits { window: 5, ..LIMITS }), Err(SnapshotError::Limits("window")));
    }
}
