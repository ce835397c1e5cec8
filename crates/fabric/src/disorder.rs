//! A fabric that gives things back in another order: what EFA may do, on fabrics that do not do it.

use std::collections::VecDeque;
use std::time::Duration;

use crate::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, Fabric, Heard, Opcode, PostError, ProcessId,
    Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec, RegisterError, RemoteRegion, Service, Source, Span, Status,
    Verb, WaitError, Wake, Word, WorkRequest,
};

/// What a [`Disorder`] does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Disorders {
    /// Decides everything.
    pub seed: u64,
    /// Completions are held back for up to so many polls, each for itself; 0: not at all, and in their order.
    pub hold_polls: u32,
    /// Tagged sends, and WRITE_WITH_IMMs where writes have no order, are posted in another order: for fabrics that do not
    /// promise send-after-send.
    pub arrivals: bool,
    /// How many completions are kept until they are polled; what is beyond is lost.
    pub max_completions: u32,
}

impl Disorders {
    /// Completions in any order, nothing else.
    #[must_use]
    pub fn completions(seed: u64) -> Self {
        Disorders { seed, hold_polls: 8, arrivals: false, max_completions: u32::MAX }
    }
}

/// A request that is not posted yet.
struct Late {
    qp: QpId,
    id: u64,
    data: Result<Vec<u8>, Span>,
    what: What,
}

#[derive(Clone, Copy)]
enum What {
    Tagged(u64),
    Imm(crate::RemoteSpan, u32),
}

/// Wraps a fabric whose completions come in order, or nearly so, and hands them out in an order drawn from a seed. All that
/// the contract promises stays true, but rule 1's order of completions, which EFA does not promise either.
///
/// For tests: it allocates.
pub struct Disorder<F> {
    inner: F,
    disorders: Disorders,
    capabilities: Capabilities,
    random: u64,
    /// Completions, and in how many polls they may be told.
    held: Vec<(Completion, u32)>,
    late: Vec<Late>,
    /// Requests of a queue pair that the inner fabric has, and its depth.
    queues: Vec<(QpId, u32, u32)>,
    /// Queue pairs that are broken: what comes of them comes at once.
    broken: Vec<QpId>,
    ready: VecDeque<Completion>,
    lost: u64,
    overtaken: u64,
}

impl<F: Fabric> Disorder<F> {
    /// Wraps a fabric.
    pub fn new(inner: F, disorders: Disorders) -> Self {
        let max_completions = inner.capabilities().max_completions.min(disorders.max_completions);
        let capabilities = Capabilities { max_completions, ..inner.capabilities().clone() };
        let random = disorders.seed ^ 0x6a09_e667_f3bc_c908;
        Disorder {
            inner,
            disorders,
            capabilities,
            random,
            held: Vec::new(),
            late: Vec::new(),
            queues: Vec::new(),
            broken: Vec::new(),
            ready: VecDeque::new(),
            lost: 0,
            overtaken: 0,
        }
    }

    /// The wrapped fabric.
    pub fn inner(&self) -> &F {
        &self.inner
    }

    /// The wrapped fabric; what is held back is forgotten.
    pub fn into_inner(self) -> F {
        self.inner
    }

    /// Completions that were lost because too many waited.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Completions that were told before one that had come earlier.
    pub fn overtaken(&self) -> u64 {
        self.overtaken
    }

    fn below(&mut self, limit: u64) -> u64 {
        // splitmix64
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % limit.max(1)
    }

    fn is_holding(&self) -> bool {
        !self.held.is_empty() || !self.late.is_empty() || !self.ready.is_empty()
    }

    /// Takes what the inner fabric has.
    fn take_in(&mut self) {
        let none = Completion {
            qp: QpId(0),
            id: 0,
            opcode: Opcode::Write,
            status: Status::Success,
            bytes: 0,
            imm: None,
            tag: 0,
        };
        let mut completions = [none; 32];
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
        let received = matches!(completion.opcode, Opcode::Recv | Opcode::RecvWriteImm | Opcode::TaggedRecv);
        if let Some((.., out)) = self.queues.iter_mut().find(|(qp, ..)| *qp == completion.qp && !received) {
            *out = out.saturating_sub(1);
        }
        if self.held.len() + self.ready.len() >= self.disorders.max_completions as usize {
            self.lost += 1;
            return;
        }
        let polls = if self.broken.contains(&completion.qp) { 0 } else { self.disorders.hold_polls };
        let polls = self.below(u64::from(polls) + 1) as u32;
        self.held.push((completion, polls));
    }

    /// Posts some of what is late, in any order.
    fn release(&mut self) {
        let mut tries = self.late.len() as u64;
        while tries > 0 && !self.late.is_empty() {
            tries -= 1;
            let place = self.below(self.late.len() as u64) as usize;
            if self.below(3) == 0 {
                continue;
            }
            let Late { qp, id, data, what } = self.late.remove(place);
            let source = data.as_ref().map_or_else(|span| Source::Region(*span), |bytes| Source::Inline(bytes));
            let (verb, opcode) = match what {
                What::Tagged(tag) => (Verb::TaggedSend { source, tag }, Opcode::TaggedSend),
                What::Imm(target, imm) => (Verb::WriteImm { source, target, imm }, Opcode::Write),
            };
            if self.inner.post(qp, WorkRequest { id, verb, signalled: true }).is_err() {
                self.flush_one(qp, id, opcode);
            } else if let Some((.., out)) = self.queues.iter_mut().find(|(of, ..)| *of == qp) {
                *out += 1;
            }
        }
    }

