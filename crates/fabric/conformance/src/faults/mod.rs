//! A wrapper that reorders requests and completions. On a fabric that does not reorder, it emulates the reordering that
//! EFA permits.

mod config;
mod ledger;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

pub use config::Faults;
use ledger::Ledger;
use stentor_fabric::{
    Access, AccessError, Capabilities, CapabilityMask, Completion, ConnectError, Event, Fabric, Opcode, PollHint,
    PostError, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec, RegisterError, RemoteRegion, Service,
    SetSpec, SetWrite, Source, Span, SplitMix64, Status, Verb, WaitError, Wake, Waker, Word, WorkRequest,
};

/// A request that is not posted to the inner fabric yet.
struct Late {
    qp: QpId,
    id: u64,
    data: Result<Vec<u8>, Span>,
    what: What,
}

/// A completion that is not reported yet.
#[derive(Clone, Copy)]
struct Held {
    completion: Completion,
    /// Number of polls until the completion may be reported.
    polls: u32,
    /// Number of the request, and whether it is signalled. `None` unless `all_complete` is set.
    request: Option<(u64, bool)>,
}

impl Held {
    /// Returns whether this is the success of an unsignalled request, which is never reported.
    fn is_silent(&self) -> bool {
        self.completion.status == Status::Success && self.request.is_some_and(|(_, signalled)| !signalled)
    }
}

/// A queue pair: its depth, the number of signalled requests at the inner fabric, and the peer. If `all_complete` is
/// set, all requests are signalled there, and `failed` is the number of the first unsignalled request that failed.
struct Queue {
    qp: QpId,
    depth: u32,
    out: u32,
    peer: ProcessId,
    failed: Option<u64>,
}

#[derive(Clone, Copy)]
enum What {
    Tagged(u64),
    Imm(stentor_fabric::RemoteSpan, u32),
    Write(stentor_fabric::RemoteSpan),
}

/// Wraps a fabric whose completions come in order, or nearly so, and injects [`Faults`] with choices drawn from a seed.
/// The contract permits all of them under the capabilities that the wrapper reports. For example, it does not promise
/// that completions come in the order of posting.
///
/// Only tests and simulations use the wrapper, because it allocates.
pub struct FaultInjector<F> {
    inner: F,
    faults: Faults,
    capabilities: Capabilities,
    random: SplitMix64,
    held: Vec<Held>,
    late: Vec<Late>,
    queues: Vec<Queue>,
    /// Regions of this process.
    regions: Vec<RegionId>,
    /// Outstanding requests, if `all_complete` is set.
    ledger: Ledger,
    /// `true` once the completion queue has overrun, after which nothing can be posted, connected or reset.
    overran: bool,
    /// Events that the wrapper itself generates.
    events: VecDeque<Event>,
    /// Queue pairs with unsignalled requests since their last completion. Later requests on them are not delayed,
    /// because their completions would claim that the earlier ones are done.
    unsignalled: Vec<QpId>,
    /// Broken queue pairs, whose completions are reported at once.
    broken: Vec<QpId>,
    ready: VecDeque<Completion>,
    lost: u64,
    overtaken: u64,
}

impl<F: Fabric> FaultInjector<F> {
    /// Wraps a fabric.
    pub fn new(inner: F, faults: Faults) -> Self {
        let mask = CapabilityMask { ordered_writes: faults.writes, tagged: faults.untagged };
        let left = mask.apply(inner.capabilities());
        let capabilities = Capabilities {
            max_completions: left.max_completions.min(faults.max_completions),
            inline_bytes: left.inline_bytes.min(faults.inline_bytes),
            // Fan-out sets report only signalled writes, so they cannot emulate `all_complete`.
            hardware_multicast: left.hardware_multicast && !faults.all_complete,
            ..left
        };
        let random = SplitMix64(faults.seed ^ 0x6a09_e667_f3bc_c908);
        FaultInjector {
            inner,
            faults,
            capabilities,
            random,
            held: Vec::new(),
            late: Vec::new(),
            queues: Vec::new(),
            regions: Vec::new(),
            ledger: Ledger::default(),
            overran: false,
            events: VecDeque::new(),
            unsignalled: Vec::new(),
            broken: Vec::new(),
            ready: VecDeque::new(),
            lost: 0,
            overtaken: 0,
        }
    }

    /// Returns the wrapped fabric.
    pub fn inner(&self) -> &F {
        &self.inner
    }

    /// Returns the configured faults.
    pub fn faults(&self) -> Faults {
        self.faults
    }

    /// Returns the wrapped fabric, and drops all requests and completions that are held back.
    pub fn into_inner(self) -> F {
        self.inner
    }

