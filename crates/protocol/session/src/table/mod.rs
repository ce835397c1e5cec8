//! The table of one group: which sessions are open, and what became of their requests.

mod earlier;
mod entry;
mod replies;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};

use stentor_multicast::{ClientId, GroupId, Incarnation, Timestamp};
use thiserror::Error;

use crate::body::write_version;
use crate::ids::{rises, tag_of};
use crate::mutant::mutant;
use crate::{
    Answer, Body, BodyError, Envelope, EnvelopeError, Kind, Mutant, Outcome, Pair, Position, Reason, Reply,
    ReplyRecord, SessionId, SessionLimits,
};
use entry::{Desk, Entry, Judged, Task, bound_refuses};
pub use snapshot::SnapshotError;

/// Where a message is delivered, and to whom it went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At<'a> {
    /// Final timestamp: the same in all destination groups. Its time never falls from one delivery to the next.
    pub time: Timestamp,
    /// Number in this group's order, from 1.
    pub index: u64,
    /// Incarnation in which this group's history began (its origin).
    pub incarnation: Incarnation,
    /// The destination groups, this one among them, each once.
    pub destinations: &'a [GroupId],
    /// Id of the client that multicast it.
    pub client: u16,
}

impl At<'_> {
    fn position(&self) -> Position {
        Position { timestamp: self.time, index: self.index, incarnation: self.incarnation }
    }
}

/// A command that is to be applied, or a query that is to be answered, now, for the first and only time in this group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call<'a> {
    /// The session.
    pub session: SessionId,
    /// Its generation.
    pub generation: u32,
    /// Number of the request in the generation, from 1.
    pub request: u64,
    /// Whether it is a query, which changes nothing.
    pub is_query: bool,
    /// The bytes behind the envelope.
    pub command: &'a [u8],
}

/// The replicated state under the sessions.
pub trait Service {
    /// Applies a command or answers a query, and writes the reply.
    fn apply(&mut self, call: Call<'_>, reply: &mut Reply<'_>);

    /// A session ended or ran out: release what it holds.
    fn ended(&mut self, session: SessionId);
}

/// What a delivery did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// The command was applied.
    Applied,
    /// The command was skipped, and counts as decided.
    Skipped,
    /// It was decided before; the record is that of the first time. Nothing changed.
    Duplicate,
    /// A session's own command took effect.
    CarriedOut(Kind),
    /// Nothing was applied. The record says why.
    Refused(Outcome),
}

/// A delivery's verdict, and the record that answers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered<'a> {
    /// What happened.
    pub verdict: Verdict,
    /// The envelope that was judged.
    pub envelope: Envelope,
    /// A [`ReplyRecord`], for the client that multicast the message.
    pub record: &'a [u8],
}

/// Why a delivered payload could not be judged. Nothing was applied; every member of the group says the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// There is no envelope in front.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// What follows the envelope of a session's command is no body.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The message did not go to this group.
    #[error("group {0} is not among the destinations")]
    NotHere(u16),
}

/// The sessions of one group. Every member of the group has the same after the same deliveries.
///
/// Call [`deliver`](Sessions::deliver) for each enveloped message in the group's order, and [`expire`](Sessions::expire) for each
/// other entry that carries time, as time entries do. Whoever has something to do between the two, as to fire timers, calls `expire` before
/// `deliver`, too.
#[derive(Clone, Debug)]
pub struct Sessions {
    group: GroupId,
    limits: SessionLimits,
    open: BTreeMap<SessionId, Entry>,
    /// Ended sessions until their end: a late copy of their `Open` must not open them again.
    ended: BTreeMap<SessionId, u64>,
    /// Every session of both, by its end.
    ends: BTreeSet<(u64, SessionId)>,
    /// The largest time delivered.
    time: u64,
    /// The record of the last delivery.
    record: Vec<u8>,
    /// Buffers of replies that were dropped.
    spare: Vec<Vec<u8>>,
    mutant: Mutant,
}