    fn flush_one(&mut self, qp: QpId, id: u64, opcode: Opcode) {
        let status = Status::Flushed;
        self.held.push((Completion { qp, id, opcode, status, bytes: 0, imm: None, tag: 0 }, 0));
    }

    /// A queue pair broke: all that is known of it comes now.
    fn give_up(&mut self, qp: QpId) {
        self.broken.push(qp);
        let (late, others) = std::mem::take(&mut self.late).into_iter().partition(|late| late.qp == qp);
        self.late = others;
        let late: Vec<Late> = late;
        for late in late {
            let opcode = if matches!(late.what, What::Tagged(_)) { Opcode::TaggedSend } else { Opcode::Write };
            self.flush_one(qp, late.id, opcode);
        }
        self.take_in();
        for (completion, polls) in &mut self.held {
            if completion.qp == qp {
                *polls = 0;
            }
        }
        if let Some((.., out)) = self.queues.iter_mut().find(|(of, ..)| *of == qp) {
            *out = 0;
        }
    }

    /// Whether a request is one that may be late; its source, copied, and the rest.
    fn lateness(&self, request: &WorkRequest<'_>) -> Option<(Result<Vec<u8>, Span>, What)> {
        let (source, what) = match request.verb {
            Verb::TaggedSend { source, tag } => (source, What::Tagged(tag)),
            Verb::WriteImm { source, target, imm } if !self.capabilities.ordered_writes => {
                (source, What::Imm(target, imm))
            }
            _ => return None,
        };
        let data = match source {
            Source::Inline(data) => Ok(data.to_vec()),
            Source::Region(span) => Err(span),
        };
        (self.disorders.arrivals && request.signalled).then_some((data, what))
    }
}

impl<F: Fabric> Fabric for Disorder<F> {
    fn me(&self) -> ProcessId {
        self.inner.me()
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn register(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        self.inner.register(spec)
    }

    fn memory(&self, region: RegionId) -> &[Word] {
        self.inner.memory(region)
    }

    fn grant(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<(), AccessError> {
        self.inner.grant(region, peer, access)
    }

    fn revoke(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        self.inner.revoke(region, peer)
    }

    fn connect(&mut self, peer: ProcessId, service: Service, config: QpConfig) -> Result<QpId, ConnectError> {
        let qp = self.inner.connect(peer, service, config)?;
        self.queues.push((qp, config.send_depth, 0));
        Ok(qp)
    }

    fn state(&self, qp: QpId) -> QpState {
        self.inner.state(qp)
    }

    fn reset(&mut self, qp: QpId) -> Result<(), ConnectError> {
        self.broken.retain(|broken| *broken != qp);
        self.inner.reset(qp)
    }

    fn resolve(&mut self, peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion> {
        self.inner.resolve(peer, purpose)
    }

    fn post(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        let late = self.late.iter().filter(|late| late.qp == qp).count() as u32;
        if let Some((_, depth, out)) = self.queues.iter().find(|(of, ..)| *of == qp)
            && late + out >= *depth
        {
            return Err(PostError::SendQueueFull { qp, depth: *depth });
        }
        if let Some((data, what)) = self.lateness(&request) {
            let state = self.inner.state(qp);
            if state != QpState::Ready {
                return Err(PostError::NotReady { qp, state });
            }
            self.late.push(Late { qp, id: request.id, data, what });
            return Ok(());
        }
        self.inner.post(qp, request)?;
        if let Some((.., out)) = self.queues.iter_mut().find(|(of, ..)| *of == qp) {
            *out += u32::from(request.signalled);
        }
        Ok(())
    }

    fn post_recv(&mut self, qp: QpId, local: Span, id: u64) -> Result<(), PostError> {
        self.inner.post_recv(qp, local, id)
    }

    fn post_tagged_recv(&mut self, qp: QpId, local: Span, tag: u64, ignore: u64, id: u64) -> Result<(), PostError> {
        self.inner.post_tagged_recv(qp, local, tag, ignore, id)
    }

    fn cancel_tagged_recv(&mut self, qp: QpId, id: u64) -> Result<(), PostError> {
        self.inner.cancel_tagged_recv(qp, id)
    }

    fn flush(&mut self) {
        self.release();
        self.inner.flush();
    }

    fn listen(&mut self) -> Heard {
        if self.is_holding() { Heard::ANYBODY } else { self.inner.listen() }
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.release();
        self.take_in();
        for (_, polls) in &mut self.held {
            *polls = polls.saturating_sub(1);
        }
        let mut due: Vec<usize> = (0..self.held.len()).filter(|place| self.held[*place].1 == 0).collect();
        if self.disorders.hold_polls > 0 {
            for last in (1..due.len()).rev() {
                let other = self.below(last as u64 + 1) as usize;
                due.swap(last, other);
            }
        }
        let mut told = vec![false; self.held.len()];
        for place in due {
            self.overtaken += u64::from(told[..place].iter().any(|told| !told));
            told[place] = true;
            self.ready.push_back(self.held[place].0);
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
        let event = self.inner.next_event()?;
        if let Event::Disconnected { qp, .. } = event {
            self.give_up(qp);
        }
        Some(event)
    }

    fn arm(&mut self) {
        self.inner.arm();
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        self.release();
        if !self.is_holding() {
            return self.inner.wait(timeout);
        }
        self.inner.wait(timeout.min(Duration::from_micros(1)))?;
        Ok(Wake::Notified)
    }

    fn raw_fd(&self) -> Option<i32> {
        self.inner.raw_fd()
    }
}
