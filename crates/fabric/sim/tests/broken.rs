//! The conformance suite detects defects: a fabric with one deliberate defect fails the case that is meant for it.

mod common;

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use common::{SimBed, wrapped};
use stentor_fabric::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, Fabric, Opcode, PostError, ProcessId, Purpose,
    QpConfig, QpId, QpState, RegionId, RegionSpec, RegisterError, RemoteRegion, RemoteSpan, Service, SetSpec,
    SetTarget, SetWrite, Source, Span, Status, Verb, WaitError, Wake, Waker, Word, WorkRequest,
};
use stentor_fabric_conformance::{Report, suite};
use stentor_fabric_sim::{NetworkModel, SimFabric};

/// A deliberate defect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    None,
    /// The first unsignalled inline write after each poll is posted only at the next poll.
    ReordersWrites,
    /// A revocation is reported, but the access remains.
    IgnoresRevoke,
    /// A READ is reported done while it is still in flight.
    CompletesReadsEarly,
    /// A write from a region is reported done before its source is read.
    ReadsSourcesAfterCompletion,
    /// The send queue is deeper than requested.
    QueueTooDeep,
    /// Every request is reported, signalled or not.
    ReportsEverything,
    /// Errors of unsignalled requests are not reported.
    HidesUnsignalledErrors,
    /// `wait` is never notified.
    LosesWakeUps,
    /// A refusal by the responder is reported as a success.
    CallsRefusalsSuccess,
    /// The capabilities claim tagged messages.
    ClaimsTagged,
    /// The capabilities claim that the bytes of a write land in order, on a network that tears writes.
    ClaimsOrderedBytes,
    /// Receives beyond the depth are accepted and forgotten.
    ForgetsReceives,
    /// A working queue pair can be reset.
    ResetsAnything,
    /// Access is granted at registration.
    GrantsAtRegistration,
    /// A broken set is reported as settled at once.
    SettlesAtOnce,
    /// A set is reported to reach every process.
    ReachesEverybody,
    /// A copy to a process that the set does not reach is dropped silently.
    ForgetsWhoIsNotReached,
    /// The last of several copies is not made.
    ForgetsTheLastCopy,
    /// The first unsignalled write of a set after each poll is posted only at the next poll.
    ReordersSetWrites,
    /// The break of a set breaks a queue pair as well.
    SetBreaksQueuePairs,
    /// The capabilities deny sets, but joining one works.
    HidesSets,
}

struct Broken {
    inner: SimFabric,
    bug: Bug,
    capabilities: Capabilities,
    events: VecDeque<Event>,
    completions: VecDeque<Completion>,
    /// Writes to post at the next poll.
    held: Vec<(QpId, u64, Held, RemoteSpan)>,
    unsignalled: Vec<u64>,
    /// A set's write to post at the next poll.
    held_set: Option<(QpId, u64, Vec<u8>, Vec<SetTarget>)>,
    /// Queue pairs that do not belong to a set.
    plain: Vec<QpId>,
}

enum Held {
    Data(Vec<u8>),
    Region(Span),
}

impl Broken {
    fn new(inner: SimFabric, bug: Bug) -> Self {
        let mut capabilities = inner.capabilities().clone();
        capabilities.tagged |= bug == Bug::ClaimsTagged;
        capabilities.hardware_multicast &= bug != Bug::HidesSets;
        capabilities.ordered_bytes |= bug == Bug::ClaimsOrderedBytes;
        let (events, completions) = (VecDeque::new(), VecDeque::new());
        Broken {
            inner,
            bug,
            capabilities,
            events,
            completions,
            held: Vec::new(),
            unsignalled: Vec::new(),
            held_set: None,
            plain: Vec::new(),
        }
    }

    fn release(&mut self) {
        if let Some((set, id, data, targets)) = self.held_set.take() {
            let _ = self.inner.post_set(set, SetWrite { id, data: &data, targets: &targets, signalled: false });
        }
        for (qp, id, held, target) in self.held.drain(..) {
            let source = match &held {
                Held::Data(data) => Source::Inline(data),
                Held::Region(span) => Source::Region(*span),
            };
            // If the send queue is full, the write is lost. That is part of the defect.
            let _ = self.inner.post(qp, WorkRequest { id, verb: Verb::Write { source, target }, signalled: false });
        }
    }

    fn done(&mut self, qp: QpId, id: u64, opcode: Opcode) {
        let status = Status::Success;
        self.completions.push_back(Completion { qp, id, opcode, status, bytes: 0, imm: None, tag: 0 });
    }
}

