//! A host of a set: a real endpoint with a sending and a receiving queue pair, and a program that the host executes.

use std::net::{IpAddr, Ipv4Addr};

use stentor_checker::switch::{Linked, Posted, What};
use stentor_fabric::{Access, QpConfig, QpId, QpKind, RegionId, Span, Status};
use stentor_fabric_roce::endpoint::{
    Arrival, Check, Data, Endpoint, Outbox, Path, ProtectionDomain, Remote, Request, Sending, Work,
};
use stentor_switch::control::{self, CONTROL_RKEY, CONTROL_VA, Head, Link, MAX_CONTROL_BYTES, Operation};
use stentor_switch::{Attachment, Host as Description, Switch};
use stentor_wire::{Envelope, IpPacket, Psn, RnrTimer};

use super::program::{Kind, Op};

/// Unit of the receivers' virtual addresses: a receiver's memory begins at this number times (rank + 1).
const VA: u64 = 0x1000_0000;
const DOMAIN: ProtectionDomain = ProtectionDomain(1);
/// The time that is passed to an endpoint, in nanoseconds. An endpoint has no clock, so its timers start at this time.
/// [`Host::tick`] passes a deadline instead, and then rewinds the endpoint to this time.
pub(crate) const NOW: u64 = 1;

/// A packet in flight.
pub type Flight = std::sync::Arc<[u8]>;

/// The setup of all hosts.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Setup {
    /// The address of the switch's VRQPs.
    pub forward: Ipv4Addr,
    /// The address of the switch's VSQPs.
    pub backward: Ipv4Addr,
    /// The identifier of the set.
    pub gid: u16,
    /// Path MTU in bytes. A control packet is a single packet, so the MTU is 1024 if more than 14 members are linked at
    /// once.
    pub mtu: u16,
    /// Size of the memory of a receiver that senders write to, in words of 8 bytes.
    pub words: usize,
    /// Maximum number of packets in flight.
    pub window: u32,
    /// Number of receives that are posted initially.
    pub receives: u32,
    /// `true` if requests are posted without waiting for preceding control packets.
    pub eager: bool,
    /// Offset of all first PSNs.
    pub numbers: u32,
}

impl Setup {
    /// Returns the address of a rank.
    #[must_use]
    pub fn address(rank: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 1, 0, rank + 1)
    }

    /// Returns the first PSN that a rank sends, and the first that it expects.
    #[must_use]
    pub fn firsts(&self, rank: u8) -> (u32, u32) {
        let rank = u32::from(rank);
        ((self.numbers + 1000 * rank) & 0xff_ffff, (self.numbers.wrapping_mul(7) + 100_000 * (rank + 1)) & 0xff_ffff)
    }

    /// Returns the numbers of a rank's queue pairs.
    fn qpns(&self, rank: u8) -> (u32, u32) {
        let base = 0x1000 * (u32::from(self.gid) + 1);
        (base + u32::from(rank), base + 0x100 + u32::from(rank))
    }

    /// Returns the description of a rank for the control plane.
    #[must_use]
    pub fn description(&self, rank: u8) -> Description {
        let ((sends, receives), (sqpn, rqpn)) = (self.firsts(rank), self.qpns(rank));
        let attachment = |qpn, psn| Attachment { ip: Setup::address(rank), qpn, first_psn: Psn::new(psn) };
        Description { sends: attachment(sqpn, sends), receives: attachment(rqpn, receives) }
    }
}

/// A host.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Host {
    pub(crate) rank: u8,
    pub(crate) endpoint: Endpoint,
    sqp: QpId,
    rqp: QpId,
    local: RegionId,
    /// The requests that the host has yet to post, in order.
    pub(crate) program: std::collections::VecDeque<Op>,
    /// Number of requests posted and not completed.
    pub(crate) open: u32,
    /// Number of messages posted so far, including control packets.
    messages: u32,
    /// `true` while the last posted request is a control packet in flight. Unless [`Setup::eager`] is set, nothing else
    /// is posted then.
    waits: bool,
    /// The status with which the sending queue pair broke, if it did.
    pub(crate) broke: Option<Status>,
    /// Number of receives that completed and were not posted again.
    pub(crate) used: u32,
    receive_bytes: u32,
    /// The last list of members that the host linked.
    pub(crate) linked: Option<Op>,
}

