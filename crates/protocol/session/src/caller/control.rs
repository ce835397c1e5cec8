//! A pending command of the session itself: `Open`, `Widen`, `TakeUp` or `End`.

use stentor_multicast::GroupId;

use super::ticket::message;
use crate::body::parse_version;
use crate::ids::pairs_tag;
use crate::mutant::mutant;
use crate::{Body, Envelope, Kind, Mutant, Outcome, Pair, ReplyRecord};

/// Answer of a group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Word {
    pub(super) outcome: Outcome,
    pub(super) end: u64,
    /// Time in the group's order at which the group's session table accepted or refused the command.
    pub(super) time: u64,
    /// Time since which the session is open at the group, or 0 if the session is not open or the answer does not
    /// contain the time.
    pub(super) since: u64,
    pub(super) generation: u32,
}

/// A command and the answers to it. All copies of it are the same bytes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Control {
    pub(super) kind: Kind,
    word: u64,
    pub(super) generation: u32,
    /// The session's pairs after the command has taken effect.
    pub(super) pairs: Vec<Pair>,
    pub(super) number: u32,
    pub(super) groups: Vec<GroupId>,
    pub(super) payload: Vec<u8>,
    pub(super) answers: Vec<Option<Word>>,
    /// Largest number of a widening that a group has reported, and the session's pairs after that widening.
    pub(super) version: Option<(u32, Vec<Pair>)>,
}

impl Control {
    /// Writes the command of a generation that began, or begins, with `word`.
    pub(super) fn new(envelope: Envelope, word: u64, ttl: u64, number: u32, pairs: Vec<Pair>) -> Control {
        let names = matches!(envelope.kind, Kind::Open | Kind::Widen);
        let carried = if envelope.kind == Kind::Widen { word } else { 0 };
        let body = Body { ttl, word: carried, number, pairs: if names { pairs.clone() } else { Vec::new() } };
        let envelope = Envelope { pairs: pairs_tag(word, pairs.iter().copied()), ..envelope };
        let mut payload = Vec::new();
        message(&envelope, &body, &mut payload);
        Control {
            kind: envelope.kind,
            word: envelope.request,
            generation: envelope.generation,
            groups: pairs.iter().map(|pair| pair.group).collect(),
            answers: vec![None; pairs.len()],
            pairs,
            number,
            payload,
            version: None,
        }
    }

    /// Processes a group's answer to one copy of the command. Returns whether all groups have answered the same copy.
    ///
    /// Answers to different copies must not be combined, because one group may have entered another generation between
    /// two copies. `known` is the time since which the session is open in the group, as far as the caller knows, or 0
    /// if the caller does not use the group.
    pub(super) fn take(&mut self, group: GroupId, record: &ReplyRecord<'_>, known: u64, mutant: Mutant) -> bool {
        let is_ours = record.answers == self.kind && record.request == self.word && record.outcome != Outcome::Halted;
        let index = self.groups.iter().position(|to| *to == group).filter(|_| is_ours);
        let Some(index) = index else { return false };
        let same = record.position.incarnation == self.pairs[index].incarnation;
        let since = <[u8; 8]>::try_from(record.bytes).ok().filter(|_| record.outcome == Outcome::Applied);
        let since = since.map_or(0, u64::from_le_bytes);
        let outcome = match record.outcome {
            // A new session belongs to no history of the group, so the caller only named the wrong incarnation.
            _ if !same && self.kind == Kind::Open => Outcome::WrongPairs,
            // Another history of the group does not know this session, whatever the answer contains.
            _ if !same => Outcome::SessionNotOpen,
            // The session had expired, and the widening has opened it again, so the replies that were kept for it are
            // lost.
            _ if self.kind == Kind::Widen && known != 0 && since > known && !mutant!(mutant, OpensAnew) => {
                Outcome::SessionNotOpen
            }
            outcome => outcome,
        };
        if outcome == Outcome::WrongPairs
            && let Some(version) = parse_version(record.bytes)
            && self.version.as_ref().is_none_or(|known| known.0 < version.0)
        {
            self.version = Some(version);
        }
        let time = record.position.timestamp.time;
        if self.answers[index].is_some_and(|word| word.time >= time) {
            return false;
        }
        self.answers[index] = Some(Word { outcome, end: record.end, time, since, generation: record.generation });
        self.answers
            .iter()
            .all(|answer| answer.is_some_and(|word| word.time == time || mutant!(mutant, CopiesTogether)))
    }

    /// Returns the first group that refused, by ascending group.
    pub(super) fn refusal(&self) -> Option<(GroupId, Outcome)> {
        let words = self.groups.iter().zip(self.answers.iter().flatten());
        words.map(|(group, word)| (*group, word.outcome)).find(|(_, outcome)| *outcome != Outcome::Applied)
    }

    /// Returns the first group that knows the session and refused.
    pub(super) fn denial(&self) -> Option<(GroupId, Outcome)> {
        let words = self.groups.iter().zip(self.answers.iter().flatten());
        let mut outcomes = words.map(|(group, word)| (*group, word.outcome));
        outcomes.find(|(_, outcome)| !matches!(outcome, Outcome::Applied | Outcome::SessionNotOpen))
    }

    /// Returns whether at least one group accepted the command.
    pub(super) fn is_agreed_somewhere(&self) -> bool {
        self.answers.iter().flatten().any(|word| word.outcome == Outcome::Applied)
    }
}
