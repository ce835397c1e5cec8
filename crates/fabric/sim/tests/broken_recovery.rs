//! The conformance suite detects defects in recovery: when processes crash, links break and access is revoked. Each
//! fabric has one deliberate defect and fails the case that is meant for it.

mod common;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::os::fd::BorrowedFd;
use std::rc::Rc;
use std::time::Duration;

use common::{SimBed, wrapped};
use stentor_fabric::memory::Ordering;
use stentor_fabric::{
    Access, AccessError, Capabilities, Completion, ConnectError, Event, Fabric, Opcode, PostError, ProcessId, Purpose,
    QpConfig, QpId, QpState, RegionId, RegionSpec, RegisterError, RemoteRegion, RemoteSpan, Service, Source, Span,
    Status, Verb, WaitError, Wake, Waker, Word, WorkRequest,
};
use stentor_fabric_conformance::{Report, suite_of};
use stentor_fabric_sim::{NetworkModel, SimFabric};

/// A deliberate defect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Bug {
    None,
    /// `resolve` always returns the first region that it found.
    KeepsOldRegions,
    /// A post to a region of an earlier life goes to the current region of the same name.
    FollowsNames,
    /// Process 1 gets no events of broken queue pairs.
    HidesBreaks,
    /// The last write of a connection or of a life is repeated on the next connection.
    ReplaysWrites,
    /// Flushed completions are reported only when the queue pair is connected again.
    KeepsCompletions,
    /// All queue pairs of a peer are reported broken together.
    DisturbsServices,
    /// A peer whose queue pair broke loses its access.
    ForgetsGrants,
    /// After a connection, the first three calls of `resolve` find nothing.
    HearsGrantsLate,
    /// A revocation clears the memory.
    ClearsAtRevoke,
    /// A revocation revokes everything that the peer was granted.
    RevokesTooMuch,
    /// A revocation is ignored while a queue pair of the process is not ready.
    RevokesOnlyConnected,
    /// Every third notification is lost.
    LosesNotifications,
    /// A queue pair can be reset only three times.
    ResetsThreeTimes,
    /// Receives survive a reset.
    KeepsReceives,
    /// READs on a broken queue pair succeed.
    ReadsFromTheDead,
    /// No completion is reported while a queue pair of the process is not ready.
    WaitsForEverybody,
    /// From its third life on, process 1 connects to no peer.
    LivesTwice,
}

/// The last write of a process: peer, region name, offset, data.
type Ghost = Rc<RefCell<Option<(ProcessId, Purpose, u64, Vec<u8>)>>>;

struct Broken {
    inner: SimFabric,
    bug: Bug,
    events: VecDeque<Event>,
    kept: Vec<Completion>,
    names: BTreeMap<u64, (ProcessId, Purpose)>,
    first: BTreeMap<(ProcessId, Purpose), RemoteRegion>,
    qps: Vec<(QpId, ProcessId)>,
    regions: Vec<(RegionId, ProcessId)>,
    receives: BTreeMap<QpId, Vec<(Span, u64)>>,
    resets: BTreeMap<QpId, u32>,
    ghost: Ghost,
    deaf: u32,
    notifications: u32,
}

impl Broken {
    fn new(inner: SimFabric, bug: Bug, ghost: Ghost) -> Self {
        Broken {
            inner,
            bug,
            events: VecDeque::new(),
            kept: Vec::new(),
            names: BTreeMap::new(),
            first: BTreeMap::new(),
            qps: Vec::new(),
            regions: Vec::new(),
            receives: BTreeMap::new(),
            resets: BTreeMap::new(),
            ghost,
            deaf: 0,
            notifications: 0,
        }
    }

    fn connected(&mut self, qp: QpId, peer: ProcessId) {
        self.deaf = 3;
        let Some((of, purpose, offset, data)) = self.ghost.borrow_mut().take() else { return };
        if let Some(region) = self.inner.resolve(peer, purpose).filter(|_| of == peer) {
            let verb = Verb::Write { source: Source::Inline(&data), target: RemoteSpan { region, offset } };
            // The repeated write occupies a slot of the send queue, which is part of the defect.
            let _ = self.inner.post(qp, WorkRequest { id: 0, verb, signalled: false });
            self.inner.flush();
        }
    }

