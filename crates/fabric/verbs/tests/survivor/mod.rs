//! Helpers for tests with two processes, one of which survives the other.
#![allow(dead_code, reason = "each test uses only a part of this module")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use stentor_fabric::memory::Ordering;
use stentor_fabric::{
    Access, Completion, Fabric, PostError, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec,
    RemoteRegion, RemoteSpan, Service, Source, Span, Verb, WorkRequest,
};
use stentor_fabric_verbs::VerbsFabric;

use crate::processes::start;

pub(crate) const SURVIVOR: ProcessId = ProcessId(0);
pub(crate) const PEER: ProcessId = ProcessId(1);
pub(crate) const BYTES: usize = 32 << 10;
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const TARGET: Purpose = Purpose(1);
const STAGING: Purpose = Purpose(2);
const SERVICE: Service = Service(1);
/// A service on which the survivor has no queue pair, so that a peer's queue pair on it never connects.
pub(crate) const NOBODYS: Service = Service(2);
pub(crate) const DEPTH: u32 = 8;

/// A process with its end of the connection.
pub(crate) struct End {
    pub(crate) fabric: VerbsFabric,
    pub(crate) qp: QpId,
    pub(crate) region: RegionId,
    staging: RegionId,
    peer: ProcessId,
    written: u64,
}

impl End {
    pub(crate) fn new(me: ProcessId, addresses: &[Option<SocketAddr>]) -> End {
        End::on_service(me, addresses, SERVICE)
    }

    pub(crate) fn on_service(me: ProcessId, addresses: &[Option<SocketAddr>], service: Service) -> End {
        let mut fabric = start(me, addresses, |_, config| config.completions = 64);
        let peer = ProcessId(1 - me.0);
        let mut region =
            |purpose, writer| fabric.register(RegionSpec { purpose, writer, bytes: BYTES as u64 }).unwrap();
        let (region, staging) = (region(TARGET, peer), region(STAGING, me));
        fabric.grant(region, peer, Access::Write).unwrap();
        let qp = fabric.connect(peer, service, QpConfig::reliable(DEPTH, DEPTH)).unwrap();
        End { fabric, qp, region, staging, peer, written: 0 }
    }

    pub(crate) fn state(&self) -> QpState {
        self.fabric.state(self.qp)
    }

    pub(crate) fn target(&mut self) -> Option<RemoteRegion> {
        self.fabric.resolve(self.peer, TARGET)
    }

    pub(crate) fn pump(&mut self) {
        let mut out = [Completion::BLANK; 16];
        while self.fabric.poll(&mut out) > 0 {}
        while self.fabric.next_event().is_some() {}
        while self.fabric.device_mut().next_trouble().is_some() {}
    }

    /// Resets the queue pair if it is broken, so that it can connect again.
    pub(crate) fn reset_if_broken(&mut self) {
        if self.state() == QpState::Error {
            self.fabric.reset(self.qp).unwrap();
        }
    }

    pub(crate) fn drive_until(&mut self, what: &str, happened: impl Fn(&mut End) -> bool) {
        until(self, None, what, |this, _| happened(this));
    }

    /// Waits until the connection with a dead peer has ended and the next one may begin.
    pub(crate) fn wait_until_disconnected(&mut self) {
        let peer = self.peer;
        self.drive_until("the connection with the peer has ended", |this| {
            this.reset_if_broken();
            !this.fabric.is_linked(peer) && this.state() == QpState::Connecting
        });
    }

    fn post(&mut self, source: Source<'_>, target: RemoteRegion, signalled: bool) -> Result<(), PostError> {
        let verb = Verb::Write { source, target: RemoteSpan { region: target, offset: 0 } };
        self.fabric.post(self.qp, WorkRequest { id: 1, verb, signalled })
    }

    /// Posts up to `most` writes, or as many as the queue takes.
    pub(crate) fn flood(&mut self, most: usize) {
        let span = Span { region: self.staging, offset: 0, bytes: BYTES as u32 };
        let Some(target) = self.target() else { return };
        for _ in 0..most {
            if self.post(Source::Region(span), target, true).is_err() {
                break;
            }
        }
    }

    pub(crate) fn write_with_wrong_key(&mut self) {
        let Some(target) = self.target() else { return };
        let wrong = RemoteRegion { key: target.key ^ 0x55, ..target };
        // The result is ignored, because the queue may be full or the queue pair broken.
        let _ = self.post(Source::Inline(&[0; 8]), wrong, true);
    }

    pub(crate) fn post_receives(&mut self) {
        let span = Span { region: self.staging, offset: 0, bytes: BYTES as u32 };
        (0..u64::from(DEPTH)).for_each(|id| self.fabric.post_recv(self.qp, span, id).unwrap());
    }
}

pub(crate) fn until(
    one: &mut End,
    mut other: Option<&mut End>,
    what: &str,
    mut happened: impl FnMut(&mut End, Option<&mut End>) -> bool,
) {
    let since = Instant::now();
    while !happened(one, other.as_deref_mut()) {
        one.pump();
        if let Some(other) = &mut other {
            other.pump();
        }
        let states = (one.state(), other.as_ref().map(|other| other.state()));
        assert!(since.elapsed() < PATIENCE, "still not: {what}; {states:?}");
        std::thread::sleep(Duration::from_micros(100));
    }
}

pub(crate) fn connect(one: &mut End, other: &mut End) {
    until(one, Some(other), "connected", |one, other| {
        one.reset_if_broken();
        let is_there = |end: &mut End| end.state() == QpState::Ready && end.target().is_some();
        is_there(one) && other.is_some_and(is_there)
    });
}

pub(crate) fn write_both_ways(one: &mut End, other: &mut End) {
    for end in [&mut *one, &mut *other] {
        end.written += 1;
        let (target, value) = (end.target().expect("the end has a target"), end.written);
        let posted = end.post(Source::Inline(&value.to_ne_bytes()), target, true);
        posted.unwrap_or_else(|error| panic!("a new connection refuses a request: {error}"));
    }
    let (there, back) = (other.written, one.written);
    until(one, Some(other), "the other end's writes have landed", |one, other| {
        let seen = |end: &End| end.fabric.memory(end.region)[0].load(Ordering::Acquire);
        seen(one) == there && other.is_some_and(|other| seen(other) == back)
    });
}

/// Returns the number of open files of this process.
pub(crate) fn open_files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
