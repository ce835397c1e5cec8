//! The service that members replicate: a digest and a count, and who is there.

use std::collections::BTreeMap;

use stentor_fabric::SplitMix64;
use stentor_multicast::GroupId;
use stentor_session::{Call, Reply, Service, SessionId};

/// Bytes of a command before its padding: its token.
pub(super) const COMMAND_BYTES: usize = 8;

/// Whether a token is that of a query, which changes nothing.
pub(super) fn is_query(token: u64) -> bool {
    token % 5 == 4
}

/// The replicated state.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Tally {
    digest: u64,
    count: u64,
    /// Commands of each session that lives.
    sessions: BTreeMap<SessionId, u64>,
}

impl Tally {
    /// Applies a command. Returns its reply: digest and count, and for some commands more bytes than a table keeps.
    fn apply(&mut self, session: SessionId, token: u64) -> Vec<u8> {
        self.count += 1;
        self.digest = SplitMix64::finish(self.digest.rotate_left(9) ^ token);
        *self.sessions.entry(session).or_default() += 1;
        self.answer(token)
    }

    /// Answers a query, or a command that was applied.
    fn answer(&self, token: u64) -> Vec<u8> {
        let mut reply = self.digest.to_le_bytes().to_vec();
        reply.extend(self.count.to_le_bytes());
        reply.resize(if token.is_multiple_of(8) { 64 } else { 16 + token as usize % 24 }, token as u8);
        reply
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        out.extend(self.digest.to_le_bytes());
        out.extend(self.count.to_le_bytes());
        for (session, count) in &self.sessions {
            out.extend(session.0.to_le_bytes());
            out.extend(count.to_le_bytes());
        }
    }

    /// Reads what [`write`](Tally::write) wrote; `None` if it is cut off.
    pub(super) fn read(bytes: &[u8]) -> Option<Tally> {
        let (head, rest) = bytes.split_at_checked(16)?;
        let word = |bytes: &[u8]| bytes.first_chunk().map(|word| u64::from_le_bytes(*word));
        let mut sessions = BTreeMap::new();
        for entry in rest.chunks(24) {
            let id = u128::from_le_bytes(*entry.first_chunk()?);
            sessions.insert(SessionId(id), word(entry.get(16..)?)?);
        }
        Some(Tally { digest: word(head)?, count: word(&head[8..])?, sessions })
    }
}

/// Digest and count in a whole reply.
pub(super) fn state_in(reply: &[u8]) -> [u64; 2] {
    [0, 8].map(|at| reply.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u64::from_le_bytes(*word)))
}

/// What was done in one delivery, for the judge.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Token and whole reply of a command that was applied, or of a query.
    pub(super) applied: Option<(u64, Vec<u8>)>,
    pub(super) ended: Vec<SessionId>,
}

/// The service during one delivery.
pub(super) struct Served<'a> {
    pub(super) tally: &'a mut Tally,
    pub(super) done: &'a mut Done,
}

impl Service for Served<'_> {
    fn apply(&mut self, call: Call<'_>, reply: &mut Reply<'_>) {
        let token = call.command.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        let bytes = if call.is_query { self.tally.answer(token) } else { self.tally.apply(call.session, token) };
        reply.extend(&bytes);
        self.done.applied = Some((token, bytes));
    }

    fn ended(&mut self, session: SessionId) {
        self.tally.sessions.remove(&session);
        self.done.ended.push(session);
    }
}

/// A place in one group's order.
pub(super) type Place = (GroupId, u64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_answered_what_the_last_command_left() {
        let mut tally = Tally::default();
        let reply = tally.apply(SessionId(1), 7);
        let before = tally.clone();
        assert_eq!((tally.answer(9)[..16].to_vec(), &tally), (reply[..16].to_vec(), &before));
    }

    #[test]
    fn a_tally_is_read_as_it_was_written() {
        let mut tally = Tally::default();
        for token in 1..20 {
            tally.apply(SessionId(u128::from(token) % 3), token);
        }
        let mut bytes = Vec::new();
        tally.write(&mut bytes);
        assert_eq!(Tally::read(&bytes), Some(tally));
        assert_eq!(Tally::read(&bytes[..bytes.len() - 1]), None);
    }
}
