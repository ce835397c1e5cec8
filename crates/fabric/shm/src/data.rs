//! The data plane: everything that the hot path touches. Its only system calls wake sleeping peers.

use std::collections::VecDeque;
use std::time::Duration;

use stentor_fabric::memory::{Ordering, fence};
use stentor_fabric::{Capabilities, Completion, Opcode, PollHint, ProcessId, QpId, QpKind, QpState, Status};

use crate::bell::Bell;
use crate::local::LocalRegion;
use crate::qp::{NONE, Qp, SendEntry};
use crate::remote::Remotes;

/// A completion that waits to be polled.
#[derive(Clone, Copy, Debug)]
struct Finished {
    completion: Completion,
    /// Number of the work request, or 0 for a receive. Polling the completion frees the slots of all requests up to
    /// this number.
    number: u64,
    epoch: u32,
}

/// The data plane of a process.
#[derive(Debug)]
pub(crate) struct Data {
    pub(crate) capabilities: Capabilities,
    pub(crate) rnr_timeout: Duration,
    pub(crate) regions: Vec<LocalRegion>,
    pub(crate) remotes: Remotes,
    pub(crate) qps: Vec<Qp>,
    /// The means to wake each connected process, by process.
    pub(crate) bells: Vec<Option<Bell>>,
    /// Queue pairs that have broken since the control plane last checked.
    pub(crate) broken: Vec<u32>,
    /// Queue pairs that were posted to since the last flush, and their peers.
    pub(crate) dirty: Vec<(u32, ProcessId)>,
    /// Queue pairs with a receive queue.
    pub(crate) receivers: Vec<u32>,
    /// Number of queue pairs with deferred work requests.
    pub(crate) deferring: u32,
    /// Peers from which messages may have arrived since the queues were last checked.
    heard: PollHint,
    /// `true` if the owner calls `poll_hint`, so that `heard` is complete.
    listens: bool,
    finished: VecDeque<Finished>,
    me: ProcessId,
    /// Value that this process stores at a peer when it has flushed to the peer. The lower half counts flushes, the
    /// upper half messages, so that a peer that was only written to need not check its queues.
    announcement: u64,
}

impl Data {
    pub(crate) fn new(capabilities: Capabilities, rnr_timeout: Duration, me: ProcessId, processes: usize) -> Self {
        Data {
            capabilities,
            rnr_timeout,
            regions: Vec::new(),
            remotes: Remotes::default(),
            qps: Vec::new(),
            bells: (0..processes).map(|_| None).collect(),
            broken: Vec::new(),
            dirty: Vec::new(),
            receivers: Vec::new(),
            deferring: 0,
            heard: PollHint::ANYBODY,
            listens: false,
            finished: VecDeque::new(),
            me,
            announcement: 0,
        }
    }

    /// Adds a queue pair, and reserves room for everything that can be outstanding on it.
    pub(crate) fn add_qp(&mut self, qp: Qp) -> QpId {
        let index = self.qps.len() as u32;
        let places: usize =
            self.qps.iter().chain([&qp]).map(|qp| (qp.config.send_depth + qp.config.recv_depth) as usize).sum();
        self.finished.reserve(places - self.finished.len().min(places));
        self.dirty.reserve(self.qps.len() + 1);
        self.broken.reserve(self.qps.len() + 1);
        if qp.config.recv_depth > 0 {
            self.receivers.push(index);
        }
        self.qps.push(qp);
        QpId(index)
    }

    /// Adds peers from which messages may have arrived.
    #[inline]
    pub(crate) fn hear(&mut self, heard: PollHint) {
        self.heard = self.heard.and(heard);
    }

    /// Adds the peers that `poll_hint` found. The owner of the fabric calls `poll_hint` in every round.
    #[inline]
    pub(crate) fn listen(&mut self, heard: PollHint) {
        self.listens = true;
        self.hear(heard);
    }

    /// Returns whether unchecked queues may hold messages.
    #[inline]
    fn may_receive(&self) -> bool {
        !(self.listens && self.heard.is_nothing() || self.receivers.is_empty())
    }

    /// Returns the peers whose queues must be checked, and clears their set.
    #[inline]
    pub(crate) fn take_heard(&mut self) -> PollHint {
        if self.listens { std::mem::replace(&mut self.heard, PollHint::NOTHING) } else { PollHint::ANYBODY }
    }

    /// Returns whether completions wait to be polled.
    pub(crate) fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Counts a message that was put into a queue. The next flush announces it.
    #[inline]
    pub(crate) fn count_message(&mut self) {
        self.announcement = self.announcement.wrapping_add(1 << 32);
    }

    /// Marks a queue pair for the next flush.
    #[inline]
    pub(crate) fn mark(&mut self, index: usize) {
        self.qps[index].mark(index, &mut self.dirty);
    }

    /// Checks and completes the posted requests, and wakes sleeping peers, with one full fence for all of them.
    #[inline]
    pub(crate) fn flush(&mut self) {
        if self.deferring > 0 {
            self.retry_deferred();
        }
        if !self.dirty.is_empty() {
            self.flush_dirty();
        }
    }

    /// Returns whether nothing waits to be flushed, retried or polled.
    #[inline]
    pub(crate) fn is_quiet(&self) -> bool {
        self.finished.is_empty() && self.dirty.is_empty() && self.deferring == 0
    }

