//! Tells changes so that the stream keeps its rules whatever the ensemble says.

use std::sync::mpsc::Sender;

use stentor_election::Change;
use stentor_fabric::ProcessId;

/// What was told so far.
#[derive(Debug)]
pub(crate) struct Teller {
    me: ProcessId,
    changes: Sender<Change>,
    last: Option<Change>,
    /// The largest pair told.
    told: Option<(u64, ProcessId)>,
    /// The largest pair met elsewhere.
    met: Option<(u64, ProcessId)>,
}

impl Teller {
    pub(crate) fn new(me: ProcessId, changes: Sender<Change>) -> Self {
        Teller { me, changes, last: None, told: None, met: None }
    }

    /// The epoch under which this process leads.
    pub(crate) fn leading(&self) -> Option<u64> {
        match self.last {
            Some(Change::Leader { epoch, process }) if process == self.me => Some(epoch),
            _ => None,
        }
    }

    /// The largest epoch told.
    pub(crate) fn told(&self) -> u64 {
        self.told.map_or(0, |(epoch, _)| epoch)
    }

    /// The largest epoch told or met.
    pub(crate) fn known(&self) -> u64 {
        self.told.max(self.met).map_or(0, |(epoch, _)| epoch)
    }

    /// A ballot met elsewhere.
    pub(crate) fn witness(&mut self, epoch: u64, process: ProcessId) {
        self.met = self.met.max(Some((epoch, process)));
    }

    /// Whether this process leads under a smaller ballot than it has met.
    pub(crate) fn outdone(&self) -> bool {
        self.leading().is_some_and(|epoch| Some((epoch, self.me)) < self.met)
    }

    /// Whether such a reign can be told: it must not be below what was.
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
        // Nobody listens when the election is being dropped.
        let _ = self.changes.send(change);
    }
}

#[cfg(test)]
mod tests {
    use stentor_election::Audit;

    use super::*;

    #[test]
    fn the_stream_keeps_its_rules() {
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