    fn disconnected(&mut self, qp: QpId, peer: ProcessId) {
        match self.bug {
            Bug::DisturbsServices => {
                let others = self.qps.iter().filter(|(other, of)| *other != qp && *of == peer);
                self.events.extend(others.map(|(qp, peer)| Event::Disconnected { qp: *qp, peer: *peer }));
            }
            Bug::ForgetsGrants => {
                for (region, _) in self.regions.iter().filter(|(_, writer)| *writer == peer) {
                    let _ = self.inner.revoke(*region, peer);
                }
            }
            _ => {}
        }
    }

    fn away(&self) -> bool {
        self.qps.iter().any(|(qp, _)| self.inner.state(*qp) != QpState::Ready)
    }

    /// Returns the target to which the defect redirects a post.
    fn redirect(&mut self, target: RemoteSpan) -> RemoteSpan {
        let name = self.names.get(&target.region.key).copied();
        match name.and_then(|(peer, purpose)| self.inner.resolve(peer, purpose)) {
            Some(region) if self.bug == Bug::FollowsNames => RemoteSpan { region, ..target },
            _ => target,
        }
    }

    fn post_write(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        let mut verb = request.verb;
        if let Verb::Write { target, .. } | Verb::WriteImm { target, .. } = &mut verb {
            *target = self.redirect(*target);
        }
        match verb {
            Verb::Write { source: Source::Inline(data), target } if self.bug == Bug::ReplaysWrites => {
                let name = self.names.get(&target.region.key);
                *self.ghost.borrow_mut() = name.map(|(peer, purpose)| (*peer, *purpose, target.offset, data.to_vec()));
            }
            Verb::WriteImm { source, target, .. } if self.bug == Bug::LosesNotifications => {
                self.notifications += 1;
                if self.notifications.is_multiple_of(3) {
                    verb = Verb::Write { source, target };
                }
            }
            _ => {}
        }
        self.inner.post(qp, WorkRequest { verb, ..request })
    }
}

impl Fabric for Broken {
    stentor_fabric_conformance::forward! {
        inner;
        &self {
            me() -> ProcessId;
            capabilities() -> &Capabilities;
            memory(region: RegionId) -> &[Word];
            state(qp: QpId) -> QpState;
            descriptor() -> Option<BorrowedFd<'_>>;
            waker() -> Waker;
        }
        &mut self {
            grant(region: RegionId, peer: ProcessId, access: Access) -> Result<(), AccessError>;
            post_tagged_recv(qp: QpId, local: Span, tag: u64, ignore: u64, id: u64) -> Result<(), PostError>;
            flush();
            arm();
            wait(timeout: Duration) -> Result<Wake, WaitError>;
        }
    }

    fn register(&mut self, spec: RegionSpec) -> Result<RegionId, RegisterError> {
        let region = self.inner.register(spec)?;
        self.regions.push((region, spec.writer));
        Ok(region)
    }

    fn revoke(&mut self, region: RegionId, peer: ProcessId) -> Result<(), AccessError> {
        if self.bug == Bug::RevokesOnlyConnected && self.away() {
            return Ok(());
        }
        if self.bug == Bug::RevokesTooMuch {
            for (other, _) in self.regions.iter().filter(|(other, writer)| *writer == peer && *other != region) {
                let _ = self.inner.revoke(*other, peer);
            }
        }
        self.inner.revoke(region, peer)
    }

    fn connect(&mut self, peer: ProcessId, service: Service, config: QpConfig) -> Result<QpId, ConnectError> {
        let lost = self.bug == Bug::LivesTwice && self.me() == ProcessId(1) && self.inner.life() > 2;
        let service = if lost { Service(service.0 + 1000) } else { service };
        let qp = self.inner.connect(peer, service, config)?;
        self.qps.push((qp, peer));
        Ok(qp)
    }

    fn disconnect(&mut self, qp: QpId) -> Result<(), ConnectError> {
        self.inner.disconnect(qp)
    }