impl Host {
    /// Creates a host whose queue pairs are ready.
    ///
    /// # Panics
    /// Never panics, with the numbers that [`Setup`] assigns.
    #[must_use]
    pub fn new(rank: u8, setup: &Setup, program: Vec<Op>) -> Host {
        let mut endpoint = Endpoint::new();
        let (sqpn, rqpn) = setup.qpns(rank);
        let (first_psn, expected) = setup.firsts(rank);
        let config = QpConfig { kind: QpKind::Reliable, send_depth: 256, recv_depth: 256, merges: false };
        let sqp = endpoint.create(sqpn, DOMAIN, config).expect("a free number");
        let rqp = endpoint.create(rqpn, DOMAIN, config).expect("a free number");
        let shared = endpoint.memory_mut().register(setup.words, Host::va(rank));
        let local = endpoint.memory_mut().register(setup.words, 0);
        let key = endpoint.memory_mut().grant(shared, DOMAIN, Access::Write, Host::entropy(rank));
        assert_eq!(key, Some(Host::rkey(rank)), "keys follow from their entropy");
        let path = |to: Ipv4Addr, dest_qp, expected| {
            let (from, to): (IpAddr, IpAddr) = (Setup::address(rank).into(), to.into());
            let envelope = Envelope::plain(from, 0xc000 + u16::from(rank), to).expect("both addresses have one family");
            let expected_psn = Psn::new(expected);
            let min_rnr_timer = RnrTimer::from_code(14);
            Path { envelope, dest_qp, expected_psn, mtu: setup.mtu, max_dest_rd_atomic: 1, min_rnr_timer }
        };
        let (forward, backward) = (Switch::vrqpn(setup.gid, rank), Switch::vsqpn(setup.gid, rank));
        let paths = [(sqp, path(setup.forward, forward, 0)), (rqp, path(setup.backward, backward, expected))];
        for (qp, path) in paths {
            endpoint.init(qp).expect("the queue pair is reset");
            endpoint.ready_to_receive(qp, path).expect("a path");
        }
        // The timeout is shorter than the interval of any probe, so that a silence ends with a timeout.
        let sending = Sending { timeout: 5, window: setup.window, ..Sending::new(Psn::new(first_psn)) };
        endpoint.ready_to_send(sqp, sending).expect("the queue pair is ready to receive");
        let mut host = Host {
            rank,
            endpoint,
            sqp,
            rqp,
            local,
            program: program.into(),
            open: 0,
            messages: 0,
            waits: false,
            broke: None,
            used: setup.receives,
            receive_bytes: 8 * setup.words as u32,
            linked: None,
        };
        host.post_receives();
        host
    }

    fn va(rank: u8) -> u64 {
        VA * (u64::from(rank) + 1)
    }

    const fn entropy(rank: u8) -> u16 {
        0x100 + rank as u16
    }

    /// Returns the key to the memory of a rank.
    const fn rkey(rank: u8) -> u32 {
        (Host::entropy(rank) as u32) << 16
    }

    /// Returns a member for a control packet. WRITEs to the member start `offset` bytes after the beginning of its
    /// memory.
    #[must_use]
    pub fn link(rank: u8, offset: u64) -> Link {
        Link { rank, rkey: Host::rkey(rank), base: Host::va(rank) + offset }
    }

    /// Posts all used receives again.
    pub(crate) fn post_receives(&mut self) {
        for _ in 0..std::mem::take(&mut self.used) {
            let span = Span { region: self.local, offset: 0, bytes: self.receive_bytes };
            // A broken queue pair accepts no receive.
            let _ = self.endpoint.post_receive(self.rqp, span, 0);
        }
    }

    /// Returns whether the program is complete, or the sending queue pair is broken.
    pub(crate) fn is_done(&self) -> bool {
        self.broke.is_some() || self.program.is_empty() && self.open == 0
    }

    /// Returns the next PSN that the host expects as a receiver.
    pub(crate) fn expects(&self) -> u32 {
        self.endpoint.expected(self.rqp).map_or(0, Psn::get)
    }

    /// Posts all requests that may be posted, and returns them.
    pub(crate) fn post(&mut self, setup: &Setup) -> Vec<Posted> {
        let mut posted = Vec::new();
        while self.broke.is_none() && (setup.eager || !self.waits && self.open < 2 * setup.window) {
            let Some(op) = self.program.front() else { break };
            if self.open > 0 && op.is_control() && !setup.eager && op.waits() {
                break;
            }
            let Some(op) = self.program.pop_front() else { break };
            self.waits = op.is_control();
            if matches!(op, Op::Link(_)) {
                self.linked = Some(op.clone());
            }
            posted.push(self.post_one(&op, setup));
            self.open += 1;
            self.messages += 1;
        }
        posted
    }

