//! The caller's side of a session.

mod control;
mod heard;
mod pending;
mod ticket;

use stentor_multicast::GroupId;
use thiserror::Error;

use crate::ids::{pairs_tag, rises};
use crate::mutant::mutant;
use crate::{Body, Envelope, Kind, Mutant, Outcome, Pair, Reason, ReplyRecord, SessionId};
use control::Control;
use heard::Heard;
pub use heard::Notified;
use pending::{Combined, Pending, Progress};
pub use pending::{Fate, GroupReply, NotApplied, Replies, Why};
use ticket::message;
pub use ticket::{SessionKey, Ticket, TicketError};

/// Parameters of a caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallerConfig {
    /// Largest number of requests that are not settled, at most the tables' window. At least 1.
    pub window: u32,
    /// Time to live that the caller asks for, in nanoseconds, at most the tables' limit.
    pub ttl: u64,
    /// Time after which an unanswered renewal is sent again, in nanoseconds of the `now` of [`Caller::due`].
    pub renewal_timeout: u64,
}

impl Default for CallerConfig {
    /// Returns a window of 64 requests, one minute to live, and a renewal timeout of one second.
    fn default() -> Self {
        CallerConfig { window: 64, ttl: 60_000_000_000, renewal_timeout: 1_000_000_000 }
    }
}

/// Reason why a caller refuses a call. The call had no effect, and nothing must be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum CallerError {
    /// The window of requests, or of tickets to resolve, is full. Wait for an answer, or resolve a request in doubt.
    #[error("the window is full: wait for an answer, or resolve a request in doubt")]
    Busy,
    /// No group was named, a group was named twice, or there are more than [`Body::MAX_PAIRS`] groups.
    #[error("name 1 to {max} groups, and each once", max = Body::MAX_PAIRS)]
    Groups,
    /// The session does not use this group. Open or widen it first.
    #[error("the session does not use group {0}: open or widen it first")]
    SessionNotOpen(u16),
    /// The session is not open or not taken up, either not yet or no longer.
    #[error("the session is not open")]
    NotOpen,
    /// The session was opened before. Take it up or widen it, or open a session with a new id.
    #[error("the session was opened before: take it up or widen it, or open a session with a new id")]
    Opened,
    /// Another command of the session is pending.
    #[error("another command of the session is under way")]
    UnderWay,
    /// The ticket belongs to no request that this session knows, or contradicts a ticket that is being resolved.
    #[error("the ticket belongs to another session, or to a generation that this session has not reached")]
    Ticket,
}

/// A message of the session to its groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message<'a> {
    /// Destination groups, all in one multicast.
    pub to: &'a [GroupId],
    /// Bytes to multicast.
    pub payload: &'a [u8],
}

/// Change that an answer caused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// The fate of a request is known. A request that was given up may be reported again.
    Finished(Finished<'a>),
    /// All groups have answered a command of the session. `refused` is the first group that did not agree.
    ///
    /// After `Open` the session is open only if all groups agreed. After `Widen` the new groups are used only if all
    /// agreed. A used group in which the session had expired counts as one that does not know the session, although the
    /// widening opened it again. After `TakeUp` the session is open if a group agreed and no group that knows the
    /// session refused. If one did, `refused` is the first such group, and the session must be taken up again with
    /// another word. If no group knows the session, it no longer exists.
    Answered {
        /// `Open`, `Widen`, `TakeUp` or `End`.
        kind: Kind,
        /// The first group that did not agree, and its answer.
        refused: Option<(GroupId, Outcome)>,
    },
    /// The session's end in this group was extended.
    Renewed {
        /// Group that extended the end.
        group: GroupId,
        /// The session's new end in the group.
        end: u64,
    },
    /// The session is no longer open in this group. A widening that names the group makes the session use it again.
    Dropped {
        /// Group in which the session is no longer open.
        group: GroupId,
        /// Answer of the group.
        outcome: Outcome,
    },
    /// The record holds a notification, or shows that notifications were lost.
    Notified(Notified),
}

/// Fate of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Finished<'a> {
    /// Generation of the request.
    pub generation: u32,
    /// Random word that began the generation.
    pub word: u64,
    /// Number of the request.
    pub request: u64,
    /// Fate of the request.
    pub fate: Fate<'a>,
}