    /// Returns the number of completions that were lost because too many were waiting.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Returns whether more requests were outstanding than the completion queue holds, after which nothing can be
    /// posted, connected or reset: see [`all_complete`](Faults::all_complete).
    pub fn has_overrun(&self) -> bool {
        self.overran
    }

    /// Returns the number of completions that were reported before an earlier one.
    pub fn overtaken(&self) -> u64 {
        self.overtaken
    }

    fn is_holding(&self) -> bool {
        let of_its_own = !self.ready.is_empty() || !self.events.is_empty();
        of_its_own || !self.held.is_empty() || !self.late.is_empty()
    }

    /// Collects the completions of the inner fabric.
    fn take_in(&mut self) {
        let mut completions = [Completion::BLANK; 32];
        loop {
            let count = self.inner.poll(&mut completions);
            for completion in &completions[..count] {
                self.keep(*completion);
            }
            if count < completions.len() {
                return;
            }
        }
    }

    fn keep(&mut self, completion: Completion) {
        self.unsignalled.retain(|qp| *qp != completion.qp);
        if self.overran {
            return;
        }
        let Completion { qp, opcode, .. } = completion;
        if let Some(queue) = self.queues.iter_mut().find(|queue| queue.qp == qp && !is_receive(opcode)) {
            queue.out = queue.out.saturating_sub(1);
        }
        let waiting = self.held.len() + self.ready.len();
        if !self.faults.all_complete && waiting >= self.faults.max_completions as usize {
            self.lost += 1;
            return;
        }
        let polls = if self.broken.contains(&qp) { 0 } else { self.faults.hold_polls };
        let polls = self.random.below(u64::from(polls) + 1) as u32;
        self.hold(completion, polls);
    }

    fn hold(&mut self, completion: Completion, polls: u32) {
        let Completion { qp, id, opcode, status, .. } = completion;
        let request = self.ledger.arrived(qp, id, opcode);
        if let Some((number, false)) = request.filter(|_| status != Status::Success)
            && let Some(queue) = self.queue(qp)
        {
            queue.failed = Some(queue.failed.map_or(number, |first| first.min(number)));
        }
        self.held.push(Held { completion, polls, request });
    }

    /// Records a posted receive and detects an overrun, if `all_complete` is set.
    fn received(&mut self, qp: QpId, id: u64, opcode: Opcode) {
        if self.faults.all_complete {
            self.ledger.post_recv(qp, id, opcode);
            self.count();
        }
    }

    /// Detects an overrun, if `all_complete` is set. If more is outstanding than the completion queue holds, the last
    /// completion could find no slot, and the outcome of every request is unknown. So all outstanding requests fail,
    /// and all queue pairs break for ever. Requests at the inner fabric may still land.
    fn count(&mut self) {
        let outstanding = self.ledger.outstanding() + self.ready.len();
        if outstanding <= self.faults.max_completions as usize {
            return;
        }
        self.overran = true;
        self.held.clear();
        self.late.clear();
        let status = Status::QueueOverrun;
        let failed = self.ledger.drain().into_iter();
        self.ready.extend(failed.map(|(qp, id, opcode)| failure(qp, id, opcode, status)));
        for queue in &self.queues {
            if !self.broken.contains(&queue.qp) {
                self.broken.push(queue.qp);
                self.events.push_back(Event::Disconnected { qp: queue.qp, peer: queue.peer });
            }
        }
    }

    /// Returns an error if the queue has overrun: nothing can be created or reset then.
    fn refuse(&self, peer: ProcessId) -> Result<(), ConnectError> {
        let reason = || {
            let limit = self.capabilities.max_completions;
            format!("the completion queue overran; keep what is outstanding below {limit}, signalled or not")
        };
        if self.overran { Err(ConnectError::System { peer, reason: reason() }) } else { Ok(()) }
    }

    fn refuse_post(&self, qp: QpId) -> Result<(), PostError> {
        if self.overran { Err(PostError::NotReady { qp, state: QpState::Error }) } else { Ok(()) }
    }

    fn check_inline(&self, bytes: u64) -> Result<(), PostError> {
        let limit = self.capabilities.inline_bytes;
        if bytes > u64::from(limit) { Err(PostError::InlineTooLong { bytes, limit }) } else { Ok(()) }
    }

    fn queue(&mut self, qp: QpId) -> Option<&mut Queue> {
        self.queues.iter_mut().find(|queue| queue.qp == qp)
    }