    fn post_one(&mut self, op: &Op, setup: &Setup) -> Posted {
        let mut payload = [0; MAX_CONTROL_BYTES];
        let (operation, links): (Operation, &[Link]) = match op {
            Op::Link(links) => (Operation::Link, links),
            Op::Release => (Operation::Release, &[]),
            Op::Query => (Operation::Query, &[]),
            Op::Message { kind, bytes, va } => return self.post_message((*kind, *bytes, *va), setup),
        };
        let psn = self.endpoint.next_psn(self.sqp).unwrap_or(Psn::new(0));
        let (sqpn, _) = setup.qpns(self.rank);
        let head = Head { operation, lock_id: 1, epoch: 0, sqpn, psn, msn: self.messages & 0xff_ffff };
        let len = control::emit(&head, &[], links, &mut payload).expect("lists of a set's members");
        let remote = Remote { va: CONTROL_VA, rkey: CONTROL_RKEY };
        self.request(Request::Write { data: Data::Inline(&payload[..len]), remote, imm: None });
        let linked = |link: &Link| Linked { rank: link.rank, base: link.base, rkey: link.rkey };
        let what = match operation {
            Operation::Link => What::Link(links.iter().map(linked).collect()),
            Operation::Release => What::Release,
            Operation::Query => What::Query,
        };
        Posted { packets: (len as u32).div_ceil(setup.mtu.into()), what }
    }

    fn post_message(&mut self, (kind, bytes, va): (Kind, u32, u64), setup: &Setup) -> Posted {
        let payload = vec![self.messages as u8 ^ self.rank << 5; bytes as usize];
        let (data, remote) = (Data::Inline(&payload), Remote { va, rkey: 9 });
        let imm = Some(u32::from(self.rank) << 16 | self.messages);
        self.request(match kind {
            Kind::Send => Request::Send { data, imm: None },
            Kind::Write => Request::Write { data, remote, imm: None },
            Kind::WriteImm => Request::Write { data, remote, imm },
        });
        let what = What::Message(Some(va).filter(|_| kind != Kind::Send));
        Posted { packets: bytes.div_ceil(setup.mtu.into()).max(1), what }
    }

    fn request(&mut self, request: Request<'_>) {
        if self.endpoint.post_send(self.sqp, &Work::signalled(0, request)).is_err() {
            self.broke.get_or_insert(Status::Flushed);
        }
    }

    /// Processes the completions of the endpoint.
    fn poll(&mut self) {
        while let Some(done) = self.endpoint.poll() {
            if done.qp == self.rqp {
                self.used += 1;
                continue;
            }
            self.open -= 1;
            if done.status != Status::Success {
                self.broke.get_or_insert(done.status);
            }
        }
        if self.open == 0 {
            self.waits = false;
        }
        while self.endpoint.next_broken().is_some() {}
    }

    /// Processes an arriving packet.
    pub(crate) fn receive(&mut self, bytes: &[u8]) {
        if let Ok(packet) = IpPacket::new_checked(bytes) {
            let arrival =
                Arrival { envelope: packet.envelope, transport: packet.packet.as_bytes(), check: Check::Whole };
            self.endpoint.receive(NOW, &arrival);
        }
    }

    /// Advances time to the next deadline. Returns whether this deadline was a timeout, and not the end of a wait that
    /// the peer requested.
    pub(crate) fn tick(&mut self) -> bool {
        let before = self.endpoint.counters().timeouts;
        let deadline = self.endpoint.next_deadline().unwrap_or(NOW);
        self.endpoint.tick(deadline);
        self.endpoint.rewind(deadline.saturating_sub(NOW));
        self.endpoint.counters().timeouts > before
    }

    /// Sends all packets that can be sent now.
    pub(crate) fn transmit(&mut self, out: &mut Outbox, mut send: impl FnMut(Flight)) {
        loop {
            let more = self.endpoint.transmit(NOW, out);
            let none = out.is_empty();
            for (envelope, transport) in out.packets() {
                let outer = envelope.header_bytes();
                let mut bytes = vec![0; outer + transport.len()];
                bytes[outer..].copy_from_slice(transport);
                envelope.emit(&mut bytes, transport.len()).expect("room was made");
                send(bytes.into());
            }
            out.clear();
            self.poll();
            if !more || none {
                return;
            }
        }
    }
}