    fn reset(&mut self, qp: QpId) -> Result<(), ConnectError> {
        let resets = self.resets.entry(qp).or_default();
        *resets += 1;
        if self.bug == Bug::ResetsThreeTimes && *resets > 3 {
            return Ok(());
        }
        self.inner.reset(qp)?;
        if self.bug == Bug::KeepsReceives {
            for (span, id) in self.receives.remove(&qp).unwrap_or_default() {
                let _ = self.inner.post_recv(qp, span, id);
            }
        }
        Ok(())
    }

    fn resolve(&mut self, peer: ProcessId, purpose: Purpose) -> Option<RemoteRegion> {
        if self.bug == Bug::HearsGrantsLate && self.deaf > 0 {
            self.deaf -= 1;
            return None;
        }
        let found = self.inner.resolve(peer, purpose)?;
        self.names.insert(found.key, (peer, purpose));
        let first = *self.first.entry((peer, purpose)).or_insert(found);
        Some(if self.bug == Bug::KeepsOldRegions { first } else { found })
    }

    fn post(&mut self, qp: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        let id = request.id;
        match request.verb {
            Verb::Write { .. } | Verb::WriteImm { .. } => self.post_write(qp, request),
            Verb::Read { .. } if self.bug == Bug::ReadsFromTheDead && self.inner.state(qp) == QpState::Error => {
                let (opcode, status) = (Opcode::Read, Status::Success);
                self.kept.push(Completion { qp, id, opcode, status, bytes: 0, imm: None, tag: 0 });
                Ok(())
            }
            _ => self.inner.post(qp, request),
        }
    }

    fn post_recv(&mut self, qp: QpId, local: Span, id: u64) -> Result<(), PostError> {
        self.inner.post_recv(qp, local, id)?;
        self.receives.entry(qp).or_default().push((local, id));
        Ok(())
    }

    fn poll(&mut self, out: &mut [Completion]) -> usize {
        if self.bug == Bug::WaitsForEverybody && self.away() {
            return 0;
        }
        let count = self.inner.poll(out);
        let mut polled: Vec<Completion> = out[..count].to_vec();
        if self.bug == Bug::KeepsCompletions {
            let inner = &self.inner;
            let early = |done: &Completion| done.status == Status::Flushed && inner.state(done.qp) == QpState::Error;
            self.kept.extend(polled.iter().copied().filter(early));
            polled.retain(|done| !early(done));
        }
        let free = self
            .kept
            .iter()
            .position(|done| self.bug == Bug::ReadsFromTheDead || self.inner.state(done.qp) == QpState::Ready);
        if let Some(place) = free.filter(|_| polled.len() < out.len()) {
            polled.push(self.kept.remove(place));
        }
        out[..polled.len()].copy_from_slice(&polled);
        polled.len()
    }

    fn next_event(&mut self) -> Option<Event> {
        if let Some(event) = self.events.pop_front() {
            return Some(event);
        }
        let event = self.inner.next_event()?;
        match event {
            Event::Connected { qp, peer } => self.connected(qp, peer),
            Event::Disconnected { qp, peer } => self.disconnected(qp, peer),
            Event::Revoked { region, .. } => {
                if self.bug == Bug::ClearsAtRevoke {
                    self.inner.memory(region).iter().for_each(|word| word.store(0, Ordering::Release));
                }
            }
        }
        let hidden = self.bug == Bug::HidesBreaks && self.me() == ProcessId(1);
        if hidden && matches!(event, Event::Disconnected { .. }) {
            return self.next_event();
        }
        Some(event)
    }
}

fn run(bug: Bug, wanted: impl Fn(&str) -> bool) -> Report {
    suite_of(
        |processes| {
            let ghosts: Vec<Ghost> = (0..processes).map(|_| Ghost::default()).collect();
            let wrap = move |fabric: SimFabric| {
                let ghost = Rc::clone(&ghosts[fabric.me().index()]);
                Broken::new(fabric, bug, ghost)
            };
            SimBed { patience: 8_000, ..wrapped(processes, 11, &NetworkModel::calm(), wrap) }
        },
        wanted,
    )
}

