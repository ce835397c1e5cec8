//! The fabric of one simulated process.

use std::cell::RefCell;
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use stentor_fabric::memory::{LINE, WORD};
use stentor_fabric::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, Fabric, Opcode, PostError, ProcessId, Purpose,
    QpConfig, QpId, QpState, RegionId, RegionSpec, RegisterError, RemoteRegion, Service, SetSpec, SetWrite, Source,
    Span, Status, Verb, WaitError, Wake, Waker, Word, WorkRequest,
};

use crate::memory::{Region, pack};
use crate::qp::{Message, PostedRecv, Queued, RequestKind, Sent};
use crate::state::State;

/// The fabric of one life of one process. After the crash of that life, calls have no effect, and those that create
/// something fail.
pub struct SimFabric {
    state: Rc<RefCell<State>>,
    me: ProcessId,
    life: u32,
    capabilities: Capabilities,
    regions: Vec<Rc<[Word]>>,
}

impl SimFabric {
    pub(crate) fn new(state: Rc<RefCell<State>>, me: ProcessId) -> Self {
        let (life, capabilities, regions) = {
            let state = state.borrow();
            let process = &state.processes[me.index()];
            let regions = process.regions.iter().map(|region| Rc::clone(&region.words)).collect();
            (process.life, state.capabilities.clone(), regions)
        };
        SimFabric { state, me, life, capabilities, regions }
    }

    /// Returns the life of the process, counted from 1. The fabric does not send it to peers; protocols do that.
    #[must_use]
    pub fn life(&self) -> u32 {
        self.life
    }

    fn alive(&self, state: &State) -> bool {
        let process = &state.processes[self.me.index()];
        process.up && process.life == self.life
    }

    /// Runs `act` on the world, unless this life has crashed.
    fn with<R>(&self, dead: R, act: impl FnOnce(&mut State, ProcessId) -> R) -> R {
        let mut state = self.state.borrow_mut();
        if self.alive(&state) { act(&mut state, self.me) } else { dead }
    }
}

