//! The table of one group: its open sessions, and the outcomes of their requests.

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

/// Position of a delivered message, and its destinations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct At<'a> {
    /// Final timestamp, which is equal in all destination groups. Its time never decreases from one delivery to the
    /// next.
    pub time: Timestamp,
    /// Index in this group's order, from 1.
    pub index: u64,
    /// Incarnation in which this group's history began (its origin).
    pub incarnation: Incarnation,
    /// Destination groups, including this one, each once.
    pub destinations: &'a [GroupId],
    /// Id of the client that multicast the message.
    pub client: u16,
}

impl At<'_> {
    fn position(&self) -> Position {
        Position { timestamp: self.time, index: self.index, incarnation: self.incarnation }
    }
}

/// A command to apply, or a query to answer, for the first and only time in this group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call<'a> {
    /// Session of the request.
    pub session: SessionId,
    /// Generation of the session that sent the request.
    pub generation: u32,
    /// Number of the request in the generation, from 1.
    pub request: u64,
    /// `true` if the call is a query, which does not change the state.
    pub is_query: bool,
    /// The bytes after the envelope.
    pub command: &'a [u8],
}

/// The replicated state below the sessions.
pub trait Service {
    /// Applies a command or answers a query, and writes the reply.
    fn apply(&mut self, call: Call<'_>, reply: &mut Reply<'_>);

    /// Releases the resources of a session that has ended or expired.
    fn ended(&mut self, session: SessionId);
}

/// Effect of a delivery.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Verdict {
    /// The command was applied.
    Applied,
    /// The command was skipped, and counts as decided.
    Skipped,
    /// The message was decided before, and the record repeats the outcome of the first time. Nothing was applied.
    Duplicate,
    /// A message of the session protocol took effect: one of any kind but [`Kind::Command`] and [`Kind::Query`].
    CarriedOut(Kind),
    /// The message was refused. The record holds the reason.
    Refused(Outcome),
}

/// The verdict of a delivery, and the record that answers it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delivered<'a> {
    /// Effect of the delivery.
    pub verdict: Verdict,
    /// Envelope that was judged.
    pub envelope: Envelope,
    /// A serialized [`ReplyRecord`], for the client that multicast the message.
    pub record: &'a [u8],
}

