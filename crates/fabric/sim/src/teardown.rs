//! Remains of a broken connection: data on its way to memory, and messages on their way to a NIC that no longer knows
//! the connection.

use stentor_fabric::{Access, ProcessId, Status};

use crate::event::End;
use crate::qp::{Queued, RequestKind};
use crate::rng::MILLION;
use crate::state::State;

impl State {
    /// Makes everything visible at once that a NIC executed in all regions that a peer may write, so that no later
    /// write is visible without the earlier ones (rule 1 of the contract). Returns the number of writes.
    pub(crate) fn land_everything_of(&mut self, process: ProcessId, writer: ProcessId) -> u64 {
        let regions = &self.processes[process.index()].regions;
        let written = |region: &u32| regions[*region as usize].spec.writer == writer;
        let written: Vec<u32> = (0..regions.len() as u32).filter(written).collect();
        written.into_iter().map(|region| self.land_everything(process, region)).sum()
    }

    /// Completes receives that were consumed, with their data, before the remaining receives are flushed.
    pub(crate) fn deliver_everything(&mut self, end: End) {
        let me = ProcessId(end.process);
        let qp = self.qp_mut(me, end.qp);
        let (peer, waiting) = (qp.peer, std::mem::take(&mut qp.undelivered));
        if waiting.is_empty() {
            return;
        }
        self.land_everything_of(me, peer);
        for delivery in waiting {
            let delivery = self.deliveries.get_mut(delivery);
            let (region, completion) = (delivery.region, delivery.completion.take());
            if let Some(region) = region {
                self.land_everything(me, region);
            }
            let queued = completion.map(|completion| Queued { completion, seq: None });
            self.processes[me.index()].completions.extend(queued);
        }
    }

    /// Drops the results of READs and atomics that are flushed. They must not land any more, because their memory may
    /// be reused.
    pub(crate) fn forget_results(&mut self, end: End) {
        let me = ProcessId(end.process);
        let life = self.processes[me.index()].life;
        for id in self.landings.in_use() {
            let landing = self.landings.get(id);
            let mine = landing.process == me && landing.life == life;
            if mine && landing.result_of == Some(end.qp) && !landing.done {
                let half = landing.landed > 0 && landing.parts > 1;
                self.processes[me.index()].half_landed -= u32::from(half);
                self.finish_landing(id);
            }
        }
    }

    /// Prevents later messages of the connection from taking effect, even late.
    pub(crate) fn seal(&mut self, id: u32) {
        let message = self.messages.get(id);
        let (to, qp) = (message.to, message.to_qp);
        self.qp_mut(to, qp).gave_up = true;
    }

    /// Handles a message of a connection that this end has broken. Until there is a new connection, the next write in
    /// order may still land, and its initiator may get a success, because the two ends notice a break at different
    /// times. A message that needs a receive no longer finds one, whatever its initiator gets.
    pub(crate) fn arrive_late(&mut self, id: u32) {
        let message = self.messages.get(id);
        let (to, bytes) = (message.to, message.bytes);
        let target = match message.kind {
            RequestKind::Write { target } | RequestKind::WriteImm { target, .. } => Some(target),
            RequestKind::Send { .. } => None,
            _ => return self.unanswered(id),
        };
        let left = self.processes[to.index()].qps.get(message.to_qp.index()).is_some_and(|qp| {
            let next = qp.executed + 1 == message.order || !self.model.ordered_writes;
            qp.connection == 0 && qp.broken == message.connection && !qp.gave_up && next
        });
        if !left || !message.reliable || !self.rng.chance(self.model.late_after_break) {
            return self.unanswered(id);
        }
        self.read_source(id);
        match target.map(|target| self.open(id, target, bytes, Access::Write)) {
            Some(None) => return self.unanswered(id),
            Some(Some(place)) => {
                self.write(id, &place);
                self.counts.writes_after_break += 1;
            }
            None => self.executed(id),
        }
        if self.rng.chance(MILLION / 2) { self.answer(id, Status::Success) } else { self.unanswered(id) }
    }
}