    /// Posts late requests in random order. Without [`writes`](Faults::writes), some of them may stay late until a
    /// later call.
    fn release(&mut self) {
        let mut tries = self.late.len() as u64;
        while tries > 0 && !self.late.is_empty() {
            tries -= 1;
            let place = self.random.below(self.late.len() as u64) as usize;
            // With `writes`, every flush posts all late requests, and only their order changes.
            if !self.faults.writes && self.random.below(3) == 0 {
                continue;
            }
            let Late { qp, id, data, what } = self.late.remove(place);
            let source = data.as_ref().map_or_else(|span| Source::Region(*span), |bytes| Source::Inline(bytes));
            let (verb, opcode) = match what {
                What::Tagged(tag) => (Verb::TaggedSend { source, tag }, Opcode::TaggedSend),
                What::Imm(target, imm) => (Verb::WriteImm { source, target, imm }, Opcode::Write),
                What::Write(target) => (Verb::Write { source, target }, Opcode::Write),
            };
            if self.inner.post(qp, WorkRequest { id, verb, signalled: true }).is_err() {
                self.flush_one(qp, id, opcode);
            } else if let Some(queue) = self.queue(qp) {
                queue.out += 1;
            }
        }
    }

    fn flush_one(&mut self, qp: QpId, id: u64, opcode: Opcode) {
        self.hold(failure(qp, id, opcode, Status::Flushed), 0);
    }

    /// Handles the break of a queue pair: all its completions become due at once.
    fn give_up(&mut self, qp: QpId) {
        self.broken.push(qp);
        self.unsignalled.retain(|of| *of != qp);
        let (late, others) = std::mem::take(&mut self.late).into_iter().partition(|late| late.qp == qp);
        self.late = others;
        let late: Vec<Late> = late;
        for late in late {
            let opcode = if matches!(late.what, What::Tagged(_)) { Opcode::TaggedSend } else { Opcode::Write };
            self.flush_one(qp, late.id, opcode);
        }
        self.take_in();
        for held in self.held.iter_mut().filter(|held| held.completion.qp == qp) {
            held.polls = 0;
        }
        if let Some(queue) = self.queue(qp) {
            queue.out = 0;
        }
    }

    /// Returns whether a write is valid as far as this wrapper can check it. The inner fabric refuses invalid ones at
    /// once.
    fn may_be_late(&self, source: Source<'_>, target: stentor_fabric::RemoteSpan) -> bool {
        let bytes = source.bytes();
        let sound = match source {
            Source::Inline(_) => bytes <= u64::from(self.capabilities.inline_bytes),
            Source::Region(span) => {
                let words = self.regions.contains(&span.region).then(|| self.inner.memory(span.region).len());
                let whole = words.unwrap_or(0) as u64 * stentor_fabric::memory::WORD as u64;
                let inside = span.offset.checked_add(bytes).is_some_and(|end| end <= whole);
                inside && span.offset.is_multiple_of(8) && bytes <= self.capabilities.max_message_bytes
            }
        };
        sound && (target.offset | bytes).is_multiple_of(8)
    }

    /// Returns the copied source and the kind of a request, if it may be posted late.
    fn lateness(&self, request: &WorkRequest<'_>) -> Option<(Result<Vec<u8>, Span>, What)> {
        let Faults { arrivals, writes, .. } = self.faults;
        let unordered = !self.capabilities.ordered_writes;
        let (source, what) = match request.verb {
            Verb::TaggedSend { source, tag } if arrivals => (source, What::Tagged(tag)),
            Verb::WriteImm { source, target, imm }
                if writes && self.may_be_late(source, target) || !writes && arrivals && unordered =>
            {
                (source, What::Imm(target, imm))
            }
            Verb::Write { source, target } if writes && self.may_be_late(source, target) => {
                (source, What::Write(target))
            }
            _ => return None,
        };
        let data = match source {
            Source::Inline(data) => Ok(data.to_vec()),
            Source::Region(span) => Err(span),
        };
        (request.signalled || self.faults.all_complete).then_some((data, what))
    }

    /// Posts a request, now or later.
    fn hand_over(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        let may = self.queues.iter().any(|queue| queue.qp == qp) && !self.unsignalled.contains(&qp);
        if let Some((data, what)) = self.lateness(&request).filter(|_| may) {
            let state = self.inner.state(qp);
            if state != QpState::Ready {
                return Err(PostError::NotReady { qp, state });
            }
            self.late.push(Late { qp, id: request.id, data, what });
            return Ok(());
        }
        let signalled = request.signalled || self.faults.all_complete;
        self.inner.post(qp, WorkRequest { signalled, ..request })?;
        if let Some(queue) = self.queue(qp) {
            queue.out += u32::from(signalled);
        }
        if self.faults.writes && !signalled && !self.unsignalled.contains(&qp) {
            self.unsignalled.push(qp);
        }
        Ok(())
    }