/// State of a session at its caller.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Phase {
    /// The session is not opened yet, or this process has not taken it up.
    New,
    /// The `Open` or `TakeUp` has succeeded.
    Open,
    /// A group has refused the `Open`, but other groups have opened the session.
    Refused,
    /// No group has opened the session, or the session was ended or superseded.
    Over,
}

/// A group of the session.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Member {
    pair: Pair,
    /// Largest end that the group has acknowledged, or 0 if the group is not used.
    end: u64,
    /// Time at which the group answered the last `Open`, `Widen` or `TakeUp`.
    agreed: u64,
    /// Time since which the session is open in the group, or 0 if the group has not reported that time.
    since: u64,
    /// Time since which a renewal is pending, by the `now` of `due`.
    renewing: Option<u64>,
}

impl Member {
    fn unused(pair: Pair) -> Self {
        Member { pair, end: 0, agreed: 0, since: 0, renewing: None }
    }
}

/// One process's use of a session: numbers requests, writes every message, and reports the fate of each request.
///
/// A caller sends no message by itself. The calls come in this order: [`open`](Caller::open) (or
/// [`take_up`](Caller::take_up) after [`resume`](Caller::resume)), then its [`message`](Caller::message) until
/// `Answered`. After that, [`begin`](Caller::begin) for each request, its [`envelope`](Caller::envelope) in front of
/// every copy, [`on_reply`](Caller::on_reply) for each record, and [`due`](Caller::due) regularly.
///
/// # Invariants
/// - `low ≤ next ≤ low + window`, and slot `request % window` holds the requests in between.
/// - Every request below `low` is settled: no copy of it can be applied any more in any of its groups. So `responded`
///   never passes a request that one group could still apply and another one has forgotten.
/// - A request's end, tag and number are fixed when it begins, and are equal in all its copies.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Caller {
    id: SessionId,
    config: CallerConfig,
    phase: Phase,
    generation: u32,
    /// Random word that began the generation.
    word: u64,
    widening: u32,
    /// The session's groups, in ascending order.
    members: Vec<Member>,
    control: Option<Control>,
    slots: Vec<Pending>,
    low: u64,
    next: u64,
    /// Questions about requests of earlier generations.
    asked: Vec<Pending>,
    /// The last answered question of `asked`. An event borrows the replies from here.
    told: Pending,
    /// Numbers of the notifications that were received or are known to be lost.
    heard: Heard,
    renewals: u64,
    /// Buffer for the message of a renewal.
    renewal: Vec<u8>,
    mutant: Mutant,
}

impl Caller {
    /// Creates a caller for a new session. `id` is a random word that no session has used before.
    #[must_use]
    pub fn new(id: SessionId, config: CallerConfig) -> Self {
        let config = CallerConfig { window: config.window.max(1), ..config };
        Caller {
            id,
            config,
            phase: Phase::New,
            generation: 0,
            word: 0,
            widening: 0,
            members: Vec::new(),
            control: None,
            slots: vec![Pending::default(); config.window as usize],
            low: 1,
            next: 1,
            asked: Vec::new(),
            told: Pending::default(),
            heard: Heard::default(),
            renewals: 0,
            renewal: Vec::new(),
            mutant: Mutant::None,
        }
    }

    /// Creates a caller for a session that an earlier process opened. [`take_up`](Caller::take_up) must follow.
    #[must_use]
    pub fn resume(key: &SessionKey, config: CallerConfig) -> Self {
        let members = key.pairs.iter().copied().map(Member::unused).collect();
        Caller { generation: key.generation, widening: key.widening, members, ..Caller::new(key.session, config) }
    }

    /// Switches a mutant on.
    #[doc(hidden)]
    #[must_use]
    pub fn with_mutant(self, mutant: Mutant) -> Self {
        Caller { mutant, ..self }
    }

    /// Returns the session.
    #[must_use]
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Returns this process's generation: 0 before the opening; after [`resume`](Caller::resume) the last known one.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Returns the random word that began this process's generation.
    #[must_use]
    pub fn word(&self) -> u64 {
        self.word
    }

