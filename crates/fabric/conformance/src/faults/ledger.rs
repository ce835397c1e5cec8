//! The ledger of outstanding requests with [`all_complete`](super::Faults::all_complete), where every request completes
//! but the success of an unsignalled one is not reported.

use stentor_fabric::{Opcode, QpId};

/// A posted request whose slot is not freed yet.
struct Posted {
    qp: QpId,
    id: u64,
    opcode: Opcode,
    signalled: bool,
    /// `true` once the request has completed.
    arrived: bool,
    /// `true` once the completion of an unsignalled request was removed from the queue.
    taken: bool,
}

/// All outstanding requests, in the order of posting.
#[derive(Default)]
pub(super) struct Ledger {
    /// Number of the first request in `posted`.
    first: u64,
    /// Requests by number; `None` once the slot is freed.
    posted: std::collections::VecDeque<Option<Posted>>,
    receives: Vec<(QpId, u64, Opcode)>,
}

impl Ledger {
    pub(super) fn post(&mut self, qp: QpId, id: u64, opcode: Opcode, signalled: bool) {
        self.posted.push_back(Some(Posted { qp, id, opcode, signalled, arrived: false, taken: false }));
    }

    /// Removes the last request, which the inner fabric refused.
    pub(super) fn unpost(&mut self) {
        self.posted.pop_back();
    }

    pub(super) fn post_recv(&mut self, qp: QpId, id: u64, opcode: Opcode) {
        self.receives.push((qp, id, opcode));
    }

    /// Removes a receive whose completion was reported. WRITE_WITH_IMM and SEND consume the same receives.
    pub(super) fn received(&mut self, qp: QpId, id: u64, opcode: Opcode) {
        let tagged = |opcode| opcode == Opcode::TaggedRecv;
        let is_it = |recv: &(QpId, u64, Opcode)| (recv.0, recv.1, tagged(recv.2)) == (qp, id, tagged(opcode));
        if let Some(place) = self.receives.iter().position(is_it) {
            self.receives.remove(place);
        }
    }

    /// Records that a request completed. Returns its number, and whether it is signalled.
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

    /// Records that the completion of an unsignalled request was removed from the queue.
    pub(super) fn taken(&mut self, number: u64) {
        if let Some(Some(one)) = self.at(number) {
            one.taken = true;
        }
    }

    /// Returns whether the completion of an earlier unsignalled request on the queue pair has not been removed from the
    /// queue yet. Reporting the success of request `number` would then claim that the earlier request is done.
    pub(super) fn is_held_up(&self, qp: QpId, number: u64) -> bool {
        let before = self.posted.iter().take(number.saturating_sub(self.first) as usize).flatten();
        before.filter(|one| one.qp == qp && !one.signalled).any(|one| !one.taken)
    }

    /// Frees the slot of a request whose completion is reported, and those of earlier unsignalled requests whose
    /// completions were removed.
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

    /// Returns the number of slots of a send queue that are in use.
    pub(super) fn in_use(&self, qp: QpId) -> u32 {
        self.posted.iter().flatten().filter(|one| one.qp == qp).count() as u32
    }

    /// Returns the number of operations and receives whose completions are still outstanding.
    pub(super) fn outstanding(&self) -> usize {
        self.posted.iter().flatten().filter(|one| !one.taken).count() + self.receives.len()
    }

    /// Removes all requests and receives of a queue pair that was reset.
    pub(super) fn forget(&mut self, qp: QpId) {
        for one in &mut self.posted {
            if one.as_ref().is_some_and(|one| one.qp == qp) {
                *one = None;
            }
        }
        self.receives.retain(|(of, ..)| *of != qp);
        self.tidy();
    }

    /// Removes and returns all outstanding requests and receives.
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
