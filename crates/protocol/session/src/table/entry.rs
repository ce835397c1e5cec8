//! One session in the table of one group.

use stentor_multicast::GroupId;

use super::earlier::Earlier;
use super::replies::{Kept, Replies};
use super::{At, Call, Service, Verdict};
use crate::ids::tag_of;
use crate::mutant::mutant;
use crate::{Body, Envelope, Kind, Mutant, Outcome, Pair, Position, Reason, Reply, SessionLimits};

/// Resources of the table for judging a message of a session.
pub(super) struct Desk<'a> {
    pub(super) limits: &'a SessionLimits,
    /// Buffers of dropped replies.
    pub(super) spare: &'a mut Vec<Vec<u8>>,
    pub(super) mutant: Mutant,
}

/// A verdict and the contents of its record.
pub(super) struct Judged<'a> {
    pub(super) verdict: Verdict,
    pub(super) outcome: Outcome,
    /// `None` represents the position of the judged message.
    pub(super) position: Option<Position>,
    pub(super) end: u64,
    pub(super) bytes: &'a [u8],
}

impl<'a> Judged<'a> {
    pub(super) fn refused(outcome: Outcome) -> Judged<'a> {
        Judged { verdict: Verdict::Refused(outcome), outcome, position: None, end: 0, bytes: &[] }
    }

    pub(super) fn carried_out(kind: Kind, end: u64) -> Judged<'a> {
        let verdict = Verdict::CarriedOut(kind);
        Judged { verdict, outcome: Outcome::Applied, position: None, end, bytes: &[] }
    }

    pub(super) fn repeated(end: u64) -> Judged<'a> {
        Judged { verdict: Verdict::Duplicate, outcome: Outcome::Applied, position: None, end, bytes: &[] }
    }

    fn kept(verdict: Verdict, kept: &'a Kept) -> Judged<'a> {
        Judged { verdict, outcome: kept.outcome, position: Some(kept.position), end: 0, bytes: &kept.bytes }
    }
}

/// A group's state of a session.
///
/// - `end` never decreases, and is never below a time at which a copy of the `Open` or `Widen` that made the entry may
///   still take effect.
/// - Every request of the current generation that was applied at or after `since` is in `current`, or below its `low`.
/// - `earlier` begins with the generation in which the entry was made, or with a later one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Entry {
    pub(crate) generation: u32,
    /// Random word of the `Open` or `TakeUp` that began the generation.
    pub(crate) word: u64,
    /// Number of the last `Widen`, or 0 if there was none.
    pub(crate) widening: u32,
    /// Random word of the last `Widen`, or 0 if there was none.
    pub(crate) widened: u64,
    /// Id of the client that sent the last command, `Open`, `Widen` or `TakeUp`.
    pub(crate) client: u16,
    /// Time at which the entry was made.
    pub(crate) since: u64,
    pub(crate) end: u64,
    /// The session's pairs, sorted by group.
    pub(crate) pairs: Vec<Pair>,
    /// Number of notifications to the session since their numbering began.
    pub(crate) notified: u64,
    pub(crate) current: Replies,
    pub(crate) earlier: Earlier,
}

impl Entry {
    /// Returns the entry that this `Open` or `Widen` makes.
    pub(super) fn made(at: &At<'_>, envelope: &Envelope, body: Body) -> Entry {
        let opens = envelope.kind == Kind::Open;
        Entry {
            generation: envelope.generation,
            word: if opens { envelope.request } else { body.word },
            widening: body.number,
            widened: if opens { 0 } else { envelope.request },
            client: at.client,
            since: at.time.time,
            end: end_of(at, envelope, body.ttl),
            pairs: body.pairs,
            notified: 0,
            current: Replies::new(),
            earlier: Earlier::default(),
        }
    }

    /// Returns whether the session uses this group in its present incarnation.
    pub(super) fn is_of(&self, group: GroupId, at: &At<'_>) -> bool {
        self.pairs.contains(&Pair { group, incarnation: at.incarnation })
    }

