//! An election that reports whatever the nemesis wants, and obeys only the rules of its stream of changes.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use stentor_election::{Change, Election, HandOverError};
use stentor_fabric::ProcessId;

/// The changes that one process will receive, with their times in nanoseconds.
#[derive(Clone, Debug, Default)]
struct Inbox {
    script: VecDeque<(u64, Option<ProcessId>)>,
    changes: VecDeque<Change>,
    leading: Option<u64>,
    pending: bool,
}

/// The election of one process. Clones are handles of the same election.
#[derive(Clone, Debug)]
pub struct Told {
    me: ProcessId,
    inbox: Rc<RefCell<Inbox>>,
    /// The highest epoch of the group so far. Epochs of the group form one sequence over all processes.
    epoch: Rc<Cell<u64>>,
}

impl Told {
    /// Creates the election of a process. `epoch` is the last epoch of its group.
    pub(super) fn new(me: ProcessId, epoch: &Rc<Cell<u64>>) -> Self {
        Told { me, inbox: Rc::default(), epoch: Rc::clone(epoch) }
    }

    /// Schedules a report that `leader` leads, or that no process does. Times never decrease.
    pub(super) fn tell(&self, at_ns: u64, leader: Option<ProcessId>) {
        let mut inbox = self.inbox.borrow_mut();
        let at_ns = inbox.script.back().map_or(at_ns, |(last, _)| at_ns.max(*last));
        inbox.script.push_back((at_ns, leader));
    }

    /// Drops all changes, because the process lost its memory.
    pub(super) fn forget(&self) {
        *self.inbox.borrow_mut() = Inbox::default();
    }

    /// Returns the time of the next change, in nanoseconds.
    #[must_use]
    pub fn next_at(&self) -> Option<u64> {
        self.inbox.borrow().script.front().map(|(at, _)| *at)
    }

    fn next_epoch(&self) -> u64 {
        self.epoch.set(self.epoch.get() + 1);
        self.epoch.get()
    }

    fn name(&self, inbox: &mut Inbox, leader: Option<ProcessId>) {
        if leader != Some(self.me)
            && let Some(epoch) = inbox.leading.take()
        {
            inbox.changes.push_back(Change::Resigned { epoch });
        }
        match leader {
            Some(process) => {
                let epoch = self.next_epoch();
                inbox.leading = (process == self.me).then_some(epoch);
                inbox.changes.push_back(Change::Leader { epoch, process });
            }
            None if !inbox.pending => inbox.changes.push_back(Change::Pending),
            None => {}
        }
        inbox.pending = leader.is_none();
    }
}

impl Election for Told {
    fn poll(&mut self, now: Duration) -> Option<Change> {
        let mut inbox = self.inbox.borrow_mut();
        while let Some((_, leader)) = inbox.script.front().copied().filter(|(at, _)| u128::from(*at) <= now.as_nanos())
        {
            inbox.script.pop_front();
            self.name(&mut inbox, leader);
        }
        inbox.changes.pop_front()
    }

    /// Always fails, because only the nemesis hands over leadership.
    fn hand_over(&mut self, _to: ProcessId) -> Result<(), HandOverError> {
        Err(HandOverError::Unsupported)
    }

    fn witness(&mut self, epoch: u64, process: ProcessId) {
        self.epoch.set(self.epoch.get().max(epoch));
        let mut inbox = self.inbox.borrow_mut();
        if inbox.leading.is_some_and(|leading| (epoch, process) > (leading, self.me)) {
            self.name(&mut inbox, Some(self.me));
        }
    }
}

#[cfg(test)]
mod tests {
    use stentor_election::Audit;

    use super::*;

    #[test]
    fn any_script_obeys_the_rules_of_the_stream() {
        let epoch = Rc::new(Cell::new(1));
        let (me, other) = (ProcessId(0), ProcessId(1));
        let mut election = Told::new(me, &epoch);
        let mut audit = Audit::new(me);
        for (at, leader) in [(10, Some(me)), (5, Some(other)), (20, None), (20, None), (30, Some(me)), (31, Some(me))] {
            election.tell(at, leader);
        }
        let mut heard = Vec::new();
        for now in 0..40 {
            while let Some(change) = election.poll(Duration::from_nanos(now)) {
                audit.check(change).expect("the rules");
                heard.push((now, change));
            }
            if now == 35 {
                election.witness(90, other);
            }
        }
        assert_eq!(heard[0], (10, Change::Leader { epoch: 2, process: me }));
        assert_eq!(
            heard[1..3],
            [(10, Change::Resigned { epoch: 2 }), (10, Change::Leader { epoch: 3, process: other })]
        );
        assert_eq!(heard.last(), Some(&(36, Change::Leader { epoch: 91, process: me })));
        assert_eq!(election.next_at(), None);
    }
}
