//! The service of drawn runs: a digest, a count, the open sessions, and in some runs timers.

use std::collections::BTreeMap;

use stentor_fabric::SplitMix64;
use stentor_session::{self as session, SessionId, Timers};

use super::machine::{Machine, Place, TimeEvent};

/// Number of timers that commands set. Timers set further ones, with larger ids.
const TIMERS: u64 = 6;
/// Id of the timer that the end of a session sets.
const END: u64 = 2 * TIMERS;
/// Longest time until a timer that a command sets fires, in nanoseconds.
const LONGEST_NS: u64 = 120_000;

/// Returns whether the token is that of a query.
pub(super) fn is_query(token: u64) -> bool {
    token % 5 == 4
}

/// The replicated state of the service.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    digest: u64,
    count: u64,
    /// Number of applied commands of each open session.
    sessions: BTreeMap<SessionId, u64>,
    /// Notifications that were not fetched yet.
    notes: Vec<(SessionId, Vec<u8>)>,
    /// The timers, if this run has any.
    timers: Option<Alarm>,
    /// Events that were not fetched yet.
    events: Vec<TimeEvent>,
}

/// The timers of a tally.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
struct Alarm {
    timers: Timers,
    /// Digest of the timers that have fired, and of the times at which they did. Replies do not contain it.
    fired: u64,
    /// `true` if timers are due at the present position.
    is_due: bool,
}

impl Tally {
    /// Creates the initial state, with timers that have this mutant, or without timers.
    pub(super) fn new(timers: Option<session::Mutant>) -> Tally {
        let timers = timers.map(|mutant| Alarm { timers: Timers::default().with_mutant(mutant), ..Alarm::default() });
        Tally { timers, ..Tally::default() }
    }

    fn set(&mut self, time: u64, timer: u64) {
        if let Some(Alarm { timers, .. }) = &mut self.timers {
            timers.set(time, timer);
            self.events.push(TimeEvent::Set(time, timer));
        }
    }

    fn clear(&mut self, timer: u64) {
        if let Some(Alarm { timers, .. }) = &mut self.timers {
            timers.clear(timer);
            self.events.push(TimeEvent::Cleared(timer));
        }
    }

    /// Sets, moves and clears timers, as the token of a command determines. Often a timer with a larger id fires before
    /// one with a smaller id, and some are set for a time that has passed.
    fn set_timers(&mut self, time: u64, token: u64) {
        let word = SplitMix64::finish(token);
        let (timer, later) = (word % TIMERS, time + (word >> 8) % LONGEST_NS);
        match word >> 40 & 7 {
            0 => self.clear(timer),
            1 => self.set(time - 1, timer),
            2 => self.set(later, timer),
            3 => (0..TIMERS).for_each(|timer| self.set(later, timer)),
            _ => (0..TIMERS).for_each(|timer| self.set(later + TIMERS - timer, timer)),
        }
    }

    /// Fires a timer: notifies the first session, and sets another timer for the present time once.
    fn fire(&mut self, at: &Place<'_>, timer: u64) {
        self.events.push(TimeEvent::Fired(timer));
        let time = at.timestamp.time;
        if let Some(Alarm { fired, .. }) = &mut self.timers {
            *fired = SplitMix64::finish(fired.rotate_left(9) ^ SplitMix64::mix(timer) ^ time);
        }
        if let Some((first, _)) = self.sessions.first_key_value() {
            self.notes.push((*first, timer.to_le_bytes().to_vec()));
        }
        if timer < TIMERS && timer.is_multiple_of(2) {
            self.set(time, timer + TIMERS);
        }
    }

    /// Applies a command. Returns its reply: digest and count, and for some commands more bytes than a table keeps.
    fn apply(&mut self, session: SessionId, token: u64) -> Vec<u8> {
        self.count += 1;
        self.digest = SplitMix64::finish(self.digest.rotate_left(9) ^ token);
        *self.sessions.entry(session).or_default() += 1;
        self.answer(token)
    }

    /// Returns the reply to a query, or to a command that was applied.
    fn answer(&self, token: u64) -> Vec<u8> {
        let mut reply = self.digest.to_le_bytes().to_vec();
        reply.extend(self.count.to_le_bytes());
        reply.resize(if token.is_multiple_of(8) { 64 } else { 16 + token as usize % 24 }, token as u8);
        reply
    }

    /// Reads a state that [`write`](Machine::write) wrote. `timers` is the mutant of the timers, if there are any. Returns
    /// `None` if the state is cut off.
    fn read(bytes: &[u8], timers: Option<session::Mutant>) -> Option<Tally> {
        let (timers, bytes) = match timers {
            Some(mutant) => {
                let (timers, rest) = Timers::read(bytes).ok()?;
                let (fired, rest) = rest.split_first_chunk()?;
                let timers = timers.with_mutant(mutant);
                (Some(Alarm { timers, fired: u64::from_le_bytes(*fired), is_due: false }), rest)
            }
            None => (None, bytes),
        };
        let (head, rest) = bytes.split_at_checked(16)?;
        let word = |bytes: &[u8]| bytes.first_chunk().map(|word| u64::from_le_bytes(*word));
        let mut sessions = BTreeMap::new();
        for entry in rest.chunks(24) {
            let id = u128::from_le_bytes(*entry.first_chunk()?);
            sessions.insert(SessionId(id), word(entry.get(16..)?)?);
        }
        let (digest, count) = (word(head)?, word(&head[8..])?);
        Some(Tally { digest, count, sessions, timers, ..Tally::default() })
    }

