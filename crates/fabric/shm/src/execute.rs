//! Execution of work requests. Posting executes them at once, unless they must wait for a receive of the peer, for room
//! in the peer's queue, or for an earlier request.

use stentor_fabric::memory::{Ordering, Word, fence};
use stentor_fabric::{QpKind, RemoteSpan, Source, Span, Status, Verb};

use crate::copy::{store_bytes, store_words, word_at};
use crate::data::Data;
use crate::local::{LocalRegion, span_words};
use crate::qp::{NONE, SendEntry};
use crate::queue::{Header, Readiness, RecordKind};
use crate::remote::Remote;

/// Value that denotes the message queue in place of the slot of a region. Records of the queue are ordered after all
/// earlier stores.
const QUEUE: u32 = NONE - 1;

/// Outcome of a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// The request is done, or it failed and was reported.
    Done,
    /// The peer has posted no receive for the request, or its queue is full. Nothing has been done.
    Wait,
}

impl Data {
    /// Executes a validated work request.
    pub(crate) fn execute(&mut self, index: usize, entry: SendEntry, verb: Verb<'_>) -> Outcome {
        match verb {
            Verb::Write { source, target } => {
                self.write(index, entry, source, &target);
            }
            Verb::WriteImm { source, target, imm } => return self.write_imm(index, entry, source, &target, imm),
            Verb::Send { source, imm } => return self.send(index, entry, source, imm),
            Verb::Read { local, remote } => self.read(index, entry, local, &remote),
            Verb::CompareSwap { local, remote, expected, new } => {
                self.atomic(index, entry, local, &remote, |word| {
                    match word.compare_exchange(expected, new, Ordering::SeqCst, Ordering::SeqCst) {
                        Ok(old) | Err(old) => old,
                    }
                });
            }
            Verb::FetchAdd { local, remote, add } => {
                self.atomic(index, entry, local, &remote, |word| word.fetch_add(add, Ordering::SeqCst));
            }
            Verb::TaggedSend { .. } => unreachable!("refused when posted"),
        }
        Outcome::Done
    }

    /// Finds the region, and checks earlier stores to another region. Returns `None` if the work request has failed and
    /// was reported, or was lost on an unreliable connection.
    fn open(
        &mut self,
        index: usize,
        entry: SendEntry,
        span: &RemoteSpan,
        fits: impl Fn(&Remote) -> bool,
    ) -> Option<u32> {
        let peer = self.qps[index].peer;
        let found = self.remotes.find(peer, span).filter(|(_, remote)| fits(remote)).map(|(slot, _)| slot);
        let Some(slot) = found else {
            self.refuse(index, entry);
            return None;
        };
        if !self.settle_before(index, slot) {
            self.complete(index, entry, Status::Flushed);
            return None;
        }
        Some(slot)
    }

    /// Records that the stores of a request are made. The next flush checks and completes them.
    fn stored(&mut self, index: usize, entry: SendEntry, slot: u32) {
        let qp = &mut self.qps[index];
        qp.open = slot;
        qp.leave_unchecked(entry);
        self.mark(index);
    }

    /// Completes a request that touched no region of the peer, after all earlier requests.
    fn done(&mut self, index: usize, entry: SendEntry) {
        if self.qps[index].open != NONE {
            self.qps[index].leave_unchecked(entry);
        } else if entry.signalled {
            self.complete(index, entry, Status::Success);
        }
        self.mark(index);
    }

    /// Fails a request whose span is outside the region or not granted, or whose message is longer than the receive. On
    /// an unreliable connection the request is lost silently.
    #[cold]
    fn refuse(&mut self, index: usize, entry: SendEntry) {
        if self.qps[index].config.kind == QpKind::Unreliable {
            return self.done(index, entry);
        }
        let sound = self.settle_before(index, QUEUE);
        self.complete(index, entry, if sound { Status::RemoteAccess } else { Status::Flushed });
        self.break_qp(index, Status::Flushed);
    }

    /// Stores a write. Returns the slot of its region, `QUEUE` if the write has no data, or `None` if it failed or was
    /// lost.
    fn write(&mut self, index: usize, entry: SendEntry, source: Source<'_>, target: &RemoteSpan) -> Option<u32> {
        let bytes = source.bytes();
        if bytes == 0 {
            self.done(index, entry);
            return Some(QUEUE);
        }
        let fits = |remote: &Remote| remote.writable(target.offset, bytes).is_some();
        let slot = self.open(index, entry, target, fits)?;
        let to = self.remotes.slot(slot).and_then(|remote| remote.writable(target.offset, bytes));
        let to = to.expect("the region was found and checked above");
        match source {
            Source::Inline(data) => store_bytes(data, to),
            Source::Region(span) => store_words(local_words(&self.regions, span), to),
        }
        self.stored(index, entry, slot);
        Some(slot)
    }

