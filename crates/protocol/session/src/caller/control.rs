//! One of the session's own commands under way: `Open`, `Widen`, `TakeUp` or `End`.

use stentor_multicast::GroupId;

use super::ticket::message;
use crate::ids::pairs_tag;
use crate::{Body, Envelope, Kind, Outcome, Pair, ReplyRecord};

/// What a group has answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Word {
    pub(super) outcome: Outcome,
    pub(super) end: u64,
    /// When that was judged.
    pub(super) time: u64,
    pub(super) generation: u32,
}

/// A command and the answers to it. All copies of it are the same bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Control {
    pub(super) kind: Kind,
    word: u64,
    pub(super) generation: u32,
    /// The session's pairs when it has taken effect.
    pub(super) pairs: Vec<Pair>,
    pub(super) number: u32,
    pub(super) groups: Vec<GroupId>,
    pub(super) payload: Vec<u8>,
    pub(super) answers: Vec<Option<Word>>,
}

impl Control {
    /// Writes the command.
    pub(super) fn new(envelope: Envelope, ttl: u64, number: u32, pairs: Vec<Pair>) -> Control {
        let names = matches!(envelope.kind, Kind::Open | Kind::Widen);
        let body = Body { ttl, number, pairs: if names { pairs.clone() } else { Vec::new() } };
        let envelope = Envelope { pairs: pairs_tag(pairs.iter().copied()), ..envelope };
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
        }
    }

    /// Takes a group's first answer. Returns whether it was the last one that was missing.
    pub(super) fn take(&mut self, group: GroupId, record: &ReplyRecord<'_>) -> bool {
        let is_ours = record.answers == self.kind && record.request == self.word && record.outcome != Outcome::Halted;
        let index = self.groups.iter().position(|to| *to == group).filter(|_| is_ours);
        let Some(index) = index.filter(|index| self.answers[*index].is_none()) else { return false };
        let same = record.position.incarnation == self.pairs[index].incarnation;
        let outcome = match record.outcome {
            // Another history of the group agreed to something else.
            Outcome::Applied if !same => Outcome::WrongPairs,
            outcome => outcome,
        };
        let time = record.position.timestamp.time;
        self.answers[index] = Some(Word { outcome, end: record.end, time, generation: record.generation });
        self.answers.iter().all(Option::is_some)
    }

    /// The group that refused first, by rising group.
    pub(super) fn refusal(&self) -> Option<(GroupId, Outcome)> {
        let words = self.groups.iter().zip(self.answers.iter().flatten());
        words.map(|(group, word)| (*group, word.outcome)).find(|(_, outcome)| *outcome != Outcome::Applied)
    }

    /// Whether a group agreed.
    pub(super) fn is_agreed_somewhere(&self) -> bool {
        self.answers.iter().flatten().any(|word| word.outcome == Outcome::Applied)
    }
}