    /// Returns whether the envelope names the session's pairs for the destination groups, in a generation that began
    /// with `word`.
    pub(super) fn names_pairs(&self, word: u64, at: &At<'_>, envelope: &Envelope, mutant: Mutant) -> bool {
        mutant!(mutant, PairsUnchecked) || tag_of(word, &self.pairs, at.destinations) == Some(envelope.pairs)
    }

    /// Returns whether the message names all pairs of the session, and goes to all groups of the session.
    pub(super) fn names_all(&self, word: u64, at: &At<'_>, envelope: &Envelope) -> bool {
        at.destinations.len() == self.pairs.len() && tag_of(word, &self.pairs, at.destinations) == Some(envelope.pairs)
    }

    /// Returns the refusal of a message whose generation is not the current one.
    pub(super) fn generation_refuses(&self, generation: u32) -> Option<Outcome> {
        match generation.cmp(&self.generation) {
            std::cmp::Ordering::Less => Some(Outcome::Refused(Reason::Superseded)),
            std::cmp::Ordering::Equal => None,
            std::cmp::Ordering::Greater => Some(Outcome::Refused(Reason::GenerationAhead)),
        }
    }

    /// Judges a command, and applies it if it is new and accepted.
    pub(super) fn command(
        &mut self,
        at: &At<'_>,
        envelope: &Envelope,
        mut task: Task<'_, impl Service>,
        desk: &mut Desk<'_>,
    ) -> Judged<'_> {
        let request = envelope.request;
        if !mutant!(desk.mutant, NumberAlone)
            && let Some(outcome) = self.generation_refuses(envelope.generation)
        {
            return Judged::refused(outcome);
        }
        if !self.names_pairs(self.word, at, envelope, desk.mutant) && !mutant!(desk.mutant, NumberAlone) {
            return Judged::refused(Outcome::WrongPairs);
        }
        self.client = at.client;
        self.current.acknowledge(envelope.responded(), desk.spare);
        let known = self.current.get(request).is_some() && !mutant!(desk.mutant, AppliesDuplicates);
        if !known {
            if let Some(outcome) = self.refuses(at, envelope, desk) {
                return Judged::refused(outcome);
            }
            let kept = task.carry_out(at, envelope, desk);
            self.current.put(request, kept);
        }
        let verdict = match task {
            _ if known => Verdict::Duplicate,
            Task::Apply(..) => Verdict::Applied,
            Task::Skip => Verdict::Skipped,
        };
        // The request is kept at this point, except with a mutant that may have dropped it below the window.
        self.current.get(request).map_or(Judged::refused(Outcome::Forgotten), |kept| Judged::kept(verdict, kept))
    }

    /// Returns the refusal of a request that is not kept, if it may not be applied.
    fn refuses(&self, at: &At<'_>, envelope: &Envelope, desk: &Desk<'_>) -> Option<Outcome> {
        let end = if mutant!(desk.mutant, TableEnd) { self.end } else { envelope.end };
        if envelope.request < self.current.low() && !mutant!(desk.mutant, ForgottenIsNew) {
            return Some(Outcome::Forgotten);
        }
        if self.predates(envelope, desk) {
            return Some(Outcome::SessionNotOpen);
        }
        if at.time.time > end {
            return Some(Outcome::Refused(Reason::TooLate));
        }
        (envelope.behind >= desk.limits.window).then_some(Outcome::Refused(Reason::OutsideWindow))
    }

    /// Returns whether the end that the envelope names was acknowledged by an earlier entry of the session, which has
    /// expired. A request with that end may have been applied under the earlier entry. A renewal with that end must not
    /// count either, because this entry may not agree with the other groups that the caller uses.
    pub(super) fn predates(&self, envelope: &Envelope, desk: &Desk<'_>) -> bool {
        envelope.end < self.since && !mutant!(desk.mutant, IgnoresSince)
    }

    /// Returns the outcome of a request, or closes the request. `generation` is that of the request; a generation above
    /// the current one counts as the current one.
    pub(super) fn resolve(
        &mut self,
        at: &At<'_>,
        envelope: &Envelope,
        generation: u32,
        desk: &mut Desk<'_>,
    ) -> Judged<'_> {
        let request = envelope.request;
        let before = self.generation.saturating_sub(generation);
        let is_current = before == 0;
        let is_predated = self.predates(envelope, desk);
        let earlier = if is_current { None } else { self.earlier.get_mut(before).map(|(word, _)| *word) };
        let Some(word) = (if is_current { Some(self.word) } else { earlier }) else {
            return Judged::refused(Outcome::Forgotten);
        };
        if !self.names_pairs(word, at, envelope, desk.mutant) {
            return Judged::refused(Outcome::WrongPairs);
        }
        let earlier = if is_current { None } else { self.earlier.get_mut(before) };
        let replies = earlier.map_or(&mut self.current, |(_, replies)| replies);
        replies.acknowledge(envelope.responded(), desk.spare);
        if replies.get(request).is_none() {
            if request < replies.low() || is_predated {
                return Judged::refused(Outcome::Forgotten);
            }
            if envelope.behind >= desk.limits.window {
                return Judged::refused(Outcome::Refused(Reason::OutsideWindow));
            }
            // Requests of an earlier generation are already closed, because no copy of them is accepted any more.
            if !is_current || mutant!(desk.mutant, ClosesNothing) {
                return Judged::refused(Outcome::Closed);
            }
            let closed = Kept { outcome: Outcome::Closed, position: at.position(), bytes: Vec::new() };
            replies.put(request, closed);
            let closed = Judged::refused(Outcome::Closed);
            return Judged { verdict: Verdict::CarriedOut(Kind::Resolve), ..closed };
        }
        replies.get(request).map_or(Judged::refused(Outcome::Forgotten), |kept| Judged::kept(Verdict::Duplicate, kept))
    }

    /// Begins the next generation.
    pub(super) fn take_up(
        &mut self,
        at: &At<'_>,
        envelope: &Envelope,
        body: &Body,
        desk: &mut Desk<'_>,
    ) -> Judged<'static> {
        let is_next = self.generation.checked_add(1) == Some(envelope.generation);
        if envelope.generation == self.generation {
            let same = self.word == envelope.request && self.is_taken_up_by(at, envelope, body);
            return match same && !mutant!(desk.mutant, TakesUpTwice) {
                true => Judged::repeated(self.end),
                false if same => self.begin_generation(at, envelope, body, desk),
                false => Judged::refused(Outcome::Refused(Reason::Taken)),
            };
        }
        if !is_next && let Some(outcome) = self.generation_refuses(envelope.generation) {
            return Judged::refused(outcome);
        }
        if !self.is_taken_up_by(at, envelope, body) {
            return Judged::refused(Outcome::WrongPairs);
        }
        if let Some(outcome) = bound_refuses(at, envelope, body.ttl, desk) {
            return Judged::refused(outcome);
        }
        self.begin_generation(at, envelope, body, desk)
    }

    /// Returns whether the `TakeUp` names all pairs of the session after its last widening.
    fn is_taken_up_by(&self, at: &At<'_>, envelope: &Envelope, body: &Body) -> bool {
        self.names_all(envelope.request, at, envelope) && body.number == self.widening
    }

    fn begin_generation(
        &mut self,
        at: &At<'_>,
        envelope: &Envelope,
        body: &Body,
        desk: &mut Desk<'_>,
    ) -> Judged<'static> {
        let word = std::mem::replace(&mut self.word, envelope.request);
        // Generations are consecutive, except with the mutant that begins one twice.
        let is_next = self.generation < envelope.generation;
        self.generation = envelope.generation;
        self.client = at.client;
        if !mutant!(desk.mutant, NumbersGoOn) {
            self.notified = 0;
        }
        self.end = self.end.max(end_of(at, envelope, body.ttl));
        if !mutant!(desk.mutant, NumberAlone) {
            let before = std::mem::replace(&mut self.current, Replies::new());
            if mutant!(desk.mutant, ForgetsOnTakeUp) {
                self.earlier = Earlier::default();
            } else if is_next {
                self.earlier.push(word, before, desk.limits.window, desk.spare);
            }
        }
        Judged::carried_out(Kind::TakeUp, self.end)
    }

    /// Replaces the pairs. Replies under a replaced pair are kept, but no caller can ask for them, because their tag is
    /// no longer valid.
    pub(super) fn widen(
        &mut self,
        (group, at): (GroupId, &At<'_>),
        envelope: &Envelope,
        body: Body,
        desk: &Desk<'_>,
    ) -> Judged<'static> {
        if let Some(outcome) = self.generation_refuses(envelope.generation) {
            return Judged::refused(outcome);
        }
        if body.word != self.word {
            return Judged::refused(Outcome::Refused(Reason::Taken));
        }
        if body.number == self.widening && self.widened == envelope.request && body.pairs == self.pairs {
            return Judged::repeated(self.end);
        }
        if body.number <= self.widening {
            return Judged::refused(Outcome::Refused(Reason::Taken));
        }
        let keeps = |old: &Pair| body.pairs.iter().any(|new| new.group == old.group);
        if !self.pairs.iter().all(keeps) {
            return Judged::refused(Outcome::WrongPairs);
        }
        if let Some(outcome) = bound_refuses(at, envelope, body.ttl, desk) {
            return Judged::refused(outcome);
        }
        (self.widening, self.widened, self.client) = (body.number, envelope.request, at.client);
        self.end = self.end.max(end_of(at, envelope, body.ttl));
        let here = Pair { group, incarnation: at.incarnation };
        if !self.pairs.contains(&here) {
            // The caller counts the notifications of each incarnation separately.
            self.notified = 0;
        }
        self.pairs = body.pairs;
        Judged::carried_out(Kind::Widen, self.end)
    }
}