    /// Removes due completions of unsignalled requests from the queue.
    fn take_silent(&mut self) {
        let ledger = &mut self.ledger;
        self.held.retain(|held| {
            let taken = held.polls == 0 && held.is_silent();
            if let Some((number, _)) = held.request.filter(|_| taken) {
                ledger.taken(number);
            }
            !taken
        });
    }

    /// Returns whether a completion would claim that earlier requests are done although they are not.
    fn is_held_up(&self, held: &Held) -> bool {
        let Completion { qp, status, .. } = held.completion;
        let success = status == Status::Success && !self.broken.contains(&qp);
        held.request.is_some_and(|(number, _)| success && self.ledger.is_held_up(qp, number))
    }

    fn tell(&mut self, place: usize) {
        let Held { mut completion, request, .. } = self.held[place];
        let Completion { qp, id, opcode, .. } = completion;
        // A success after a failed unsignalled request would claim that the failed one succeeded, too.
        let failed = self.queue(qp).and_then(|queue| queue.failed);
        if completion.status == Status::Success
            && request.zip(failed).is_some_and(|((number, _), failed)| number > failed)
        {
            completion.status = Status::Flushed;
        }
        match request {
            Some((number, _)) => self.ledger.told(qp, number),
            None if is_receive(opcode) => self.ledger.received(qp, id, opcode),
            None => {}
        }
        self.ready.push_back(completion);
    }
}

fn is_receive(opcode: Opcode) -> bool {
    matches!(opcode, Opcode::Recv | Opcode::RecvWriteImm | Opcode::TaggedRecv)
}

fn failure(qp: QpId, id: u64, opcode: Opcode, status: Status) -> Completion {
    Completion { qp, id, opcode, status, bytes: 0, imm: None, tag: 0 }
}

/// Returns the length of the inline data of a request, in bytes.
fn inline_of(verb: &Verb<'_>) -> u64 {
    match verb {
        Verb::Write { source, .. }
        | Verb::WriteImm { source, .. }
        | Verb::Send { source, .. }
        | Verb::TaggedSend { source, .. } => match source {
            Source::Inline(data) => data.len() as u64,
            Source::Region(_) => 0,
        },
        Verb::Read { .. } | Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => 0,
    }
}