impl Fabric for SimFabric {
    fn me(&self) -> ProcessId {
        self.me
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn register(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        let RegionSpec { purpose, writer, bytes } = spec;
        if bytes == 0 || !bytes.is_multiple_of(LINE as u64) {
            return Err(RegisterError::Size { bytes });
        }
        let mut state = self.state.borrow_mut();
        if writer.index() >= state.processes.len() {
            return Err(RegisterError::UnknownProcess(writer));
        }
        if !self.alive(&state) {
            return Err(RegisterError::System { bytes, reason: "this process has crashed".to_string() });
        }
        let regions = &mut state.processes[self.me.index()].regions;
        if regions.iter().any(|region| region.spec.purpose == purpose && region.spec.writer == writer) {
            return Err(RegisterError::Duplicate { purpose, writer });
        }
        let region = Region::new(spec);
        self.regions.push(Rc::clone(&region.words));
        regions.push(region);
        Ok(RegionId(self.regions.len() as u32 - 1))
    }

    fn memory(&self, region: RegionId) -> &[Word] {
        &self.regions[region.index()]
    }

    fn grant(&mut self, region: RegionId, peer: ProcessId, access: Access) -> Result<(), AccessError> {
        self.with(Ok(()), |state, me| state.grant(me, region, peer, access))
    }

    fn revoke(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        self.with(Ok(()), |state, me| state.revoke(me, region, peer))
    }

    fn connect(&mut self, peer: ProcessId, service: Service, config: QpConfig) -> Result<QpId, ConnectError> {
        let reason = "this process has crashed".to_string();
        let dead = Err(ConnectError::Refused { peer, reason });
        self.with(dead, |state, me| state.connect(me, peer, service, config))
    }

    fn state(&self, qp: QpId) -> QpState {
        self.with(QpState::Error, |state, me| state.qp(me, qp).state)
    }

    fn disconnect(&mut self, qp: QpId) -> Result<(), ConnectError> {
        self.with(Ok(()), |state, me| state.disconnect(me, qp))
    }

    fn reset(&mut self, qp: QpId) -> Result<(), ConnectError> {
        self.with(Ok(()), |state, me| state.reset(me, qp))
    }

    fn resolve(&mut self, peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion> {
        self.with(None, |state, me| state.processes[me.index()].resolved.get(&(peer.0, purpose.0)).copied())
    }

    fn post(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        self.with(Ok(()), |state, me| state.post(me, qp, &request))
    }

    fn post_recv(&mut self, qp: QpId, local: Span, id: u64) -> Result<(), PostError> {
        self.with(Ok(()), |state, me| state.post_recv(me, qp, PostedRecv { id, local, tag: None }))
    }

    fn post_tagged_recv(&mut self, qp: QpId, local: Span, tag: u64, ignore: u64, id: u64) -> Result<(), PostError> {
        if !self.capabilities.tagged {
            return Err(PostError::Unsupported("tagged receives"));
        }
        self.with(Ok(()), |state, me| state.post_recv(me, qp, PostedRecv { id, local, tag: Some((tag, ignore)) }))
    }

    fn cancel_tagged_recv(&mut self, qp: QpId, id: u64) -> Result<(), PostError> {
        if !self.capabilities.tagged {
            return Err(PostError::Unsupported("tagged receives"));
        }
        self.with(Ok(()), |state, me| state.cancel_tagged_recv(me, qp, id))
    }

    fn join_set(&mut self, spec: SetSpec<'_>, config: QpConfig) -> Result<QpId, ConnectError> {
        let dead = ConnectError::Refused { peer: self.me, reason: "this process has crashed".to_string() };
        self.with(Err(dead), |state, me| state.join_set(me, spec, config))
    }

    fn set_reaches(&self, set: QpId, peer: ProcessId) -> bool {
        self.with(false, |state, me| state.set_reaches(me, set, peer))
    }

    fn set_settled(&self, set: QpId, peer: ProcessId) -> bool {
        self.with(true, |state, me| state.set_settled(me, set, peer))
    }

    fn post_set(&mut self, set: QpId, write: SetWrite<'_>) -> Result<(), PostError> {
        if !self.capabilities.hardware_multicast {
            return Err(PostError::Unsupported("multicast by the network"));
        }
        self.with(Ok(()), |state, me| state.post_set(me, set, write))
    }

    fn flush(&mut self) {
        self.with((), State::flush);
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        self.with(0, |state, me| state.poll(me, out))
    }

    fn next_event(&mut self) -> Option<Event> {
        self.with(None, |state, me| state.processes[me.index()].events.pop_front())
    }

    fn arm(&mut self) {
        self.with((), |state, me| state.processes[me.index()].notified = false);
    }

    /// Returns at once: a process sleeps by not being run. The timeout counts in virtual time.
    fn wait(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        let timeout = u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX);
        Ok(self.with(Wake::TimedOut, |state, me| state.wait(me, timeout)))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Returns a waker that does nothing: [`wait`](Fabric::wait) returns at once, and virtual time has no other
    /// threads.
    fn waker(&self) -> Waker {
        Waker::new(|| ())
    }
}

impl State {
    fn wait(&mut self, me: ProcessId, timeout_ns: u64) -> Wake {
        self.flush(me);
        if std::mem::take(&mut self.processes[me.index()].notified) {
            self.wake(me);
            return Wake::Notified;
        }
        let at = self.now.saturating_add(timeout_ns);
        let wake_at = &mut self.processes[me.index()].wake_at;
        *wake_at = Some(wake_at.map_or(at, |planned| planned.min(at)));
        Wake::TimedOut
    }

    fn poll(&mut self, me: ProcessId, out: &mut [Completion]) -> usize {
        self.flush(me);
        let owner = &mut self.processes[me.index()];
        let count = owner.completions.len().min(out.len());
        for (to, queued) in out.iter_mut().zip(owner.completions.drain(..count)) {
            *to = queued.completion;
            if let Some(seq) = queued.seq {
                owner.qps[queued.completion.qp.index()].free_places(seq);
            }
        }
        count
    }

    fn post(&mut self, me: ProcessId, qp: QpId, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let bytes = self.check_post(me, qp, &request.verb)?;
        let entry = self.qp_mut(me, qp);
        let (to, to_qp, connection, reliable) = (entry.peer, entry.peer_qp, entry.connection, entry.reliable());
        entry.posted += 1;
        let seq = entry.posted;
        let (kind, source) = dissect(&request.verb);
        let (id, opcode, signalled) = (request.id, kind.opcode(), request.signalled);
        entry.sent.push_back(Sent { id, opcode, signalled, outcome: None, visible_at: 0, copies: 1, partly: false });
        let link = self.link(me, to);
        link.posted += 1;
        let pair_seq = link.posted;
        self.flows += 1;
        let flow = self.flows;
        let (data, unread) = self.take_source(me, source);
        let message = Message {
            from: me,
            from_qp: qp,
            to,
            to_qp,
            connection,
            reliable,
            seq,
            order: seq,
            copy: None,
            pair_seq,
            kind,
            bytes: bytes as u32,
            data,
            unread,
            departs: u64::MAX,
            dropped: false,
            partial: false,
            executed: false,
            visible_at: 0,
            status: Status::Success,
            flow,
        };
        self.process_counts[me.index()].to[to.index()].count(&request.verb, bytes);
        self.hand_to_network(me, message);
        self.crash_at_post(me);
        Ok(())
    }

    /// Reads the source now, or leaves it to be read when the request executes.
    fn take_source(&mut self, me: ProcessId, source: Option<Source<'_>>) -> (Vec<u64>, Option<Span>) {
        let mut data = self.buffer();
        match source {
            None => (data, None),
            Some(Source::Inline(bytes)) => {
                pack(bytes, &mut data);
                (data, None)
            }
            Some(Source::Region(span)) if span.bytes > 0 && self.rng.chance(self.model.late_source_reads) => {
                (data, Some(span))
            }
            Some(Source::Region(span)) => {
                if span.bytes > 0 {
                    self.nic_read(me, span, &mut data);
                }
                (data, None)
            }
        }
    }

    /// Checks that a request may be posted. Returns the number of bytes that it moves.
    fn check_post(&self, me: ProcessId, qp: QpId, verb: &Verb<'_>) -> Result<u64, PostError> {
        let entry = self.processes[me.index()].qps.get(qp.index()).ok_or(PostError::UnknownQp(qp))?;
        if entry.state != QpState::Ready {
            return Err(PostError::NotReady { qp, state: entry.state });
        }
        if entry.set.is_some() {
            return Err(PostError::Unsupported("operation other than post_set on a set's queue pair"));
        }
        self.check_supported(verb, entry.reliable())?;
        let bytes = match verb {
            Verb::Write { source, target } | Verb::WriteImm { source, target, .. } => {
                aligned(target.offset, source.bytes())?;
                self.check_source(me, source)?
            }
            Verb::Send { source, .. } | Verb::TaggedSend { source, .. } => self.check_source(me, source)?,
            Verb::Read { local, remote } => {
                aligned(remote.offset, u64::from(local.bytes))?;
                self.check_span(me, local)?
            }
            Verb::CompareSwap { local, remote, .. } | Verb::FetchAdd { local, remote, .. } => {
                aligned(remote.offset, 0)?;
                if local.bytes as usize != WORD {
                    return Err(PostError::Misaligned { offset: local.offset, bytes: u64::from(local.bytes) });
                }
                self.check_span(me, local)?
            }
        };
        if bytes > self.model.max_message_bytes {
            return Err(PostError::TooLong { bytes, limit: self.model.max_message_bytes });
        }
        if entry.sent.len() >= entry.config.send_depth as usize {
            return Err(PostError::SendQueueFull { qp, depth: entry.config.send_depth });
        }
        Ok(bytes)
    }

    fn check_supported(&self, verb: &Verb<'_>, reliable: bool) -> Result<(), PostError> {
        match verb {
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } if !self.model.atomics => {
                Err(PostError::Unsupported("atomics"))
            }
            Verb::TaggedSend { .. } if !self.model.tagged => Err(PostError::Unsupported("tagged sends")),
            Verb::Read { .. } if !reliable => Err(PostError::Unsupported("READ on an unreliable queue pair")),
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } if !reliable => {
                Err(PostError::Unsupported("atomics on an unreliable queue pair"))
            }
            Verb::TaggedSend { .. } if !reliable => {
                Err(PostError::Unsupported("tagged sends on an unreliable queue pair"))
            }
            _ => Ok(()),
        }
    }

