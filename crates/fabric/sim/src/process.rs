//! The scheduler, and faults of processes and links.

use stentor_fabric::ProcessId;

use crate::config::Due;
use crate::event::{End, Event};
use crate::fault::Fault;
use crate::state::{Process, State};

impl State {
    /// Makes a process run after a scheduling delay, unless it runs sooner anyway.
    pub(crate) fn wake(&mut self, process: ProcessId) {
        let at = self.now + self.model.step.sample(&mut self.rng);
        self.wake_at(process, at);
    }

    pub(crate) fn wake_at(&mut self, process: ProcessId, at: u64) {
        let owner = &mut self.processes[process.index()];
        if !owner.up || owner.step_at.is_some_and(|planned| planned <= at) {
            return;
        }
        owner.step_at = Some(at);
        owner.step_token += 1;
        self.calendar.push(at, Event::Step { process: process.0, token: owner.step_token });
    }

    /// Does what [`wake`](State::wake) does, and ends a `wait`.
    pub(crate) fn notify(&mut self, process: ProcessId) {
        self.processes[process.index()].notified = true;
        self.wake(process);
    }

    pub(crate) fn on_step(&mut self, process: ProcessId, token: u32) {
        let owner = &mut self.processes[process.index()];
        if !owner.up || owner.step_token != token {
            return;
        }
        owner.step_at = None;
        if owner.stalled_until > self.now {
            let until = owner.stalled_until;
            self.wake_at(process, until);
            return;
        }
        owner.wake_at = None;
        self.counts.steps_on_torn_memory += u64::from(owner.half_landed > 0);
        self.process_counts[process.index()].steps += 1;
        let now_ns = self.now.saturating_add_signed(self.processes[process.index()].clock_ahead_ns);
        self.due.push_back(Due::Step { process, now_ns });
    }

    /// Handles the end of a step. A process that worked runs again soon. Otherwise it runs at the time at which it
    /// asked to be woken.
    pub(crate) fn stepped(&mut self, process: ProcessId, worked: bool) {
        if worked {
            self.wake(process);
        } else if let Some(at) = self.processes[process.index()].wake_at {
            self.wake_at(process, at.max(self.now));
        }
    }

    pub(crate) fn on_fault(&mut self, index: u32) {
        let Some(fault) = self.plan[index as usize].take() else { return };
        match fault {
            Fault::Crash(process) => self.crash(process),
            Fault::CrashAtPost { process, post } => {
                self.processes[process.index()].posts_to_crash = Some(post.max(1));
            }
            Fault::Restart(process) => {
                if !self.processes[process.index()].up {
                    self.due.push_back(Due::Restart(process));
                }
            }
            Fault::Stall { process, for_ns } => self.stall(process, for_ns),
            Fault::ClockJump { process, by_ns } => {
                let ahead = &mut self.processes[process.index()].clock_ahead_ns;
                *ahead = ahead.saturating_add(by_ns);
                self.counts.clock_jumps += 1;
                self.trace_instant(process, "clock jump");
            }
            Fault::Cut { from, to, for_ns } => {
                let cut = vec![self.link_index(from, to)];
                self.counts.one_way_partitions += 1;
                self.trace_instant(from, "cut");
                self.cut(index, cut, for_ns);
            }
            Fault::SetsBreak => self.break_sets(),
            Fault::Partition { side, one_way, for_ns } => self.partition(index, &side, one_way, for_ns),
        }
    }

    fn partition(&mut self, index: u32, side: &[ProcessId], one_way: bool, for_ns: u64) {
        let mut cut = Vec::new();
        for inside in side {
            self.trace_instant(*inside, if one_way { "one-way partition" } else { "partition" });
            for outside in (0..self.processes.len() as u16).map(ProcessId).filter(|p| !side.contains(p)) {
                cut.push(self.link_index(*inside, outside));
                if !one_way {
                    cut.push(self.link_index(outside, *inside));
                }
            }
        }
        *(if one_way { &mut self.counts.one_way_partitions } else { &mut self.counts.partitions }) += 1;
        self.cut(index, cut, for_ns);
    }

    fn cut(&mut self, index: u32, links: Vec<usize>, for_ns: u64) {
        for link in &links {
            self.links[*link].cuts += 1;
        }
        self.cuts.insert(index, links);
        self.calendar.push(self.now + for_ns, Event::Heal { index });
    }

    /// Heals a partition. Held messages continue at once and in order, before anything that is sent later.
    pub(crate) fn on_heal(&mut self, index: u32) {
        for link in self.cuts.remove(&index).unwrap_or_default() {
            self.mend(link);
        }
    }