impl<F: Fabric> Fabric for FaultInjector<F> {
    crate::forward! {
        inner;
        &self {
            me() -> ProcessId;
            memory(region: RegionId) -> &[Word];
            set_reaches(set: QpId, peer: ProcessId) -> bool;
            set_settled(set: QpId, peer: ProcessId) -> bool;
            descriptor() -> Option<BorrowedFd<'_>>;
            waker() -> Waker;
        }
        &mut self {
            grant(region: RegionId, peer: ProcessId, access: Access) -> Result<(), AccessError>;
            revoke(region: RegionId, peer: ProcessId) -> Result<(), AccessError>;
            resolve(peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion>;
            arm();
        }
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn register(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        let region = self.inner.register(spec)?;
        self.regions.push(region);
        Ok(region)
    }

    fn connect(&mut self, peer: ProcessId, service: Service, config: QpConfig) -> Result<QpId, ConnectError> {
        self.refuse(peer)?;
        let qp = self.inner.connect(peer, service, config)?;
        self.queues.push(Queue { qp, depth: config.send_depth, out: 0, peer, failed: None });
        Ok(qp)
    }

    fn state(&self, qp: QpId) -> QpState {
        if self.overran { QpState::Error } else { self.inner.state(qp) }
    }

    fn disconnect(&mut self, qp: QpId) -> Result<(), ConnectError> {
        self.inner.disconnect(qp)
    }

    fn reset(&mut self, qp: QpId) -> Result<(), ConnectError> {
        if let Some(peer) = self.queue(qp).map(|queue| queue.peer) {
            self.refuse(peer)?;
        }
        self.inner.reset(qp)?;
        self.broken.retain(|broken| *broken != qp);
        // Drop the completions and late requests of the old connection, even if its `Disconnected` event was not
        // reported yet.
        self.late.retain(|late| late.qp != qp);
        self.held.retain(|held| held.completion.qp != qp);
        self.ready.retain(|completion| completion.qp != qp);
        self.unsignalled.retain(|of| *of != qp);
        if let Some(queue) = self.queue(qp) {
            (queue.out, queue.failed) = (0, None);
        }
        self.ledger.forget(qp);
        Ok(())
    }

    fn post(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        if matches!(request.verb, Verb::TaggedSend { .. }) && !self.capabilities.tagged {
            return Err(PostError::Unsupported("tagged send"));
        }
        self.refuse_post(qp)?;
        self.check_inline(inline_of(&request.verb))?;
        let all_complete = self.faults.all_complete;
        let late = self.late.iter().filter(|late| late.qp == qp).count() as u32;
        if let Some(Queue { depth, out, .. }) = self.queues.iter().find(|queue| queue.qp == qp) {
            let in_use = if all_complete { self.ledger.in_use(qp) } else { late + out };
            if in_use >= *depth {
                return Err(PostError::SendQueueFull { qp, depth: *depth });
            }
        }
        if !all_complete {
            return self.hand_over(qp, request);
        }
        self.ledger.post(qp, request.id, request.verb.opcode(), request.signalled);
        if let Err(error) = self.hand_over(qp, request) {
            self.ledger.unpost();
            return Err(error);
        }
        self.count();
        Ok(())
    }

    fn post_recv(&mut self, qp: QpId, local: Span, id: u64) -> Result<(), PostError> {
        self.refuse_post(qp)?;
        self.inner.post_recv(qp, local, id)?;
        self.received(qp, id, Opcode::Recv);
        Ok(())
    }

    fn post_tagged_recv(&mut self, qp: QpId, local: Span, tag: u64, ignore: u64, id: u64) -> Result<(), PostError> {
        if !self.capabilities.tagged {
            return Err(PostError::Unsupported("tagged receive"));
        }
        self.refuse_post(qp)?;
        self.inner.post_tagged_recv(qp, local, tag, ignore, id)?;
        self.received(qp, id, Opcode::TaggedRecv);
        Ok(())
    }

    fn cancel_tagged_recv(&mut self, qp: QpId, id: u64) -> Result<(), PostError> {
        self.refuse_post(qp)?;
        self.inner.cancel_tagged_recv(qp, id)
    }

    fn join_set(&mut self, spec: SetSpec<'_>, config: QpConfig) -> Result<QpId, ConnectError> {
        if !self.capabilities.hardware_multicast {
            return Err(ConnectError::NoSets);
        }
        self.refuse(self.me())?;
        let qp = self.inner.join_set(spec, config)?;
        self.queues.push(Queue { qp, depth: config.send_depth, out: 0, peer: self.inner.me(), failed: None });
        Ok(qp)
    }

    /// Posts the write without delay. There is no order between the writes of a set and other requests, so reordering
    /// would test nothing.
    fn post_set(&mut self, set: QpId, write: SetWrite<'_>) -> Result<(), PostError> {
        if !self.capabilities.hardware_multicast {
            return Err(PostError::Unsupported("multicast by the network"));
        }
        self.refuse_post(set)?;
        self.check_inline(write.data.len() as u64)?;
        self.inner.post_set(set, write)
    }

    fn flush(&mut self) {
        self.release();
        self.inner.flush();
    }

    fn poll_hint(&mut self) -> PollHint {
        if self.is_holding() { PollHint::ANYBODY } else { self.inner.poll_hint() }
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.release();
        self.take_in();
        for held in &mut self.held {
            held.polls = held.polls.saturating_sub(1);
        }
        self.take_silent();
        let is_due = |held: &Held| held.polls == 0 && !self.is_held_up(held);
        let mut due: Vec<usize> = (0..self.held.len()).filter(|place| is_due(&self.held[*place])).collect();
        if self.faults.hold_polls > 0 {
            for last in (1..due.len()).rev() {
                let other = self.random.below(last as u64 + 1) as usize;
                due.swap(last, other);
            }
        }
        let mut told = vec![false; self.held.len()];
        for place in due {
            self.overtaken += u64::from(told[..place].iter().any(|told| !told));
            told[place] = true;
            self.tell(place);
        }
        let mut told = told.into_iter();
        self.held.retain(|_| !told.next().unwrap_or(false));
        let count = self.ready.len().min(out.len());
        for (to, completion) in out.iter_mut().zip(self.ready.drain(..count)) {
            *to = completion;
        }
        count
    }

    fn next_event(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        loop {
            let event = self.inner.next_event()?;
            match event {
                Event::Revoked { .. } => {}
                _ if self.overran => continue,
                Event::Disconnected { qp, .. } => self.give_up(qp),
                // `Disconnected` of the old connection may have been reported after the reset.
                Event::Connected { qp, .. } => self.broken.retain(|broken| *broken != qp),
            }
            return Some(event);
        }
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        self.release();
        if !self.is_holding() {
            return self.inner.wait(timeout);
        }
        self.inner.wait(timeout.min(Duration::from_micros(1)))?;
        Ok(Wake::Notified)
    }
}