    fn check_source(&self, me: ProcessId, source: &Source<'_>) -> Result<u64, PostError> {
        match source {
            Source::Inline(data) if data.len() > self.model.inline_bytes as usize => {
                Err(PostError::InlineTooLong { bytes: data.len() as u64, limit: self.model.inline_bytes })
            }
            Source::Inline(data) => Ok(data.len() as u64),
            Source::Region(span) => self.check_span(me, span),
        }
    }

    fn check_span(&self, me: ProcessId, span: &Span) -> Result<u64, PostError> {
        let Span { region, offset, bytes } = *span;
        let bytes = u64::from(bytes);
        aligned(offset, 0)?;
        let size = self.processes[me.index()].regions.get(region.index()).map(|entry| entry.spec.bytes);
        match (size, offset.checked_add(bytes)) {
            (Some(size), Some(end)) if end <= size => Ok(bytes),
            _ => Err(PostError::OutOfLocalRegion { region, offset, bytes }),
        }
    }

    /// Posts a receive. This is possible before the queue pair is connected, so that the first message of the peer
    /// finds a receive.
    fn post_recv(&mut self, me: ProcessId, qp: QpId, recv: PostedRecv) -> Result<(), PostError> {
        let entry = self.processes[me.index()].qps.get(qp.index()).ok_or(PostError::UnknownQp(qp))?;
        if entry.state == QpState::Error {
            return Err(PostError::NotReady { qp, state: entry.state });
        }
        if recv.local.bytes > 0 {
            self.check_span(me, &recv.local)?;
        }
        let depth = entry.config.recv_depth;
        if entry.recvs.len() + entry.tagged_recvs.len() >= depth as usize {
            return Err(PostError::RecvQueueFull { qp, depth });
        }
        if recv.tag.is_some() {
            self.match_unexpected(me, qp, recv);
        } else {
            self.qp_mut(me, qp).recvs.push_back(recv);
        }
        Ok(())
    }
}