/// Returns the refusal of a command that makes, widens or takes up a session, if its time or time to live is out of
/// bounds.
pub(super) fn bound_refuses(at: &At<'_>, envelope: &Envelope, ttl: u64, desk: &Desk<'_>) -> Option<Outcome> {
    let time = at.time.time;
    if time > envelope.end && !mutant!(desk.mutant, OpensLate) {
        return Some(Outcome::Refused(Reason::TooLate));
    }
    let is_far = envelope.end > time.saturating_add(desk.limits.ttl);
    (ttl == 0 || ttl > desk.limits.ttl || is_far).then_some(Outcome::Refused(Reason::TimeToLive))
}

/// Returns the end of the session that a command sets when it makes, widens or takes up the session. The end is not
/// before the last time at which a copy of the command may take effect, so no copy opens an expired session again.
fn end_of(at: &At<'_>, envelope: &Envelope, ttl: u64) -> u64 {
    at.time.time.saturating_add(ttl).max(envelope.end)
}

/// Action for an accepted command.
pub(super) enum Task<'a, S> {
    /// Apply the command, which has these bytes.
    Apply(&'a [u8], &'a mut S),
    /// Skip the command, as an operator requested.
    Skip,
}

impl<S: Service> Task<'_, S> {
    fn carry_out(&mut self, at: &At<'_>, envelope: &Envelope, desk: &mut Desk<'_>) -> Kept {
        let position = at.position();
        let Task::Apply(command, service) = self else {
            return Kept { outcome: Outcome::Skipped, position, bytes: Vec::new() };
        };
        let mut bytes = desk.spare.pop().unwrap_or_default();
        let mut reply = Reply::new(&mut bytes, desk.limits.reply_bytes as usize);
        let (session, generation, request) = (envelope.session, envelope.generation, envelope.request);
        let is_query = envelope.kind == Kind::Query && !mutant!(desk.mutant, AppliesQueries);
        service.apply(Call { session, generation, request, is_query, command }, &mut reply);
        let outcome = if reply.overflows() { Outcome::Overflow } else { Outcome::Applied };
        Kept { outcome, position, bytes }
    }
}
