//! What a connection that broke leaves behind: data on its way to memory, and messages on their way to a NIC that no
//! longer knows the connection.

use stentor_fabric::{Access, ProcessId, Status};

use crate::event::End;
use crate::qp::{Queued, RequestKind};
use crate::rng::MILLION;
use crate::state::State;

impl State {
    /// Makes everything visible at once that a NIC executed for a peer, in whatever region: so nothing of a later write
    /// is seen without the earlier ones (rule 1). Returns how many writes it was.
    pub(crate) fn land_everything_of(&mut self, process: ProcessId, writer: ProcessId) -> u64 {
        let regions = &self.processes[process.index()].regions;
        let written = |region: &u32| regions[*region as usize].spec.writer == writer;
        let written: Vec<u32> = (0..regions.len() as u32).filter(written).collect();
        written.into_iter().map(|region| self.land_everything(process, region)).sum()
    }

    /// Receives that were consumed complete now, with their data: they come before what is flushed.
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

    /// Results of READs and atomics that are flushed do not land any more: their places may be used for something else.
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

    /// Nothing that comes after this message takes effect on its connection, not even late.
    pub(crate) fn seal(&mut self, id: u32) {
        let message = self.messages.get(id);
        let (to, qp) = (message.to, message.to_qp);
        self.qp_mut(to, qp).gave_up = true;
    }

    /// A message of a connection that this end has given up. Until there is a new one the next write in order may land all
    /// the same, and its initiator may hear of a success: so it is where the two ends learn of a break at different times.
    /// What needs a receive finds none any more, whatever its initiator hears.
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
