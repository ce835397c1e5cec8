//! What is outstanding, where every request completes: whoever asked is told of those that are signalled.

use stentor_fabric::{Opcode, QpId};

/// A request that was posted and is not over.
struct Posted {
    qp: QpId,
    id: u64,
    opcode: Opcode,
    signalled: bool,
    /// It completed.
    arrived: bool,
    /// Its completion was taken out of the queue.
    taken: bool,
}

/// Everything that is outstanding, in the order of posts.
#[derive(Default)]
pub(super) struct Ledger {
    /// The number of the first in `posted`.
    first: u64,
    /// `None`: over.
    posted: std::collections::VecDeque<Option<Posted>>,
    receives: Vec<(QpId, u64, Opcode)>,
}

impl Ledger {
    pub(super) fn post(&mut self, qp: QpId, id: u64, opcode: Opcode, signalled: bool) {
        self.posted.push_back(Some(Posted { qp, id, opcode, signalled, arrived: false, taken: false }));
    }

    /// The request that was posted last was refused.
    pub(super) fn unpost(&mut self) {
        self.posted.pop_back();
    }

    pub(super) fn post_recv(&mut self, qp: QpId, id: u64, opcode: Opcode) {
        self.receives.push((qp, id, opcode));
    }

    /// A receive was told to be over. WRITE_WITH_IMM and SEND use the same ones.
    pub(super) fn received(&mut self, qp: QpId, id: u64, opcode: Opcode) {
        let tagged = |opcode| opcode == Opcode::TaggedRecv;
        let is_it = |recv: &(QpId, u64, Opcode)| (recv.0, recv.1, tagged(recv.2)) == (qp, id, tagged(opcode));
        if let Some(place) = self.receives.iter().position(is_it) {
            self.receives.remove(place);
        }
    }

    /// A request completed: its number, and whether it is signalled.
    pub(super) fn arrived(&mut self, qp: QpId, id: u64, opcode: Opcode) -> Option<(u64, bool)> {
        let is_it = |one: &Posted| (one.qp, one.id, one.opcode, one.arrived) == (qp, id, opcode, false);
        let place = self.posted.iter().position(|one| one.as_ref().is_some_and(is_it))?;
        let one = self.posted[place].as_mut()?;
        one.arrived = true;
        Some((self.first + place as u64, one.signalled))
    }

    fn at(&mut self, number: u64) -> Option<&mut Option<Posted>> {
        self.posted.get_mut(number.checked_sub(self.first)? as usize)
    }

    /// The completion of one that is not signalled was taken.
    pub(super) fn taken(&mut self, number: u64) {
        if let Some(Some(one)) = self.at(number) {
            one.taken = true;
        }
    }

    /// Whether something before it on its queue pair is not signalled, and its completion was not taken: a success would
    /// say that it was.
    pub(super) fn is_held_up(&self, qp: QpId, number: u64) -> bool {
        let before = self.posted.iter().take(number.saturating_sub(self.first) as usize).flatten();
        before.filter(|one| one.qp == qp && !one.signalled).any(|one| !one.taken)
    }

    /// One that is signalled, or failed, was told: it is over, and so is what is not signalled and was taken before it.
    pub(super) fn told(&mut self, qp: QpId, number: u64) {
        let before = number.saturating_sub(self.first) as usize;
        for one in self.posted.iter_mut().take(before) {
            if one.as_ref().is_some_and(|one| one.qp == qp && one.taken) {
                *one = None;
            }
        }
        if let Some(one) = self.at(number) {
            *one = None;
        }
        self.tidy();
    }

    /// Places of a send queue that are used.
    pub(super) fn in_use(&self, qp: QpId) -> u32 {
        self.posted.iter().flatten().filter(|one| one.qp == qp).count() as u32
    }

    /// Operations whose completions were not taken.
    pub(super) fn outstanding(&self) -> usize {
        self.posted.iter().flatten().filter(|one| !one.taken).count() + self.receives.len()
    }

    /// The queue pair begins anew.
    pub(super) fn forget(&mut self, qp: QpId) {
        for one in &mut self.posted {
            if one.as_ref().is_some_and(|one| one.qp == qp) {
                *one = None;
            }
        }
        self.receives.retain(|(of, ..)| *of != qp);
        self.tidy();
    }

    /// All that is outstanding, and nothing is any more.
    pub(super) fn drain(&mut self) -> Vec<(QpId, u64, Opcode)> {
        let posted = self.posted.drain(..).flatten().map(|one| (one.qp, one.id, one.opcode));
        posted.chain(self.receives.drain(..)).collect()
    }

    fn tidy(&mut self) {
        while let Some(None) = self.posted.front() {
            self.posted.pop_front();
            self.first += 1;
        }
    }
}