    fn write_imm(
        &mut self,
        index: usize,
        entry: SendEntry,
        source: Source<'_>,
        target: &RemoteSpan,
        imm: u32,
    ) -> Outcome {
        let header = Header { kind: RecordKind::WriteImm, bytes: source.bytes() as u32, imm };
        if self.readiness(index, header) != Readiness::Ready {
            return self.not_ready(index, entry);
        }
        let Some(slot) = self.write(index, entry, source, target) else { return Outcome::Done };
        // The notification is ordered after the data, and must not arrive if the data was refused.
        fence(Ordering::SeqCst);
        let taken = slot == QUEUE || self.remotes.slot(slot).is_some_and(Remote::is_open);
        if self.settle(index) && taken {
            self.push(index, header, |_| 0);
        }
        Outcome::Done
    }

    fn send(&mut self, index: usize, entry: SendEntry, source: Source<'_>, imm: Option<u32>) -> Outcome {
        let kind = if imm.is_some() { RecordKind::SendImm } else { RecordKind::Send };
        let header = Header { kind, bytes: source.bytes() as u32, imm: imm.unwrap_or(0) };
        match self.readiness(index, header) {
            Readiness::Ready => {}
            Readiness::Wait => return self.not_ready(index, entry),
            Readiness::TooLong => {
                if self.qps[index].config.kind == QpKind::Reliable {
                    self.push(index, Header { kind: RecordKind::TooLong, ..header }, |_| 0);
                }
                self.refuse(index, entry);
                return Outcome::Done;
            }
        }
        if !self.settle_before(index, QUEUE) {
            self.complete(index, entry, Status::Flushed);
            return Outcome::Done;
        }
        match source {
            Source::Inline(data) => self.push(index, header, |word| word_at(data, word)),
            Source::Region(span) => {
                let qp = &mut self.qps[index];
                let from = local_words(&self.regions, span);
                if let Some((producer, memory)) = &mut qp.outbound {
                    producer.push(memory.words(), header, |word| from[word].load(Ordering::Relaxed));
                    self.count_message();
                }
            }
        }
        self.done(index, entry);
        Outcome::Done
    }

    fn readiness(&mut self, index: usize, header: Header) -> Readiness {
        match &mut self.qps[index].outbound {
            Some((producer, memory)) => producer.readiness(memory.words(), header),
            None => Readiness::Wait,
        }
    }

    /// Defers a request for which the peer is not ready. On an unreliable connection the request is lost.
    fn not_ready(&mut self, index: usize, entry: SendEntry) -> Outcome {
        if self.qps[index].config.kind == QpKind::Reliable {
            return Outcome::Wait;
        }
        self.done(index, entry);
        Outcome::Done
    }

    fn push(&mut self, index: usize, header: Header, payload: impl Fn(usize) -> u64) {
        if let Some((producer, memory)) = &mut self.qps[index].outbound {
            producer.push(memory.words(), header, payload);
            self.count_message();
        }
        self.mark(index);
    }

    fn read(&mut self, index: usize, entry: SendEntry, local: Span, remote: &RemoteSpan) {
        if local.bytes == 0 {
            return self.done(index, entry);
        }
        let Some(slot) = self.open(index, entry, remote, |_| true) else { return };
        let to = local_words(&self.regions, local);
        if !self.remotes.slot(slot).is_some_and(|region| region.read(remote.offset, to)) {
            return self.refuse(index, entry);
        }
        // Values that are read later must not be older than these, because READs execute in order.
        fence(Ordering::Acquire);
        self.stored(index, entry, slot);
    }

    fn atomic(
        &mut self,
        index: usize,
        entry: SendEntry,
        local: Span,
        remote: &RemoteSpan,
        change: impl Fn(&Word) -> u64,
    ) {
        let fits = |region: &Remote| region.atomic(remote.offset).is_some();
        let Some(slot) = self.open(index, entry, remote, fits) else { return };
        let old = self.remotes.slot(slot).and_then(|region| region.atomic(remote.offset)).map(change);
        let old = old.expect("the region was found and checked above");
        local_words(&self.regions, local)[0].store(old, Ordering::Relaxed);
        self.stored(index, entry, slot);
    }
}

/// Returns the words of a span, which was validated when posted. Regions never shrink or disappear.
fn local_words(regions: &[LocalRegion], span: Span) -> &[Word] {
    if span.bytes == 0 {
        return &[];
    }
    span_words(regions, span).expect("the span was checked when it was posted")
}