    fn mend(&mut self, link: usize) {
        self.links[link].cuts -= 1;
        if self.links[link].cuts == 0 {
            for event in std::mem::take(&mut self.links[link].held) {
                self.handle(event);
            }
            self.look_at_sets_again();
        }
    }

    /// Cuts one direction until [`heal`](State::heal).
    pub(crate) fn sever(&mut self, from: ProcessId, to: ProcessId) {
        let link = self.link(from, to);
        if !std::mem::replace(&mut link.severed, true) {
            link.cuts += 1;
            self.trace_instant(from, "cut");
        }
    }

    /// Ends the effect of [`sever`](State::sever). Planned partitions remain.
    pub(crate) fn heal(&mut self, from: ProcessId, to: ProcessId) {
        let link = self.link_index(from, to);
        if std::mem::take(&mut self.links[link].severed) {
            self.trace_instant(from, "healed");
            self.mend(link);
        }
    }

    pub(crate) fn stall(&mut self, process: ProcessId, for_ns: u64) {
        let owner = &mut self.processes[process.index()];
        owner.stalled_until = owner.stalled_until.max(self.now.saturating_add(for_ns));
        self.counts.stalls += 1;
        self.trace_instant(process, "stall");
    }

    /// Ends all partitions and stalls, and forgets all planned faults except restarts.
    pub(crate) fn stop_faults(&mut self) {
        let indices: Vec<u32> = self.cuts.keys().copied().collect();
        for index in indices {
            self.on_heal(index);
        }
        for link in 0..self.links.len() {
            if std::mem::take(&mut self.links[link].severed) {
                self.mend(link);
            }
        }
        for fault in &mut self.plan {
            if !matches!(fault, Some(Fault::Restart(_))) {
                *fault = None;
            }
        }
        for process in 0..self.processes.len() {
            self.processes[process].stalled_until = 0;
            self.processes[process].posts_to_crash = None;
            self.wake(ProcessId(process as u16));
        }
    }

    pub(crate) fn crash(&mut self, process: ProcessId) {
        if !self.processes[process.index()].up {
            return;
        }
        self.trace_instant(process, "crash");
        self.counts.crashes += 1;
        for message in std::mem::take(&mut self.processes[process.index()].unflushed) {
            self.discard(message);
        }
        self.freeze(process, None);
        let peers: Vec<_> = self.processes[process.index()]
            .qps
            .iter()
            .filter(|qp| qp.connection != 0 && qp.set.is_none())
            .map(|qp| End { process: qp.peer.0, qp: qp.peer_qp, connection: qp.connection })
            .collect();
        for end in peers {
            let at = self.now + self.model.retry_ns + self.rng.below(self.model.retry_ns / 4 + 1);
            self.calendar.push(at, Event::PeerGone { end, silent: true });
        }
        for key in &mut self.keys {
            key.valid &= key.owner != process;
        }
        for other in &mut self.processes {
            other.linked[process.index()] = false;
        }
        self.set_member_is_gone(process);
        let owner = &mut self.processes[process.index()];
        let count = owner.linked.len();
        *owner = Process {
            up: false,
            life: owner.life + 1,
            step_token: owner.step_token + 1,
            nic_free_at: owner.nic_free_at,
            linked: vec![false; count],
            ..Process::default()
        };
        self.due.push_back(Due::Crashed(process));
    }

    pub(crate) fn restart(&mut self, process: ProcessId) {
        self.crash(process);
        self.due.retain(|due| *due != Due::Crashed(process));
        self.processes[process.index()].up = true;
        self.counts.restarts += 1;
        self.trace_instant(process, "restart");
        self.wake(process);
    }

    /// Counts a post down to a planned crash. Returns whether the process crashed.
    pub(crate) fn crash_at_post(&mut self, process: ProcessId) -> bool {
        let owner = &mut self.processes[process.index()];
        let Some(left) = &mut owner.posts_to_crash else { return false };
        *left -= 1;
        if *left > 0 {
            return false;
        }
        self.counts.crashes_at_a_post += 1;
        // Transmit a random prefix of the messages that were posted before.
        let held = std::mem::take(&mut self.processes[process.index()].unflushed);
        let out = self.rng.below(held.len() as u64 + 1) as usize;
        for (place, message) in held.into_iter().enumerate() {
            if place > out {
                self.discard(message);
                continue;
            }
            self.transmit(message);
            let sent = self.messages.get_mut(message);
            // The NIC had the messages before `out`, so they are sent although the process has crashed. The one at
            // `out` is cut off.
            sent.departs = if place < out { self.now } else { sent.departs.max(self.now + 1) };
        }
        self.crash(process);
        true
    }
}