    fn flush_dirty(&mut self) {
        let flushes = (self.announcement as u32).wrapping_add(1);
        self.announcement = self.announcement >> 32 << 32 | u64::from(flushes);
        for (index, peer) in &self.dirty {
            if self.qps[*index as usize].is_loud
                && let Some(Some(bell)) = self.bells.get(peer.index())
            {
                bell.announce(self.me, self.announcement);
            }
        }
        fence(Ordering::SeqCst);
        while let Some((index, peer)) = self.dirty.pop() {
            let index = index as usize;
            self.qps[index].dirty = false;
            let is_loud = std::mem::take(&mut self.qps[index].is_loud);
            self.settle(index);
            if is_loud && let Some(Some(bell)) = self.bells.get(peer.index()) {
                bell.ring();
            }
        }
    }

    /// Completes the stores since the last check, if the region has not been revoked since. On an unreliable
    /// connection, completes them even then. Returns whether the queue pair may continue. The caller must have executed
    /// a full fence since the stores.
    #[inline]
    pub(crate) fn settle(&mut self, index: usize) -> bool {
        let qp = &mut self.qps[index];
        if qp.open != NONE {
            let open = self.remotes.slot(qp.open).is_some_and(|remote| remote.is_open());
            qp.open = NONE;
            if !open && qp.config.kind == QpKind::Reliable {
                self.refuse_unchecked(index);
                return false;
            }
            if qp.reports {
                self.complete_unchecked(index);
            } else {
                qp.unchecked.clear();
            }
        }
        self.qps[index].state == QpState::Ready
    }

    /// Reports the signalled requests, which are a small fraction of all.
    #[cold]
    fn complete_unchecked(&mut self, index: usize) {
        let mut unchecked = std::mem::take(&mut self.qps[index].unchecked);
        for entry in unchecked.drain(..).filter(|entry| entry.signalled) {
            self.complete(index, entry, Status::Success);
        }
        let qp = &mut self.qps[index];
        (qp.unchecked, qp.reports) = (unchecked, false);
    }

    /// Fences and checks the stores to another region, before an operation that is ordered after them. Returns whether
    /// the queue pair may continue.
    #[inline]
    pub(crate) fn settle_before(&mut self, index: usize, slot: u32) -> bool {
        let open = self.qps[index].open;
        if open == NONE || open == slot {
            return true;
        }
        fence(Ordering::SeqCst);
        self.settle(index)
    }

    #[cold]
    fn refuse_unchecked(&mut self, index: usize) {
        let mut unchecked = std::mem::take(&mut self.qps[index].unchecked);
        let mut status = Status::RemoteAccess;
        for entry in unchecked.drain(..) {
            self.complete(index, entry, status);
            status = Status::Flushed;
        }
        self.qps[index].unchecked = unchecked;
        self.qps[index].reports = false;
        self.break_qp(index, Status::Flushed);
    }

    /// Reports the end of a work request.
    #[inline]
    pub(crate) fn complete(&mut self, index: usize, entry: SendEntry, status: Status) {
        let completion = Completion::new(QpId(index as u32), entry.id, entry.opcode, status);
        let epoch = self.qps[index].epoch;
        self.finished.push_back(Finished { completion, number: entry.number, epoch });
    }

    /// Reports the end of a receive.
    pub(crate) fn complete_receive(&mut self, completion: Completion) {
        let epoch = self.qps[completion.qp.index()].epoch;
        self.finished.push_back(Finished { completion, number: 0, epoch });
    }

    /// Puts a queue pair into the error state and flushes it. The first work request that still waits gets the status
    /// `first`.
    #[cold]
    pub(crate) fn break_qp(&mut self, index: usize, first: Status) {
        let qp = &mut self.qps[index];
        if qp.state == QpState::Error {
            return;
        }
        qp.state = QpState::Error;
        qp.open = NONE;
        qp.unchecked.clear();
        qp.reports = false;
        qp.waits_since = None;
        (qp.outbound, qp.inbound) = (None, None);
        let (mut deferred, mut receives) = (std::mem::take(&mut qp.deferred), std::mem::take(&mut qp.receives));
        self.deferring -= u32::from(!deferred.is_empty());
        let mut status = first;
        for work in deferred.drain(..) {
            self.complete(index, work.entry, status);
            status = Status::Flushed;
        }
        for receive in receives.drain(..) {
            self.complete_receive(Completion::new(QpId(index as u32), receive.id, Opcode::Recv, Status::Flushed));
        }
        self.qps[index].receives = receives;
        self.broken.push(index as u32);
    }

    /// Returns the next completions in `out`, and their number.
    #[inline]
    pub(crate) fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.flush();
        let mut taken = if self.finished.is_empty() { 0 } else { self.take(out) };
        if taken < out.len() && self.may_receive() {
            self.receive();
            taken += self.take(&mut out[taken..]);
        }
        taken
    }

    fn take(&mut self, out: &mut [Completion]) -> usize {
        let mut taken = 0;
        while taken < out.len() {
            let Some(finished) = self.finished.pop_front() else { break };
            let qp = &mut self.qps[finished.completion.qp.index()];
            if finished.epoch == qp.epoch {
                if finished.number == 0 {
                    qp.receives_held -= 1;
                } else {
                    qp.freed = qp.freed.max(finished.number);
                }
            }
            out[taken] = finished.completion;
            taken += 1;
        }
        taken
    }
}