    /// Notifies sessions of the state: for some commands all sessions, for some the session of the command. Some
    /// notifications have more bytes than a table keeps.
    fn notify(&mut self, session: SessionId, token: u64) {
        let mut note = self.answer(0);
        note.resize(if token.is_multiple_of(9) { 64 } else { 24 }, token as u8);
        if token % 5 == 2 {
            self.notes.extend(self.sessions.keys().map(|session| (*session, note.clone())));
        }
        if token.is_multiple_of(3) {
            self.notes.push((session, note));
        }
    }
}

/// Returns digest and count in a complete reply.
pub(super) fn state_in(reply: &[u8]) -> [u64; 2] {
    [0, 8].map(|at| reply.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word)))
}

impl Machine for Tally {
    fn apply(&mut self, at: &Place<'_>, _: &[u8], reply: &mut Vec<u8>) {
        let session = at.session.unwrap_or_default();
        self.events.push(TimeEvent::Applied);
        *reply = Tally::apply(self, session, at.token);
        self.notify(session, at.token);
        self.set_timers(at.timestamp.time, at.token);
    }

    fn query(&mut self, at: &Place<'_>, _: &[u8], reply: &mut Vec<u8>) {
        *reply = self.answer(at.token);
        // A read outside the order has no token, and its reply contains only the state.
        if at.token == 0 {
            reply.truncate(16);
        } else {
            self.events.push(TimeEvent::Applied);
        }
    }

    /// Removes the session, notifies the first remaining one, and sets a timer for the present time.
    fn session_ended(&mut self, at: &Place<'_>, session: SessionId) {
        self.events.push(TimeEvent::Ended(session));
        self.set(at.timestamp.time, END);
        self.sessions.remove(&session);
        if let Some((first, _)) = self.sessions.first_key_value() {
            self.notes.push((*first, at.number.to_le_bytes().to_vec()));
        }
    }

    fn begin(&mut self, at: &Place<'_>) {
        if let Some(Alarm { timers, is_due, .. }) = &mut self.timers {
            *is_due = timers.begin(at.timestamp.time);
        }
    }

    fn fire_timers(&mut self, at: &Place<'_>) {
        while let Some(timer) = self.timers.as_mut().filter(|alarm| alarm.is_due).and_then(|alarm| alarm.timers.fire())
        {
            self.fire(at, timer);
        }
    }

    fn next_timer(&mut self) -> Option<u64> {
        self.timers.as_ref()?.timers.earliest()
    }

    fn take_events(&mut self, each: &mut dyn FnMut(TimeEvent)) {
        self.events.drain(..).for_each(each);
    }

    fn take_notes(&mut self, each: &mut dyn FnMut(SessionId, &[u8])) {
        self.notes.drain(..).for_each(|(session, bytes)| each(session, &bytes));
    }

    fn write(&self, out: &mut Vec<u8>) {
        if let Some(Alarm { timers, fired, .. }) = &self.timers {
            timers.write(out);
            out.extend(fired.to_le_bytes());
        }
        out.extend(self.digest.to_le_bytes());
        out.extend(self.count.to_le_bytes());
        for (session, count) in &self.sessions {
            out.extend(session.0.to_le_bytes());
            out.extend(count.to_le_bytes());
        }
    }

    fn restore(&mut self, state: &[u8]) -> bool {
        let timers = self.timers.as_ref().map(|alarm| alarm.timers.mutant());
        Tally::read(state, timers).is_some_and(|read| {
            *self = read;
            true
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_returns_the_state_of_the_last_command() {
        let mut tally = Tally::default();
        let reply = Tally::apply(&mut tally, SessionId(1), 7);
        let before = tally.clone();
        assert_eq!((tally.answer(9)[..16].to_vec(), &tally), (reply[..16].to_vec(), &before));
    }

    #[test]
    fn a_written_tally_is_read_back() {
        for timers in [None, Some(session::Mutant::None)] {
            let mut tally = Tally::new(timers);
            for token in 1..20 {
                Tally::apply(&mut tally, SessionId(u128::from(token) % 3), token);
                tally.set_timers(1000 * token, token);
            }
            tally.events.clear();
            let mut bytes = Vec::new();
            tally.write(&mut bytes);
            assert_eq!(tally.next_timer().is_some(), timers.is_some());
            assert_eq!(Tally::read(&bytes, timers), Some(tally));
            assert_eq!(Tally::read(&bytes[..bytes.len() - 1], timers), None);
        }
    }
}