    /// Returns whether requests can begin.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Returns the number of requests that may still begin before one is settled.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.config.window - (self.next - self.low) as u32
    }

    /// Returns the first request that is not settled.
    #[must_use]
    pub fn responded(&self) -> u64 {
        self.low
    }

    /// Returns the end that a group has acknowledged, if the session uses the group.
    #[must_use]
    pub fn end_in(&self, group: GroupId) -> Option<u64> {
        let member = self.members.iter().find(|member| member.pair.group == group)?;
        (member.end > 0).then_some(member.end)
    }

    /// Returns the key with which a later process can take the session up.
    #[must_use]
    pub fn key(&self) -> SessionKey {
        let pairs = self.members.iter().map(|member| member.pair).collect();
        SessionKey { session: self.id, generation: self.generation, widening: self.widening, pairs }
    }

    /// Opens the session in all these groups. `word` is random. `until` is the last time of the order at which the
    /// opening may take effect; the present time plus the time to live is a good choice. A session that is refused
    /// needs a new caller with a new id.
    ///
    /// # Errors
    /// Returns an error if the session was opened before, or if `pairs` names no group, one twice, or too many.
    pub fn open(&mut self, word: u64, pairs: &[Pair], until: u64) -> Result<(), CallerError> {
        if !self.members.is_empty() {
            return Err(CallerError::Opened);
        }
        let pairs = merged(&[], pairs)?;
        self.generation = 1;
        self.members = pairs.iter().copied().map(Member::unused).collect();
        self.ask(Kind::Open, word, until, pairs);
        Ok(())
    }

    /// Takes the session up: begins its next generation in all its groups. `word` is random and new for every attempt;
    /// `until` is as for [`open`](Caller::open). If the command is refused, the caller has learnt the missing
    /// information, and another attempt may succeed.
    ///
    /// # Errors
    /// Returns an error if the caller was not created by [`resume`](Caller::resume), or if the session is already taken
    /// up or its `TakeUp` is pending.
    pub fn take_up(&mut self, word: u64, until: u64) -> Result<(), CallerError> {
        let next = self.generation.checked_add(1).filter(|_| self.generation > 0);
        let Some(next) = next.filter(|_| self.phase == Phase::New && !self.members.is_empty()) else {
            return Err(CallerError::NotOpen);
        };
        if self.control.is_some() {
            return Err(CallerError::UnderWay);
        }
        self.generation = next;
        self.heard.clear();
        self.ask(Kind::TakeUp, word, until, self.pairs());
        Ok(())
    }

    /// Adds groups to the session, or replaces groups by another incarnation. `word` and `until` are as for
    /// [`open`](Caller::open).
    ///
    /// # Errors
    /// Returns an error if the session is not open, if another command is pending, or if `add` names no group, one
    /// twice, or too many.
    pub fn widen(&mut self, word: u64, add: &[Pair], until: u64) -> Result<(), CallerError> {
        self.may_ask()?;
        let pairs = merged(&self.pairs(), add)?;
        self.widening = self.widening.saturating_add(1);
        self.ask(Kind::Widen, word, until, pairs);
        Ok(())
    }

    /// Ends the session in all its groups. No request is applied after the `End` takes effect. A refused opening can be
    /// ended once, which frees the room in the groups that agreed to it.
    ///
    /// The call does not wait for a pending widening. The `End` goes to all groups that the session would have after
    /// the widening, and ends the session if it is ordered after the widening. If the widening was not sent, [take it
    /// back](Caller::take_back) first.
    ///
    /// # Errors
    /// Returns an error if the session is not open, or if its `TakeUp` or `End` is pending.
    pub fn end(&mut self, word: u64) -> Result<(), CallerError> {
        if !matches!(self.phase, Phase::Open | Phase::Refused) {
            return Err(CallerError::NotOpen);
        }
        let pairs = self.control.take().map_or_else(|| self.pairs(), |widening| widening.pairs);
        self.phase = Phase::Over;
        self.ask(Kind::End, word, 0, pairs);
        Ok(())
    }

    /// Withdraws a pending widening of which no message was or will be sent. Returns whether one was pending.
    pub fn take_back(&mut self) -> bool {
        let widening = self.control.take_if(|control| control.kind == Kind::Widen);
        if let Some(widening) = &widening {
            self.widening = widening.number - 1;
        }
        widening.is_some()
    }

    fn may_ask(&self) -> Result<(), CallerError> {
        match self.phase {
            Phase::Open if self.control.is_some() => Err(CallerError::UnderWay),
            Phase::Open => Ok(()),
            Phase::New | Phase::Refused | Phase::Over => Err(CallerError::NotOpen),
        }
    }

    fn pairs(&self) -> Vec<Pair> {
        self.members.iter().map(|member| member.pair).collect()
    }

    fn ask(&mut self, kind: Kind, word: u64, until: u64, pairs: Vec<Pair>) {
        let envelope = Envelope {
            session: self.id,
            request: word,
            end: until,
            pairs: 0,
            generation: self.generation,
            behind: 0,
            kind,
        };
        if matches!(kind, Kind::Open | Kind::TakeUp) {
            self.word = word;
        }
        let number = if matches!(kind, Kind::Widen | Kind::TakeUp) { self.widening } else { 0 };
        let ttl = if kind == Kind::End { 0 } else { self.config.ttl };
        self.control = Some(Control::new(envelope, self.word, ttl, number, pairs));
    }

    /// Returns the pending command of the session. It must be multicast, and again while no answer arrives.
    #[must_use]
    pub fn message(&self) -> Option<Message<'_>> {
        let control = self.control.as_ref()?;
        Some(Message { to: &control.groups, payload: &control.payload })
    }

    /// Begins a command to these groups, of which one message will be sent. Returns the number of its request.
    ///
    /// # Errors
    /// Returns an error if the session is not open in a group, if `to` is empty or repeats a group, or if the window is
    /// full.
    pub fn begin(&mut self, to: &[GroupId]) -> Result<u64, CallerError> {
        self.begin_request(to, false)
    }

    /// Begins a query to these groups, as [`begin`](Caller::begin) does for a command.
    ///
    /// # Errors
    /// See [`begin`](Caller::begin).
    pub fn begin_query(&mut self, to: &[GroupId]) -> Result<u64, CallerError> {
        self.begin_request(to, true)
    }

    #[inline]
    fn begin_request(&mut self, to: &[GroupId], is_query: bool) -> Result<u64, CallerError> {
        let early = mutant!(self.mutant, SendsEarly) && self.generation > 0;
        if self.phase != Phase::Open && !early {
            return Err(CallerError::NotOpen);
        }
        if self.room() == 0 {
            return Err(CallerError::Busy);
        }
        let index = self.slot_of(self.next);
        let slot = &mut self.slots[index];
        slot.ticket.pairs.clear();
        let mut end = u64::MAX;
        for member in self.members.iter().filter(|member| to.contains(&member.pair.group)) {
            if member.end == 0 && !early {
                return Err(CallerError::SessionNotOpen(member.pair.group.0));
            }
            if member.end > 0 {
                end = end.min(member.end);
            }
            slot.ticket.pairs.push(member.pair);
        }
        let pairs = &slot.ticket.pairs;
        if let Some(unknown) = to.iter().find(|group| pairs.iter().all(|pair| pair.group != **group)) {
            return Err(CallerError::SessionNotOpen(unknown.0));
        }
        if to.is_empty() || pairs.len() != to.len() {
            return Err(CallerError::Groups);
        }
        let ticket = &mut slot.ticket;
        (ticket.session, ticket.generation, ticket.request) = (self.id, self.generation, self.next);
        (ticket.word, ticket.behind, ticket.end) = (self.word, (self.next - self.low) as u32, end);
        slot.begin(1, false);
        slot.is_query = is_query;
        self.next += 1;
        Ok(self.next - 1)
    }

    /// Counts one more message that will carry a request. Returns `false` if the request is settled; then nothing must
    /// be sent.
    pub fn again(&mut self, request: u64) -> bool {
        self.slot_mut(request).is_some_and(|slot| {
            slot.copies += 1;
            true
        })
    }

    /// Writes the envelope of a request, which is equal in each message that carries it. Returns `false` if the request
    /// is settled.
    pub fn envelope(&self, request: u64, out: &mut [u8; Envelope::BYTES]) -> bool {
        let Some(slot) = self.slot(request) else { return false };
        let ticket = &slot.ticket;
        let end = match mutant!(self.mutant, RenewsRetries) {
            true => ticket.groups().filter_map(|group| self.end_in(group)).min().unwrap_or(ticket.end),
            false => ticket.end,
        };
        let envelope = Envelope {
            session: self.id,
            request,
            end,
            pairs: pairs_tag(ticket.word, ticket.pairs.iter().copied()),
            generation: ticket.generation,
            behind: ticket.behind,
            kind: if slot.is_query { Kind::Query } else { Kind::Command },
        };
        envelope.write(out);
        true
    }

    /// Returns the ticket of a request that is not settled.
    #[must_use]
    pub fn ticket(&self, request: u64) -> Option<&Ticket> {
        Some(&self.slot(request)?.ticket)
    }

    /// Records that a message which would have carried a request was not sent and never will be. If no other message
    /// carries the request, the request was not applied, and its fate is returned.
    pub fn not_sent(&mut self, request: u64) -> Option<Finished<'_>> {
        self.one_copy_less(request, NotApplied::NotSent)
    }

    /// Records that a message which carried a request became a no-op for good. If no other message carries the request,
    /// the request was not applied, and its fate is returned.
    pub fn void(&mut self, request: u64) -> Option<Finished<'_>> {
        self.one_copy_less(request, NotApplied::Void)
    }

    fn one_copy_less(&mut self, request: u64, why: NotApplied) -> Option<Finished<'_>> {
        let (generation, word) = (self.generation, self.word);
        let slot = self.slot_mut(request)?;
        slot.copies = slot.copies.saturating_sub(1);
        if slot.copies > 0 || slot.is_applied_somewhere() {
            return None;
        }
        slot.progress = Progress::Settled;
        self.advance();
        Some(Finished { generation, word, request, fate: Fate::NotApplied(why) })
    }

    /// Gives a request up. The request stays in the window until it is resolved or its groups answer. Returns the
    /// request's fate, [`Fate::Unknown`], or `None` if the request no longer waits for answers.
    pub fn lost(&mut self, request: u64, why: Why) -> Option<Finished<'_>> {
        let (generation, word) = (self.generation, self.word);
        let slot = self.slot_mut(request).filter(|slot| slot.progress == Progress::Waiting)?;
        slot.progress = Progress::InDoubt;
        self.advance();
        Some(Finished { generation, word, request, fate: Fate::Unknown(why) })
    }

    /// Asks a ticket's groups for the fate of its request. Overwrites `out` with the message for them; a repeated call
    /// writes the same message.
    ///
    /// # Errors
    /// Returns an error if the session is not open, if the ticket does not belong to it, or if a window of tickets is
    /// already being resolved.
    pub fn resolve(&mut self, ticket: &Ticket, out: &mut Vec<u8>) -> Result<(), CallerError> {
        if self.phase != Phase::Open {
            return Err(CallerError::NotOpen);
        }
        if ticket.session != self.id || ticket.generation > self.generation || ticket.pairs.is_empty() {
            return Err(CallerError::Ticket);
        }
        let own = ticket.generation == self.generation;
        // Two processes that took the session up in different groups may have the same generation number.
        let same =
            |asked: &Pending| (asked.ticket.generation, asked.ticket.request) == (ticket.generation, ticket.request);
        let is_other = self.asked.iter().any(|asked| same(asked) && asked.ticket != *ticket);
        if is_other || (own && (ticket.request >= self.next || ticket.word != self.word)) {
            return Err(CallerError::Ticket);
        }
        let is_asked = self.is_asked(ticket);
        let is_crowded = self.asked.len() >= self.config.window as usize;
        if let Some(slot) = self.slot_mut(ticket.request).filter(|_| own) {
            if !slot.resolves {
                slot.resolves = true;
                slot.ask_again();
            }
        } else if !is_asked {
            if is_crowded {
                return Err(CallerError::Busy);
            }
            self.asked.push(Pending::question(ticket));
        }
        ticket.question(self.generation, out);
        Ok(())
    }

    /// Returns the tickets of earlier generations that are being resolved.
    pub fn asked(&self) -> impl Iterator<Item = &Ticket> {
        self.asked.iter().map(|asked| &asked.ticket)
    }

    /// Returns whether a ticket of an earlier generation is being resolved.
    #[must_use]
    pub fn is_asked(&self, ticket: &Ticket) -> bool {
        self.asked().any(|asked| asked == ticket)
    }

    /// Forgets that a ticket of an earlier generation is being resolved, because its question was not sent or its
    /// answer is no longer needed. A request of this generation keeps its slot.
    pub fn forget(&mut self, ticket: &Ticket) {
        self.asked.retain(|asked| asked.ticket != *ticket);
    }

    /// Passes the renewals that are due to `send`. `now` is local time, `order_time` an estimate of the order's time,
    /// both in nanoseconds. A renewal is due when less than half of the time to live is left, and again if it is not
    /// answered within [`CallerConfig::renewal_timeout`].
    pub fn due(&mut self, now: u64, order_time: u64, mut send: impl FnMut(GroupId, &[u8])) {
        if self.phase != Phase::Open {
            return;
        }
        let CallerConfig { ttl, renewal_timeout, .. } = self.config;
        for member in &mut self.members {
            let is_near = member.end > 0 && member.end < order_time.saturating_add(ttl / 2);
            let waits = member.renewing.is_some_and(|since| now.saturating_sub(since) < renewal_timeout);
            if !is_near || waits {
                continue;
            }
            member.renewing = Some(now);
            self.renewals += 1;
            let envelope = Envelope {
                session: self.id,
                request: self.renewals,
                end: member.end,
                pairs: pairs_tag(self.word, [member.pair]),
                generation: self.generation,
                behind: 0,
                kind: Kind::Renew,
            };
            message(&envelope, &Body { ttl, ..Body::default() }, &mut self.renewal);
            send(member.pair.group, &self.renewal);
        }
    }

    /// Processes an answer. To a request, the first answer of each group counts.
    pub fn on_reply(&mut self, group: GroupId, record: &ReplyRecord<'_>) -> Option<Event<'_>> {
        if record.session != self.id {
            return None;
        }
        if matches!(record.outcome, Outcome::Notification | Outcome::Notified) {
            let is_own = record.generation == self.generation;
            return if is_own { self.heard.take(group, record).map(Event::Notified) } else { None };
        }
        match record.answers {
            Kind::Command | Kind::Query | Kind::Resolve => self.on_request(group, record).map(Event::Finished),
            Kind::Renew => self.on_renewal(group, record),
            Kind::Open | Kind::Widen | Kind::TakeUp | Kind::End => {
                let control = self.control.as_mut()?;
                let used = self.members.iter().find(|member| member.pair.group == group && member.end > 0);
                if !control.take(group, record, used.map_or(0, |member| member.since), self.mutant) {
                    return None;
                }
                let control = self.control.take()?;
                Some(self.on_agreed(&control))
            }
        }
    }

    fn on_agreed(&mut self, control: &Control) -> Event<'static> {
        // Groups that have lost the session do not prevent its next process from using the others.
        let denial = control.denial().filter(|_| control.kind == Kind::TakeUp);
        let refused = denial.or_else(|| control.refusal());
        let agreed = control.is_agreed_somewhere() && denial.is_none();
        match control.kind {
            Kind::Open if refused.is_some() => self.phase = if agreed { Phase::Refused } else { Phase::Over },
            Kind::TakeUp if !agreed => {
                let known = control.answers.iter().flatten().map(|word| word.generation).max().unwrap_or(0);
                self.generation = known.max(control.generation - 1);
                // The number that the group answered is adopted even if it is smaller than the caller's, because the
                // session key may name a widening that failed.
                if let Some((widening, pairs)) = &control.version {
                    self.widening = *widening;
                    self.replace_members(pairs);
                }
            }
            Kind::Open | Kind::TakeUp => self.phase = Phase::Open,
            Kind::Widen if agreed => self.replace_members(&control.pairs),
            _ => {}
        }
        let counts = agreed && control.kind != Kind::End && self.phase == Phase::Open;
        if counts {
            self.use_members(control);
        }
        Event::Answered { kind: control.kind, refused }
    }

    /// Replaces the pairs. None of the new ones is used yet.
    fn replace_members(&mut self, pairs: &[Pair]) {
        let old = std::mem::take(&mut self.members);
        let member = |pair: &Pair| {
            let same = old.iter().find(|member| member.pair == *pair).copied();
            same.unwrap_or(Member::unused(*pair))
        };
        self.members = pairs.iter().map(member).collect();
    }

    /// Uses the groups that agreed, and no others. New groups of a widening are used only if all groups agreed.
    fn use_members(&mut self, control: &Control) {
        let all = control.refusal().is_none();
        for (member, word) in self.members.iter_mut().zip(control.answers.iter().flatten()) {
            let known = member.end > 0 || control.kind != Kind::Widen;
            member.end = match word.outcome {
                Outcome::Applied if all || known => member.end.max(word.end),
                _ => 0,
            };
            (member.agreed, member.since, member.renewing) = (word.time, word.since, None);
        }
    }

    fn on_renewal(&mut self, group: GroupId, record: &ReplyRecord<'_>) -> Option<Event<'_>> {
        if self.phase != Phase::Open || record.outcome == Outcome::Halted {
            return None;
        }
        let member = self.members.iter_mut().find(|member| member.pair.group == group && member.end > 0)?;
        // An answer that was sent before the group last agreed does not describe the present state.
        if record.position.timestamp.time < member.agreed {
            return None;
        }
        member.renewing = None;
        if record.outcome == Outcome::Applied && record.position.incarnation == member.pair.incarnation {
            member.end = member.end.max(record.end);
            return Some(Event::Renewed { group, end: member.end });
        }
        member.end = 0;
        if record.outcome == Outcome::Refused(Reason::Superseded) {
            self.phase = Phase::Over;
        }
        Some(Event::Dropped { group, outcome: record.outcome })
    }

    fn on_request(&mut self, group: GroupId, record: &ReplyRecord<'_>) -> Option<Finished<'_>> {
        let (generation, request) = (record.generation, record.request);
        if generation == self.generation && self.slot(request).is_some() {
            let index = self.slot_of(request);
            let (progress, combined) = answer(&mut self.slots[index], group, record, self.mutant)?;
            self.slots[index].progress = progress;
            self.advance();
            return Some(finished(&self.slots[index], combined));
        }
        let is_asked = |asked: &Pending| asked.ticket.generation == generation && asked.ticket.request == request;
        let index = self.asked.iter().position(is_asked)?;
        let (progress, combined) = answer(&mut self.asked[index], group, record, self.mutant)?;
        self.asked[index].progress = progress;
        if progress != Progress::Settled {
            return Some(finished(&self.asked[index], combined));
        }
        self.told = self.asked.remove(index);
        Some(finished(&self.told, combined))
    }

    fn slot_of(&self, request: u64) -> usize {
        (request % self.slots.len() as u64) as usize
    }

    /// Returns the slot of a request that is not settled.
    fn slot(&self, request: u64) -> Option<&Pending> {
        let is_inside = (self.low..self.next).contains(&request);
        let slot = self.slots.get(self.slot_of(request)).filter(|_| is_inside)?;
        (slot.progress != Progress::Settled).then_some(slot)
    }

    fn slot_mut(&mut self, request: u64) -> Option<&mut Pending> {
        self.slot(request)?;
        let index = self.slot_of(request);
        self.slots.get_mut(index)
    }

    /// Advances `low` over settled requests.
    fn advance(&mut self) {
        while self.low < self.next {
            let progress = self.slots[self.slot_of(self.low)].progress;
            let lost = progress == Progress::InDoubt && mutant!(self.mutant, PassesOverLost);
            if progress != Progress::Settled && !lost {
                return;
            }
            self.low += 1;
        }
    }
}

/// Processes an answer to a request. Returns progress and fate if the answer is the last one or shows a halted group.
fn answer(
    pending: &mut Pending,
    group: GroupId,
    record: &ReplyRecord<'_>,
    mutant: Mutant,
) -> Option<(Progress, Result<(), Combined>)> {
    if record.outcome == Outcome::Halted {
        let is_news = pending.progress == Progress::Waiting;
        return is_news.then_some((Progress::InDoubt, Err(Combined::Unknown(Why::Halted(group)))));
    }
    if !pending.take(group, record) {
        return None;
    }
    let combined = pending.combined(mutant);
    let is_settled = match combined {
        Ok(()) | Err(Combined::NotApplied(_) | Combined::Unknown(Why::Forgotten(_) | Why::Skipped(_))) => true,
        Err(Combined::Unknown(_)) => pending.resolves,
    };
    Some((if is_settled { Progress::Settled } else { Progress::InDoubt }, combined))
}

fn finished(pending: &Pending, combined: Result<(), Combined>) -> Finished<'_> {
    let Ticket { generation, word, request, .. } = pending.ticket;
    let fate = match combined {
        Ok(()) => Fate::Applied(pending.replies()),
        Err(combined) => combined.into(),
    };
    Finished { generation, word, request, fate }
}

/// Returns the pairs of `add` and those of `old` whose groups are not among them, by ascending group.
fn merged(old: &[Pair], add: &[Pair]) -> Result<Vec<Pair>, CallerError> {
    let kept = old.iter().filter(|old| add.iter().all(|add| add.group != old.group));
    let mut pairs: Vec<Pair> = kept.chain(add).copied().collect();
    pairs.sort_unstable();
    let possible = !add.is_empty() && rises(&pairs) && pairs.len() <= Body::MAX_PAIRS as usize;
    if possible { Ok(pairs) } else { Err(CallerError::Groups) }
}
