//! The bound: the fabric's own operation, from registered memory into registered memory, and nothing else.

use stentor_fabric::{
    Access, Completion, Event, Fabric, Opcode, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec,
    RemoteRegion, RemoteSpan, Service, Source, Span, Verb, WorkRequest,
};
use stentor_support::Failure;

use super::LARGE;
use super::line::{Line, WINDOW, window};
use super::talk::refused;
use crate::fabric::expect_success;

/// Region in which messages arrive.
const TARGET: Purpose = Purpose(1);
/// Region that messages are sent from.
const STAGING: Purpose = Purpose(2);
/// Number of posted receives, and largest number of outstanding requests.
const DEPTH: u32 = 64;

/// One end of the connection.
pub(super) struct Raw<F: Fabric> {
    fabric: F,
    peer: ProcessId,
    qp: QpId,
    target: RegionId,
    staging: RegionId,
    remote: Option<RemoteRegion>,
    tagged: bool,
    completions: [Completion; 16],
    outstanding: u32,
    received: u64,
}

impl<F: Fabric> Raw<F> {
    pub(super) fn new(mut fabric: F) -> Result<Self, Failure> {
        let me = fabric.me();
        let peer = ProcessId(1 - me.0);
        let tagged = fabric.capabilities().tagged;
        let bytes = WINDOW * LARGE as u64;
        let writer = if tagged { me } else { peer };
        let target = fabric.register(RegionSpec { purpose: TARGET, writer, bytes }).map_err(refused)?;
        if !tagged {
            fabric.grant(target, peer, Access::Write).map_err(refused)?;
        }
        let staging = fabric.register(RegionSpec { purpose: STAGING, writer: me, bytes }).map_err(refused)?;
        let qp = fabric.connect(peer, Service(0), QpConfig::reliable(DEPTH, DEPTH)).map_err(refused)?;
        let completions = [Completion::BLANK; 16];
        let mut raw =
            Raw { fabric, peer, qp, target, staging, remote: None, tagged, completions, outstanding: 0, received: 0 };
        (0..DEPTH).try_for_each(|id| raw.post_recv(u64::from(id)))?;
        Ok(raw)
    }

    /// Posts a receive. Without tags it has no buffer, because a WRITE_WITH_IMM only consumes a receive and writes its
    /// payload to the target region.
    fn post_recv(&mut self, id: u64) -> Result<(), Failure> {
        let offset = id % WINDOW * LARGE as u64;
        if self.tagged {
            let local = Span { region: self.target, offset, bytes: LARGE as u32 };
            return self.fabric.post_tagged_recv(self.qp, local, 0, 0, id).map_err(refused);
        }
        self.fabric.post_recv(self.qp, Span { region: self.target, offset: 0, bytes: 0 }, id).map_err(refused)
    }

    /// Handles events. Returns whether both ends are connected.
    pub(super) fn turn(&mut self) -> Result<bool, Failure> {
        while let Some(event) = self.fabric.next_event() {
            if let Event::Disconnected { .. } = event {
                return Err(Failure::run("the other process has ended", "bench channel", "run `stentor doctor`"));
            }
        }
        self.remote = self.fabric.resolve(self.peer, TARGET);
        self.poll()?;
        self.fabric.flush();
        Ok((self.tagged || self.remote.is_some()) && self.fabric.state(self.qp) == QpState::Ready)
    }

    #[inline]
    fn poll(&mut self) -> Result<(), Failure> {
        let count = self.fabric.poll(&mut self.completions);
        for at in 0..count {
            let completion = self.completions[at];
            expect_success(&completion, "bench channel")?;
            if matches!(completion.opcode, Opcode::TaggedSend | Opcode::Write | Opcode::Send) {
                self.outstanding -= 1;
            } else {
                self.received += 1;
                self.post_recv(completion.id)?;
            }
        }
        Ok(())
    }
}

impl<F: Fabric> Line for Raw<F> {
    #[inline]
    fn send(&mut self, bytes: usize, number: u64) -> Result<(), Failure> {
        while self.outstanding == DEPTH {
            self.poll()?;
        }
        let offset = number % window(bytes) * LARGE as u64;
        let source = Source::Region(Span { region: self.staging, offset, bytes: bytes as u32 });
        let verb = match self.remote {
            _ if self.tagged => Verb::TaggedSend { source, tag: 0 },
            Some(region) => Verb::WriteImm { source, target: RemoteSpan { region, offset }, imm: 0 },
            None => unreachable!("phases begin when all is connected"),
        };
        self.fabric.post(self.qp, WorkRequest { id: 0, verb, signalled: true }).map_err(refused)?;
        self.outstanding += 1;
        self.fabric.flush();
        Ok(())
    }

    #[inline]
    fn receive(&mut self, _: usize) -> Result<(), Failure> {
        while self.received == 0 {
            self.poll()?;
        }
        self.received -= 1;
        Ok(())
    }
}
