//! Sends changes to the owner. The stream keeps the rules of elections, whatever the ensemble contains.

use std::sync::mpsc::Sender;

use stentor_election::Change;
use stentor_fabric::ProcessId;

/// The sender of election changes, with the state of the stream so far.
#[derive(Debug)]
pub(crate) struct Teller {
    me: ProcessId,
    changes: Sender<Change>,
    last: Option<Change>,
    /// Largest ballot (epoch, leader) that was sent to the owner.
    told: Option<(u64, ProcessId)>,
    /// Largest ballot (epoch, process) that the multicast protocol has seen.
    met: Option<(u64, ProcessId)>,
}

impl Teller {
    pub(crate) fn new(me: ProcessId, changes: Sender<Change>) -> Self {
        Teller { me, changes, last: None, told: None, met: None }
    }

    /// Returns the epoch under which this process leads, if it does.
    pub(crate) fn leading(&self) -> Option<u64> {
        match self.last {
            Some(Change::Leader { epoch, process }) if process == self.me => Some(epoch),
            _ => None,
        }
    }

    /// Returns the largest epoch that was sent to the owner.
    pub(crate) fn told(&self) -> u64 {
        self.told.map_or(0, |(epoch, _)| epoch)
    }

    /// Returns the largest epoch that was sent to the owner or that the protocol has seen.
    pub(crate) fn known(&self) -> u64 {
        self.told.max(self.met).map_or(0, |(epoch, _)| epoch)
    }

    /// Records a ballot that the multicast protocol has seen.
    pub(crate) fn witness(&mut self, epoch: u64, process: ProcessId) {
        self.met = self.met.max(Some((epoch, process)));
    }

    /// Returns whether this process leads under a smaller ballot than one that the protocol has seen.
    pub(crate) fn outdone(&self) -> bool {
        self.leading().is_some_and(|epoch| Some((epoch, self.me)) < self.met)
    }

    /// Returns whether this leader may be sent to the owner: its ballot must not be smaller than an earlier leader's.
    pub(crate) fn acceptable(&self, epoch: u64, process: ProcessId) -> bool {
        Some((epoch, process)) >= self.told
    }

    pub(crate) fn leader(&mut self, epoch: u64, process: ProcessId) {
        let change = Change::Leader { epoch, process };
        if self.last == Some(change) {
            return;
        }
        if process != self.me {
            self.resign();
        }
        self.told = self.told.max(Some((epoch, process)));
        self.tell(change);
    }

    pub(crate) fn pending(&mut self) {
        self.resign();
        if self.last != Some(Change::Pending) {
            self.tell(Change::Pending);
        }
    }

    fn resign(&mut self) {
        if let Some(epoch) = self.leading() {
            self.tell(Change::Resigned { epoch });
        }
    }

    fn tell(&mut self, change: Change) {
        self.last = Some(change);
        // The receiver no longer exists while the election is being dropped.
        let _ = self.changes.send(change);
    }
}

#[cfg(test)]
mod tests {
    use stentor_election::Audit;

    use super::*;

    #[test]
    fn stream_keeps_its_rules() {
        let me = ProcessId(1);
        let (sender, changes) = std::sync::mpsc::channel();
        let mut teller = Teller::new(me, sender);
        teller.pending();
        teller.pending();
        teller.leader(1, ProcessId(0));
        teller.leader(1, ProcessId(0));
        teller.leader(2, me);
        teller.witness(5, ProcessId(2));
        assert!(teller.outdone() && teller.acceptable(4, me) && !teller.acceptable(2, ProcessId(0)));
        assert_eq!((teller.told(), teller.known()), (2, 5));
        teller.leader(6, me);
        assert!(!teller.outdone());
        teller.pending();
        teller.leader(7, ProcessId(2));
        teller.pending();
        teller.leader(7, ProcessId(2));
        let mut audit = Audit::new(me);
        let stream: Vec<_> = changes.try_iter().collect();
        stream.iter().for_each(|change| audit.check(*change).unwrap());
        assert_eq!(stream.len(), 9, "{stream:?}");
    }
}