/// Reason why a delivered payload could not be judged. Nothing was applied, and every member of the group gets the same
/// error.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum PayloadError {
    /// The payload does not begin with a valid envelope.
    #[error(transparent)]
    Envelope(#[from] EnvelopeError),
    /// The envelope is not followed by a valid body. Messages of the kinds `Command` and `Query` have no body, and
    /// never cause this error.
    #[error(transparent)]
    Body(#[from] BodyError),
    /// The message was not sent to this group.
    #[error("group {0} is not among the destinations")]
    NotHere(u16),
}

/// The sessions of one group. Every member of the group has the same table after the same deliveries.
///
/// Call [`deliver`](Sessions::deliver) for each enveloped message in the group's order, and
/// [`expire`](Sessions::expire) for each other entry that carries a time, such as a time entry. A caller that has work
/// between the two, such as firing timers, also calls `expire` before `deliver`.
#[derive(Clone, Debug)]
pub struct Sessions {
    group: GroupId,
    limits: SessionLimits,
    open: BTreeMap<SessionId, Entry>,
    /// Ended sessions until their end, so that a late copy of their `Open` does not open them again.
    ended: BTreeMap<SessionId, u64>,
    /// All open and ended sessions, by end.
    ends: BTreeSet<(u64, SessionId)>,
    /// Largest time delivered.
    time: u64,
    /// Record of the last delivery.
    record: Vec<u8>,
    /// Buffers of dropped replies.
    spare: Vec<Vec<u8>>,
    mutant: Mutant,
}

/// Two tables are equal if their groups, limits, sessions and times are. Buffers do not count.
impl PartialEq for Sessions {
    fn eq(&self, other: &Sessions) -> bool {
        (self.group, self.limits, self.time) == (other.group, other.limits, other.time)
            && self.open == other.open
            && self.ended == other.ended
    }
}

impl Eq for Sessions {}

/// Largest number of buffers of dropped replies that are kept for later ones.
const SPARE: usize = 1024;

impl Sessions {
    /// Creates the empty table of a group. A window of 0 counts as 1.
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

    /// Returns the group.
    #[must_use]
    pub fn group(&self) -> GroupId {
        self.group
    }

    /// Returns the number of open sessions.
    #[must_use]
    pub fn len(&self) -> usize {
        self.open.len()
    }

    /// Returns whether no session is open.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    /// Returns the largest time that was delivered.
    #[must_use]
    pub fn time(&self) -> u64 {
        self.time
    }

    /// Returns the end of a session here, if it is open.
    #[must_use]
    pub fn end_of(&self, session: SessionId) -> Option<u64> {
        Some(self.open.get(&session)?.end)
    }

    /// Returns the earliest end of an open or ended session. The session must be removed at the first later time.
    #[inline]
    #[must_use]
    pub fn next_end(&self) -> Option<u64> {
        self.ends.first().map(|(end, _)| *end)
    }

    /// Returns the generation of a session here, if it is open.
    #[must_use]
    pub fn generation_of(&self, session: SessionId) -> Option<u32> {
        Some(self.open.get(&session)?.generation)
    }

    /// Ends the sessions whose end is earlier than `time`, in the order of (end, id). `deliver` also does so.
    pub fn expire(&mut self, time: u64, service: &mut impl Service) {
        self.time = self.time.max(time);
        let (at_once, never) = (mutant!(self.mutant, EndsAtItsEnd), mutant!(self.mutant, NeverExpires));
        while let Some(&(end, session)) = self.ends.first()
            && (end < self.time || at_once && end == self.time)
            && !never
        {
            self.ends.remove(&(end, session));
            self.ended.remove(&session);
            if self.open.remove(&session).is_some() {
                service.ended(session);
            }
        }
    }

    /// Applies a message, unless it was applied before or must be refused. Returns the record of the outcome, which is
    /// the reply to the client that multicast the message.
    ///
    /// Before that, it ends all sessions whose end is earlier than the message's time; see
    /// [`expire`](Sessions::expire).
    ///
    /// # Errors
    /// Returns an error if the payload has no valid envelope or body, or if the message was not sent to this group. The
    /// expired sessions have ended even then.
    pub fn deliver(
        &mut self,
        at: &At<'_>,
        payload: &[u8],
        service: &mut impl Service,
    ) -> Result<Delivered<'_>, PayloadError> {
        self.judge(at, payload, service, false)
    }

    /// Processes a message that an operator skips. This differs from [`deliver`](Sessions::deliver) in one point: a
    /// command that `deliver` would apply is not applied, and only counts as decided.
    ///
    /// # Errors
    /// See [`deliver`](Sessions::deliver).
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
        if mutant!(self.mutant, EndsAfterApply) {
            self.time = self.time.max(at.time.time);
        } else {
            self.expire(at.time.time, service);
        }
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
            // A caller may have been absent when the session expired. The time shows it that a later command made the
            // entry again.
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

    /// Handles `Renew` and `TakeUp`.
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

    /// Makes an entry for `Open` or `Widen`.
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

    /// Numbers a notification to a session, which is sent while the message at `at` is delivered. Returns its record
    /// for the client that used the session last, or `None` if the session is not open in this group. For a
    /// notification that is longer than a reply may be, only the number is sent, so that the caller knows that it has
    /// missed one.
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

    /// Calls `each` with the records of all unacknowledged replies of the sessions that this client used last. A new
    /// leader sends them again. They are in the order of session and request. The number of notifications to a session
    /// follows its replies.
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

/// Returns whether these are all pairs of a session, the message was sent to exactly their groups, and this group is
/// among them in its present incarnation.
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

/// Writes the record of a verdict.
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
        // A caller that asks again by another message may not know whether the request was a query.
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