const TOPICS: [&str; 5] = ["restart::", "link::", "fence::", "heartbeat::", "imm::"];

const DEFECTS: [(Bug, &str); 30] = [
    (Bug::KeepsOldRegions, "restart::the_next_life_connects"),
    (Bug::KeepsOldRegions, "fence::idle_peer_is_fenced_without_a_break"),
    (Bug::FollowsNames, "restart::old_regions_are_refused"),
    (Bug::HidesBreaks, "link::other_end_learns_of_the_break"),
    (Bug::HidesBreaks, "link::both_ends_break_at_once"),
    (Bug::ReplaysWrites, "restart::no_late_write_lands_after_connected"),
    (Bug::ReplaysWrites, "link::no_late_write_lands_after_connected"),
    (Bug::ReplaysWrites, "restart::memory_is_fresh_after_revoke_and_grant"),
    (Bug::KeepsCompletions, "link::completions_precede_disconnected"),
    (Bug::DisturbsServices, "link::services_are_independent"),
    (Bug::DisturbsServices, "fence::only_the_revoked_region_is_fenced"),
    (Bug::ForgetsGrants, "restart::granted_regions_stay_granted"),
    (Bug::HearsGrantsLate, "link::grants_arrive_while_broken"),
    (Bug::HearsGrantsLate, "restart::the_next_life_connects"),
    (Bug::ClearsAtRevoke, "fence::contents_belong_to_the_owner"),
    (Bug::ClearsAtRevoke, "fence::repeated_fences_hold"),
    (Bug::RevokesTooMuch, "fence::only_the_revoked_region_is_fenced"),
    (Bug::RevokesOnlyConnected, "fence::crashed_peer_is_fenced"),
    (Bug::LosesNotifications, "imm::notifications_are_late_but_not_lost"),
    (Bug::ResetsThreeTimes, "link::survives_a_cut"),
    (Bug::ResetsThreeTimes, "link::other_end_learns_of_the_break"),
    (Bug::ResetsThreeTimes, "restart::services_reconnect_one_by_one"),
    (Bug::ResetsThreeTimes, "fence::repeated_fences_hold"),
    (Bug::KeepsReceives, "link::receives_end_with_the_connection"),
    (Bug::KeepsCompletions, "link::receives_end_with_the_connection"),
    (Bug::ReadsFromTheDead, "heartbeat::stops_with_the_process"),
    (Bug::WaitsForEverybody, "restart::absent_process_blocks_no_other"),
    (Bug::WaitsForEverybody, "imm::recovers_after_the_retry_limit"),
    (Bug::LivesTwice, "restart::both_processes_restart_at_once"),
    (Bug::LivesTwice, "heartbeat::stops_with_the_process"),
];

#[test]
fn wrapper_without_a_defect_passes() {
    let report = run(Bug::None, |case| TOPICS.iter().any(|topic| case.starts_with(topic)));
    report.assert_ok();
    assert!(report.skipped().is_empty(), "{report}");
}

#[test]
fn every_defect_is_found_by_name() {
    for (bug, case) in DEFECTS {
        let report = run(bug, |name| name == case);
        assert_eq!(report.failed(), [case], "{bug:?} was not found:\n{report}");
    }
}

/// `broken.rs` covers the cases that are not in the table.
#[test]
fn every_recovery_case_detects_a_defect() {
    let elsewhere = [
        "heartbeat::counts_up",
        "imm::notification_follows_the_data",
        "imm::waits_for_a_receive",
        "imm::breaks_without_a_receive",
        "imm::receives_are_bounded",
    ];
    let names = stentor_fabric_conformance::names::<SimBed<Broken>>();
    let about = names.into_iter().filter(|case| TOPICS.iter().any(|topic| case.starts_with(topic)));
    let unproven: Vec<_> =
        about.filter(|case| !elsewhere.contains(case) && DEFECTS.iter().all(|(_, found)| found != case)).collect();
    assert!(unproven.is_empty(), "no defect shows that these can fail: {unproven:?}");
}
