//! Effects on a stream of the removal of a member or of its sender (mode `all`).

use stentor_fabric::ProcessId;

use super::{Outcome, Replay};
use crate::value::{Value, content};
use crate::{Cut, Holding, mutant};

impl Replay {
    /// Freezes the stream of a sender that can write no more and whose writes have all been accepted. No index has an
    /// outcome until the end is [decided](Replay::decide). Returns the values that this process has of the stream.
    pub fn freeze(&mut self) -> Holding {
        let kept = self.next.saturating_sub(u64::from(self.config.window));
        let values = (kept..self.next).filter(|index| self.has_register(*index) && !self.entry(*index).lost);
        let values = values.map(|index| (index, self.entry(index).value.clone())).collect();
        let holding = Holding::Frozen { sender: self.sender, head: self.head, ended: self.ended, values };
        if self.config.mutant.freezes() {
            self.ended = Some(self.head);
            self.round = None;
        }
        holding
    }

    /// Checks that a decision about this stream can be accepted.
    ///
    /// # Errors
    /// Returns the first index at which the decision differs from what this process delivered.
    pub fn may_decide(&self, cut: &Cut) -> Result<(), u64> {
        if cut.upto < self.head {
            return Err(cut.upto);
        }
        let delivered = cut.values.iter().filter(|(index, _)| *index < self.head && self.has_register(*index));
        let mut delivered = delivered.filter(|(index, _)| !self.entry(*index).lost);
        let same = |index: u64, words: &[u64]| {
            content(&self.entry(index).value, self.config.signed) == content(words, self.config.signed)
        };
        delivered.find(|(index, words)| !same(*index, words)).map_or(Ok(()), |(index, _)| Err(*index))
    }

    /// Applies the decision about the end of a removed sender's stream.
    pub fn decide(&mut self, cut: &Cut) {
        if !self.config.mutant.freezes() {
            return;
        }
        let own = mutant!(self.config.mutant, RemovalOwnCut);
        let upto = if own { self.head } else { cut.upto };
        self.ended = Some(self.head);
        self.fate = Some(Box::new(Cut { upto, ..cut.clone() }));
    }

    /// Returns the outcome of an index that was decided.
    #[cold]
    pub(super) fn fated(&self) -> Option<Outcome<'_>> {
        let fate = self.fate.as_ref().filter(|fate| self.head < fate.upto)?;
        let value = fate.values.binary_search_by_key(&self.head, |(index, _)| *index);
        Some(match value {
            Ok(place) => Outcome::Deliver(Value::trusted(&fate.values[place].1, self.config.signed)),
            Err(_) => Outcome::Skip(self.head),
        })
    }

    /// Returns the end of a removed sender's stream, once every index below it has an outcome here.
    #[must_use]
    pub fn is_over(&self) -> Option<u64> {
        if !self.config.mutant.freezes() {
            return Some(self.head);
        }
        self.fate.as_ref().map(|fate| fate.upto).filter(|upto| self.head >= *upto)
    }

    /// Removes a member after an agreed and fenced view change, so that it need not answer any more. Conflicts that it
    /// showed remain (I3).
    pub fn remove_member(&mut self, member: ProcessId) {
        self.members.remove(member);
        self.settle_round();
    }
}
