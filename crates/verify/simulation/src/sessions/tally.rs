//! The service of drawn runs: a digest, a count, and the open sessions.

use std::collections::BTreeMap;

use stentor_fabric::SplitMix64;
use stentor_session::SessionId;

use super::machine::{Machine, Place};

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
}

impl Tally {
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

    /// Reads a state that [`write`](Machine::write) wrote. Returns `None` if it is cut off.
    fn read(bytes: &[u8]) -> Option<Tally> {
        let (head, rest) = bytes.split_at_checked(16)?;
        let word = |bytes: &[u8]| bytes.first_chunk().map(|word| u64::from_le_bytes(*word));
        let mut sessions = BTreeMap::new();
        for entry in rest.chunks(24) {
            let id = u128::from_le_bytes(*entry.first_chunk()?);
            sessions.insert(SessionId(id), word(entry.get(16..)?)?);
        }
        Some(Tally { digest: word(head)?, count: word(&head[8..])?, sessions, notes: Vec::new() })
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
        *reply = Tally::apply(self, session, at.token);
        self.notify(session, at.token);
    }

    fn query(&mut self, at: &Place<'_>, _: &[u8], reply: &mut Vec<u8>) {
        *reply = self.answer(at.token);
        // A read outside the order has no token, and its reply contains only the state.
        if at.token == 0 {
            reply.truncate(16);
        }
    }

    /// Removes the session, and notifies the first remaining one.
    fn session_ended(&mut self, at: &Place<'_>, session: SessionId) {
        self.sessions.remove(&session);
        if let Some((first, _)) = self.sessions.first_key_value() {
            self.notes.push((*first, at.number.to_le_bytes().to_vec()));
        }
    }

    fn take_notes(&mut self, each: &mut dyn FnMut(SessionId, &[u8])) {
        self.notes.drain(..).for_each(|(session, bytes)| each(session, &bytes));
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.digest.to_le_bytes());
        out.extend(self.count.to_le_bytes());
        for (session, count) in &self.sessions {
            out.extend(session.0.to_le_bytes());
            out.extend(count.to_le_bytes());
        }
    }

    fn restore(&mut self, state: &[u8]) -> bool {
        Tally::read(state).is_some_and(|read| {
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
        let mut tally = Tally::default();
        for token in 1..20 {
            Tally::apply(&mut tally, SessionId(u128::from(token) % 3), token);
        }
        let mut bytes = Vec::new();
        tally.write(&mut bytes);
        assert_eq!(Tally::read(&bytes), Some(tally));
        assert_eq!(Tally::read(&bytes[..bytes.len() - 1]), None);
    }
}