impl Fabric for Broken {
    stentor_fabric_conformance::forward! {
        inner;
        &self {
            me() -> ProcessId;
            memory(region: RegionId) -> &[Word];
            state(qp: QpId) -> QpState;
            descriptor() -> Option<BorrowedFd<'_>>;
            waker() -> Waker;
        }
        &mut self {
            grant(region: RegionId, peer: ProcessId, access: Access) -> Result<(), AccessError>;
            resolve(peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion>;
            post_tagged_recv(qp: QpId, local: Span, tag: u64, ignore: u64, id: u64) -> Result<(), PostError>;
            cancel_tagged_recv(qp: QpId, id: u64) -> Result<(), PostError>;
            flush();
            arm();
        }
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn register(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        let region = self.inner.register(spec)?;
        if self.bug == Bug::GrantsAtRegistration {
            let _ = self.inner.grant(region, spec.writer, Access::Atomic);
        }
        Ok(region)
    }

    fn revoke(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        if self.bug == Bug::IgnoresRevoke {
            self.events.push_back(Event::Revoked { region, peer });
            return Ok(());
        }
        self.inner.revoke(region, peer)
    }

    fn connect(&mut self, peer: ProcessId, service: Service, mut config: QpConfig) -> Result<QpId, ConnectError> {
        if self.bug == Bug::QueueTooDeep && config.send_depth <= 64 {
            config.send_depth *= 4;
        }
        let qp = self.inner.connect(peer, service, config)?;
        self.plain.push(qp);
        Ok(qp)
    }

    fn join_set(&mut self, spec: SetSpec<'_>, mut config: QpConfig) -> Result<QpId, ConnectError> {
        if self.bug == Bug::QueueTooDeep && config.send_depth <= 64 {
            config.send_depth *= 4;
        }
        self.inner.join_set(spec, config)
    }

    fn set_reaches(&self, set: QpId, peer: ProcessId) -> bool {
        self.bug == Bug::ReachesEverybody || self.inner.set_reaches(set, peer)
    }

    fn set_settled(&self, set: QpId, peer: ProcessId) -> bool {
        self.bug == Bug::SettlesAtOnce || self.inner.set_settled(set, peer)
    }

    fn post_set(&mut self, set: QpId, write: SetWrite<'_>) -> Result<(), PostError> {
        let SetWrite { id, data, targets, signalled } = write;
        match (self.bug, targets) {
            (Bug::ForgetsTheLastCopy, [first @ .., _]) if !first.is_empty() => {
                self.inner.post_set(set, SetWrite { targets: first, ..write })
            }
            (Bug::ForgetsWhoIsNotReached, _) => match self.inner.post_set(set, write) {
                Err(PostError::NotReached { .. }) => Ok(()),
                other => other,
            },
            (Bug::ReordersSetWrites, _) if !signalled && self.held_set.is_none() => {
                self.held_set = Some((set, id, data.to_vec(), targets.to_vec()));
                Ok(())
            }
            _ => self.inner.post_set(set, write),
        }
    }

    fn disconnect(&mut self, qp: QpId) -> Result<(), ConnectError> {
        self.inner.disconnect(qp)
    }

    fn reset(&mut self, qp: QpId) -> Result<(), ConnectError> {
        match self.inner.reset(qp) {
            Err(ConnectError::NotBroken { .. }) if self.bug == Bug::ResetsAnything => Ok(()),
            other => other,
        }
    }

    fn post(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        let WorkRequest { id, verb, signalled } = request;
        if !signalled {
            self.unsignalled.push(id);
        }
        match (self.bug, verb) {
            (Bug::ReordersWrites, Verb::Write { source: Source::Inline(data), target })
                if !signalled && self.held.is_empty() && self.inner.state(qp) == QpState::Ready =>
            {
                self.held.push((qp, id, Held::Data(data.to_vec()), target));
                Ok(())
            }
            (Bug::CompletesReadsEarly, Verb::Read { .. }) => {
                self.inner.post(qp, WorkRequest { signalled: false, ..request })?;
                self.done(qp, id, Opcode::Read);
                Ok(())
            }
            (Bug::ReadsSourcesAfterCompletion, Verb::Write { source: Source::Region(span), target })
                if self.inner.state(qp) == QpState::Ready && span.bytes > 0 =>
            {
                self.held.push((qp, id, Held::Region(span), target));
                if signalled {
                    self.done(qp, id, Opcode::Write);
                }
                Ok(())
            }
            (Bug::ReportsEverything, _) => self.inner.post(qp, WorkRequest { signalled: true, ..request }),
            _ => self.inner.post(qp, request),
        }
    }

    fn post_recv(&mut self, qp: QpId, local: Span, id: u64) -> Result<(), PostError> {
        match self.inner.post_recv(qp, local, id) {
            Err(PostError::RecvQueueFull { .. }) if self.bug == Bug::ForgetsReceives => Ok(()),
            other => other,
        }
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        let mut count = 0;
        while count < out.len() {
            let Some(completion) = self.completions.pop_front() else { break };
            out[count] = completion;
            count += 1;
        }
        if count == 0 {
            self.release();
        }
        let mut count = count + self.inner.poll(&mut out[count..]);
        if self.bug == Bug::HidesUnsignalledErrors {
            let quiet = |done: &Completion| done.status != Status::Success && self.unsignalled.contains(&done.id);
            let kept: Vec<_> = out[..count].iter().copied().filter(|done| !quiet(done)).collect();
            count = kept.len();
            out[..count].copy_from_slice(&kept);
        }
        for completion in &mut out[..count] {
            if self.bug == Bug::CallsRefusalsSuccess && completion.status == Status::RemoteAccess {
                completion.status = Status::Success;
            }
        }
        count
    }

    fn next_event(&mut self) -> Option<Event> {
        let event = self.events.pop_front().or_else(|| self.inner.next_event());
        if let Some(Event::Disconnected { peer, .. }) = event
            && (self.bug, peer) == (Bug::SetBreaksQueuePairs, self.me())
        {
            let nowhere = RemoteRegion { peer, key: u64::MAX, bytes: 8 };
            for qp in self.plain.clone() {
                let target = RemoteSpan { region: nowhere, offset: 0 };
                let verb = Verb::Write { source: Source::Inline(&[0; 8]), target };
                let _ = self.inner.post(qp, WorkRequest { id: 99, verb, signalled: false });
            }
        }
        event
    }

    fn wait(&mut self, timeout: Duration) -> Result<Wake, WaitError> {
        let wake = self.inner.wait(timeout)?;
        Ok(if self.bug == Bug::LosesWakeUps { Wake::TimedOut } else { wake })
    }
}

fn run(bug: Bug) -> Report {
    let wild = matches!(bug, Bug::ClaimsOrderedBytes | Bug::SettlesAtOnce);
    let model = if wild { NetworkModel::adversarial() } else { NetworkModel::calm() };
    let model = NetworkModel { hardware_multicast: true, ..model };
    suite(|processes| {
        let wrap = move |fabric| Broken::new(fabric, bug);
        SimBed { patience: 5_000, ..wrapped(processes, 11, &model, wrap) }
    })
}

#[test]
fn wrapper_without_a_defect_passes() {
    run(Bug::None).assert_ok();
}

#[test]
fn every_defect_is_found_by_name() {
    let defects = [
        (Bug::ReordersWrites, "write::in_order_on_one_queue_pair"),
        (Bug::IgnoresRevoke, "revoke::later_writes_are_refused"),
        (Bug::IgnoresRevoke, "revoke::completed_writes_are_kept"),
        (Bug::IgnoresRevoke, "fence::repeated_fences_hold"),
        (Bug::IgnoresRevoke, "fence::only_the_revoked_region_is_fenced"),
        (Bug::CompletesReadsEarly, "read::completed_writes_are_read"),
        (Bug::CompletesReadsEarly, "heartbeat::counts_up"),
        (Bug::ReadsSourcesAfterCompletion, "source::source_is_free_after_a_later_completion"),
        (Bug::QueueTooDeep, "queue::bounded_and_freed_by_signalled"),
        (Bug::ReportsEverything, "queue::one_completion_per_signalled"),
        (Bug::HidesUnsignalledErrors, "access::refusals_of_unsignalled_requests_are_reported"),
        (Bug::LosesWakeUps, "wait::woken_by_a_write"),
        (Bug::CallsRefusalsSuccess, "access::writes_outside_the_region_are_refused"),
        (Bug::CallsRefusalsSuccess, "revoke::later_writes_are_refused"),
        (Bug::ClaimsTagged, "capabilities::honest"),
        (Bug::ClaimsOrderedBytes, "capabilities::bytes_in_order_if_claimed"),
        (Bug::ForgetsReceives, "imm::receives_are_bounded"),
        (Bug::ResetsAnything, "connection::errors"),
        (Bug::GrantsAtRegistration, "access::grants_travel"),
        (Bug::SettlesAtOnce, "set::settled_means_nothing_lands"),
        (Bug::ReachesEverybody, "set::crashed_process_is_left_out"),
        (Bug::ReachesEverybody, "set::one_refusal_breaks_it_for_all"),
        (Bug::CallsRefusalsSuccess, "set::one_refusal_breaks_it_for_all"),
        (Bug::ForgetsWhoIsNotReached, "set::errors"),
        (Bug::ForgetsTheLastCopy, "set::copies_reach_exactly_the_targets"),
        (Bug::ForgetsTheLastCopy, "set::survives_a_cut"),
        (Bug::ReordersSetWrites, "set::in_order_at_each_target"),
        (Bug::QueueTooDeep, "set::bounded_and_freed_by_signalled"),
        (Bug::SetBreaksQueuePairs, "set::queue_pairs_survive_failures_of_the_set"),
        (Bug::HidesSets, "set::refused_without_the_capability"),
    ];
    for (bug, case) in defects {
        let report = run(bug);
        assert!(report.failed().contains(&case), "{bug:?} was not found by {case}:\n{report}");
    }
}

#[test]
#[should_panic(expected = "the fabric breaks its contract")]
fn a_failed_report_is_not_ok() {
    run(Bug::IgnoresRevoke).assert_ok();
}