/// Two tables are equal if their groups, limits, sessions and times are; buffers do not count.
impl PartialEq for Sessions {
    fn eq(&self, other: &Sessions) -> bool {
        (self.group, self.limits, self.time) == (other.group, other.limits, other.time)
            && self.open == other.open
            && self.ended == other.ended
    }
}

impl Eq for Sessions {}

/// Most buffers of dropped replies that are kept for later ones.
const SPARE: usize = 1024;

impl Sessions {
    /// Returns the empty table of a group. A window of 0 counts as 1.
    #[must_use]
    pub fn new(group: GroupId, limits: SessionLimits) -> Self {
        let limits = SessionLimits { window: limits.window.max(1), ..limits };
        Sessions {
            group,
            limits,
            open: BTreeMap::new(),
            ended: BTreeMap::new(),
            ends: BTreeSet::new(),
            time: 0,
            record: Vec::new(),
            spare: Vec::new(),
            mutant: Mutant::None,
        }
    }

    /// Switches a mutant on.
    #[doc(hidden)]
    #[must_use]
    pub fn with_mutant(self, mutant: Mutant) -> Self {
        Sessions { mutant, ..self }
    }

    /// The group.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// The number of open sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Whether no session is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// The largest time that was delivered.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.time
    }

    /// The end of a session here, if it is open.
    #[must_use]
    pub fn end_of(&self, session: SessionId) -> Option<u64> {
        Some(self.open.get(&session)?.end)
    }

    /// The first end of a session that is known here, open or ended. At a later time something is to be done.
    #[inline]
    #[must_use]
    pub fn next_end(&self) -> Option<u64> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// The generation that a session has here, if it is open.
    #[must_use]
    pub fn generation_of(&self, session: SessionId) -> Option<u32> {
        Some(self.open.get(&session)?.generation)
    }

    /// Ends the sessions whose end is earlier than `time`, in the order of (end, id). `deliver` does so by itself.
    pub fn expire(&mut self, time: u64, service: &mut impl Service) {
        self.time = self.time.max(time);
        while let Some(&(end, session)) = self.ends.first()
            && end < self.time
        {
            self.ends.remove(&(end, session));
            self.ended.remove(&session);
            if self.open.remove(&session).is_some() {
                service.ended(session);
            }
        }
    }

    /// Judges a message and applies it at most once. The record is for the client that multicast it.
    ///
    /// # Errors
    /// If the payload has no valid envelope, or did not go to this group. Sessions run out all the same.
    pub fn deliver(
        &mut self,
        at: &At<'_>,
        payload: &[u8],
        service: &mut impl Service,
    ) -> Result<Delivered<'_>, PayloadError> {
        self.judge(at, payload, service, false)
    }

    /// Like [`deliver`](Sessions::deliver) of a message that an operator skips: a command that would be applied is not, and counts as
    /// decided.
    ///
    /// # Errors
    /// As for `deliver`.
    pub fn skip(
        &mut self,
        at: &At<'_>,
        payload: &[u8],
        service: &mut impl Service,
    ) -> Result<Delivered<'_>, PayloadError> {
        self.judge(at, payload, service, true)
    }

    fn judge(
        &mut self,
        at: &At<'_>,
        payload: &[u8],
        service: &mut impl Service,
        skips: bool,
    ) -> Result<Delivered<'_>, PayloadError> {
        self.expire(at.time.time, service);
        let (envelope, rest) = Envelope::parse(payload)?;
        if !at.destinations.contains(&self.group) {
            return Err(PayloadError::NotHere(self.group.0));
        }
        if matches!(envelope.kind, Kind::Command | Kind::Query) {
            let task = if skips { Task::Skip } else { Task::Apply(rest, service) };
            return Ok(self.command(at, &envelope, task));
        }
        let body = Body::parse(rest)?;
        let mut judged = match envelope.kind {
            Kind::Open => self.open(at, &envelope, body, service),
            Kind::Widen => self.widen(at, &envelope, body, service),
            Kind::End => self.end(at, &envelope, service),
            Kind::Resolve => return Ok(self.resolve(at, &envelope, body.number)),
            Kind::Command | Kind::Query | Kind::Renew | Kind::TakeUp => self.prolong(at, &envelope, &body),
        };
        let entry = self.open.get(&envelope.session);
        let generation = entry.map_or(0, |entry| entry.generation);
        let mut bytes = Vec::new();
        match (envelope.kind, judged.outcome, entry) {
            (Kind::TakeUp, Outcome::WrongPairs, Some(entry)) => {
                write_version(entry.widening, &entry.pairs, &mut bytes);
            }
            // Whoever was not there when the session ran out learns that a later command has made it anew.
            (Kind::Open | Kind::Widen | Kind::TakeUp, Outcome::Applied, Some(entry))
                if self.limits.reply_bytes >= 8 =>
            {
                bytes.extend(entry.since.to_le_bytes());
            }
            _ => {}
        }
        if !bytes.is_empty() {
            judged.bytes = &bytes;
        }
        Ok(finish(&mut self.record, self.time, at, &envelope, generation, &judged))
    }

    fn command(&mut self, at: &At<'_>, envelope: &Envelope, task: Task<'_, impl Service>) -> Delivered<'_> {
        let mut desk = Desk { limits: &self.limits, spare: &mut self.spare, mutant: self.mutant };
        let judged = match self.open.get_mut(&envelope.session) {
            None => Judged::refused(Outcome::SessionNotOpen),
            Some(entry) if !entry.is_of(self.group, at) => Judged::refused(Outcome::WrongPairs),
            Some(entry) => entry.command(at, envelope, task, &mut desk),
        };
        self.spare.truncate(SPARE);
        finish(&mut self.record, self.time, at, envelope, envelope.generation, &judged)
    }

    fn resolve(&mut self, at: &At<'_>, envelope: &Envelope, generation: u32) -> Delivered<'_> {
        let mut desk = Desk { limits: &self.limits, spare: &mut self.spare, mutant: self.mutant };
        let judged = match self.open.get_mut(&envelope.session) {
            None => Judged::refused(Outcome::SessionNotOpen),
            Some(entry) if !entry.is_of(self.group, at) => Judged::refused(Outcome::WrongPairs),
            Some(entry) => match entry.generation_refuses(envelope.generation) {
                Some(outcome) => Judged::refused(outcome),
                None => entry.resolve(at, envelope, generation, &mut desk),
            },
        };
        self.spare.truncate(SPARE);
        finish(&mut self.record, self.time, at, envelope, generation, &judged)
    }

    /// `Renew` and `TakeUp`.
    fn prolong(&mut self, at: &At<'_>, envelope: &Envelope, body: &Body) -> Judged<'static> {
        let mut desk = Desk { limits: &self.limits, spare: &mut self.spare, mutant: self.mutant };
        let Some(entry) = self.open.get_mut(&envelope.session) else {
            return Judged::refused(Outcome::SessionNotOpen);
        };
        let before = entry.end;
        let judged = match envelope.kind {
            _ if !entry.is_of(self.group, at) => Judged::refused(Outcome::WrongPairs),
            Kind::TakeUp => entry.take_up(at, envelope, body, &mut desk),
            _ => renew(entry, at, envelope, body.ttl, &desk),
        };
        let after = entry.end;
        self.move_end(envelope.session, before, after);
        judged
    }

    fn open(&mut self, at: &At<'_>, envelope: &Envelope, body: Body, service: &mut impl Service) -> Judged<'static> {
        if let Some(entry) = self.open.get(&envelope.session) {
            if let Some(outcome) = entry.generation_refuses(envelope.generation) {
                return Judged::refused(outcome);
            }
            let same = entry.word == envelope.request && entry.widening == 0 && entry.pairs == body.pairs;
            return match same {
                true => Judged::repeated(entry.end),
                false => Judged::refused(Outcome::Refused(Reason::Taken)),
            };
        }
        if envelope.generation != 1 || body.number != 0 || body.word != 0 {
            return Judged::refused(Outcome::Refused(Reason::GenerationAhead));
        }
        self.make(at, envelope, body, service)
    }

    fn widen(&mut self, at: &At<'_>, envelope: &Envelope, body: Body, service: &mut impl Service) -> Judged<'static> {
        let Some(entry) = self.open.get_mut(&envelope.session) else {
            return self.make(at, envelope, body, service);
        };
        if !is_whole(self.group, at, envelope, &body) {
            return Judged::refused(Outcome::WrongPairs);
        }
        let desk = Desk { limits: &self.limits, spare: &mut self.spare, mutant: self.mutant };
        let before = entry.end;
        let judged = entry.widen((self.group, at), envelope, body, &desk);
        let after = entry.end;
        self.move_end(envelope.session, before, after);
        judged
    }

    /// Makes an entry, by `Open` or by `Widen`.
    fn make(&mut self, at: &At<'_>, envelope: &Envelope, body: Body, service: &mut impl Service) -> Judged<'static> {
        let desk = Desk { limits: &self.limits, spare: &mut self.spare, mutant: self.mutant };
        if self.ended.contains_key(&envelope.session) {
            return Judged::refused(Outcome::SessionNotOpen);
        }
        if !is_whole(self.group, at, envelope, &body) {
            return Judged::refused(Outcome::WrongPairs);
        }
        if let Some(outcome) = bound_refuses(at, envelope, body.ttl, &desk) {
            return Judged::refused(outcome);
        }
        if self.is_full() {
            if !mutant!(self.mutant, EvictsWhenFull) {
                return Judged::refused(Outcome::TableFull);
            }
            if let Some((_, first)) = self.ends.pop_first() {
                self.open.remove(&first);
                service.ended(first);
            }
        }
        let entry = Entry::made(at, envelope, body);
        let end = entry.end;
        self.ends.insert((end, envelope.session));
        self.open.insert(envelope.session, entry);
        Judged::carried_out(envelope.kind, end)
    }

    fn is_full(&self) -> bool {
        let over = self.ended.len().saturating_sub(self.limits.ended as usize);
        self.open.len() + over >= self.limits.sessions as usize
    }

    fn end(&mut self, at: &At<'_>, envelope: &Envelope, service: &mut impl Service) -> Judged<'static> {
        let Some(entry) = self.open.get(&envelope.session) else {
            let known = self.ended.contains_key(&envelope.session);
            return if known { Judged::repeated(0) } else { Judged::refused(Outcome::SessionNotOpen) };
        };
        if let Some(outcome) = entry.generation_refuses(envelope.generation) {
            return Judged::refused(outcome);
        }
        if !entry.is_of(self.group, at) || !entry.names_all(entry.word, at, envelope) {
            return Judged::refused(Outcome::WrongPairs);
        }
        let end = entry.end;
        self.open.remove(&envelope.session);
        if mutant!(self.mutant, NoTombstone) {
            self.ends.remove(&(end, envelope.session));
        } else {
            self.ended.insert(envelope.session, end);
        }
        service.ended(envelope.session);
        Judged::carried_out(Kind::End, 0)
    }

    fn move_end(&mut self, session: SessionId, before: u64, after: u64) {
        if before != after {
            self.ends.remove(&(before, session));
            self.ends.insert((after, session));
        }
    }

    /// Numbers a notification to a session, which is sent while the message at `at` is delivered. Returns its record, for the client that
    /// used the session last; `None` if the session is not open in this group. Of a notification that is longer than a reply may be, only
    /// the number is sent: the caller knows then that it has missed one.
    pub fn notify(&mut self, at: &At<'_>, session: SessionId, bytes: &[u8]) -> Option<Answer<'_>> {
        let entry = self.open.get_mut(&session).filter(|entry| entry.is_of(self.group, at))?;
        if !mutant!(self.mutant, NumbersTwice) || entry.notified == 0 {
            entry.notified += 1;
        }
        let fits = bytes.len() <= self.limits.reply_bytes as usize;
        let record = ReplyRecord {
            session,
            answers: Kind::Command,
            outcome: if fits { Outcome::Notification } else { Outcome::Notified },
            generation: entry.generation,
            request: entry.notified,
            position: at.position(),
            applied: self.time,
            end: entry.since,
            bytes: if fits { bytes } else { &[] },
        };
        record.write(&mut self.record);
        Some(Answer { client: ClientId(entry.client), by_all: false, is_notification: true, record: &self.record })
    }

    /// Hands over the records of all replies that are not acknowledged, of the sessions that this client used last. A new leader sends
    /// them again. They are in the order of session and request. The number of notifications to a session is behind its replies.
    pub fn replies_of(&mut self, client: u16, mut each: impl FnMut(&[u8])) {
        let (group, silent) = (self.group, mutant!(self.mutant, TellsNoNumber));
        for (&session, entry) in self.open.iter().filter(|(_, entry)| entry.client == client) {
            for (request, kept) in entry.current.iter() {
                let record = ReplyRecord {
                    session,
                    answers: if kept.outcome == Outcome::Closed { Kind::Resolve } else { Kind::Command },
                    outcome: kept.outcome,
                    generation: entry.generation,
                    request,
                    position: kept.position,
                    applied: self.time,
                    end: 0,
                    bytes: &kept.bytes,
                };
                record.write(&mut self.record);
                each(&self.record);
            }
            let own = entry.pairs.iter().find(|pair| pair.group == group);
            let Some(Pair { incarnation, .. }) = own.copied().filter(|_| entry.notified > 0 && !silent) else {
                continue;
            };
            let timestamp = Timestamp { time: self.time, group: group.0 };
            let record = ReplyRecord {
                session,
                answers: Kind::Command,
                outcome: Outcome::Notified,
                generation: entry.generation,
                request: entry.notified,
                position: Position { timestamp, index: 0, incarnation },
                applied: self.time,
                end: entry.since,
                bytes: &[],
            };
            record.write(&mut self.record);
            each(&self.record);
        }
    }
}

/// Whether these are all pairs of a session, the message went to exactly their groups, and this group is one in the incarnation that
/// it has.
fn is_whole(group: GroupId, at: &At<'_>, envelope: &Envelope, body: &Body) -> bool {
    let pairs = &body.pairs;
    let word = if envelope.kind == Kind::Open { envelope.request } else { body.word };
    rises(pairs)
        && pairs.len() == at.destinations.len()
        && tag_of(word, pairs, at.destinations) == Some(envelope.pairs)
        && pairs.contains(&Pair { group, incarnation: at.incarnation })
}

fn renew(entry: &mut Entry, at: &At<'_>, envelope: &Envelope, ttl: u64, desk: &Desk<'_>) -> Judged<'static> {
    if let Some(outcome) = entry.generation_refuses(envelope.generation) {
        return Judged::refused(outcome);
    }
    if !entry.names_pairs(entry.word, at, envelope, desk.mutant) {
        return Judged::refused(Outcome::WrongPairs);
    }
    if entry.predates(envelope, desk) && !mutant!(desk.mutant, RenewsAnother) {
        return Judged::refused(Outcome::SessionNotOpen);
    }
    if ttl == 0 || ttl > desk.limits.ttl {
        return Judged::refused(Outcome::Refused(Reason::TimeToLive));
    }
    entry.end = entry.end.max(at.time.time.saturating_add(ttl));
    Judged::carried_out(Kind::Renew, entry.end)
}

/// Writes the record of a judgement.
fn finish<'a>(
    out: &'a mut Vec<u8>,
    applied: u64,
    at: &At<'_>,
    envelope: &Envelope,
    generation: u32,
    judged: &Judged<'_>,
) -> Delivered<'a> {
    let record = ReplyRecord {
        session: envelope.session,
        // Whoever asks again by another message may not know which it was.
        answers: if envelope.kind == Kind::Query { Kind::Command } else { envelope.kind },
        outcome: judged.outcome,
        generation,
        request: envelope.request,
        position: judged.position.unwrap_or(at.position()),
        applied,
        end: judged.end,
        bytes: judged.bytes,
    };
    record.write(out);
    Delivered { verdict: judged.verdict, envelope: *envelope, record: out }
}