impl State {
    fn cancel_tagged_recv(&mut self, me: ProcessId, qp: QpId, id: u64) -> Result<(), PostError> {
        let entry = self.processes[me.index()].qps.get_mut(qp.index()).ok_or(PostError::UnknownQp(qp))?;
        let Some(place) = entry.tagged_recvs.iter().position(|recv| recv.id == id) else { return Ok(()) };
        entry.tagged_recvs.remove(place);
        let (opcode, status) = (Opcode::TaggedRecv, Status::Cancelled);
        let completion = Completion { qp, id, opcode, status, bytes: 0, imm: None, tag: 0 };
        self.processes[me.index()].completions.push_back(Queued { completion, seq: None });
        self.notify(me);
        Ok(())
    }
}

pub(crate) fn aligned(offset: u64, bytes: u64) -> Result<(), PostError> {
    let word = WORD as u64;
    if offset.is_multiple_of(word) && bytes.is_multiple_of(word) {
        Ok(())
    } else {
        Err(PostError::Misaligned { offset, bytes })
    }
}

fn dissect<'a>(verb: &Verb<'a>) -> (RequestKind, Option<Source<'a>>) {
    match *verb {
        Verb::Write { source, target } => (RequestKind::Write { target }, Some(source)),
        Verb::WriteImm { source, target, imm } => (RequestKind::WriteImm { target, imm }, Some(source)),
        Verb::Read { local, remote } => (RequestKind::Read { local, remote }, None),
        Verb::Send { source, imm } => (RequestKind::Send { imm }, Some(source)),
        Verb::CompareSwap { local, remote, expected, new } => {
            (RequestKind::CompareSwap { local, remote, expected, new }, None)
        }
        Verb::FetchAdd { local, remote, add } => (RequestKind::FetchAdd { local, remote, add }, None),
        Verb::TaggedSend { source, tag } => (RequestKind::Tagged { tag }, Some(source)),
    }
}
