//! Helpers that the tests share: captures, endpoints and random numbers.
#![allow(dead_code)]

pub(crate) mod network;

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path as FilePath;

use stentor_fabric::memory::Ordering;
use stentor_fabric::{Access, Completion, QpConfig, QpId, QpKind, RegionId, Span};
use stentor_fabric_roce::endpoint::{
    Arrival, Check, Data, Endpoint, Outbox, Path, ProtectionDomain, Remote, Request, Sending, Work,
};
pub(crate) use stentor_testutil::SplitMix64;
use stentor_wire::{Envelope, Psn, RnrTimer};

/// A packet in flight: the headers around it, and its bytes.
pub(crate) type Flying = (Envelope, Vec<u8>);

/// Returns the RoCEv2 packets, from their IP headers on, of a capture of the Linux kernel's RoCE driver. The captures
/// are in `crates/fabric/wire/tests/golden`.
pub(crate) fn golden(name: &str) -> Vec<Vec<u8>> {
    let committed = FilePath::new(env!("CARGO_MANIFEST_DIR")).join("../wire/tests/golden").join(name);
    let fresh = std::env::var_os("STENTOR_GOLDEN").map(|folder| FilePath::new(&folder).join(name));
    let file = fresh.filter(|file| file.is_file()).unwrap_or(committed);
    let bytes = std::fs::read(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
    let (mut packets, mut at) = (Vec::new(), 24);
    while at < bytes.len() {
        let len = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
        let frame = &bytes[at + 16..at + 16 + len];
        if frame[12..14] == [8, 0] && frame[36..38] == 4791_u16.to_be_bytes() {
            packets.push(frame[14..].to_vec());
        }
        at += 16 + len;
    }
    packets
}

pub(crate) const DOMAIN: ProtectionDomain = ProtectionDomain(3);
pub(crate) const VA: u64 = 0x55_2aac_d000;
pub(crate) const MS: u64 = 1_000_000;

pub(crate) fn address(host: u8) -> IpAddr {
    Ipv4Addr::new(10, 9, 0, host).into()
}

/// The configuration of both sides of a [`pair`].
#[derive(Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) kind: QpKind,
    pub(crate) mtu: u16,
    pub(crate) psn_a: u32,
    pub(crate) psn_b: u32,
    pub(crate) window: u32,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
    pub(crate) rnr_retries: u8,
    pub(crate) rd_atomic: u8,
    pub(crate) rnr_code: u8,
    pub(crate) words: usize,
    /// See [`Sending::apart`].
    pub(crate) apart: bool,
}

impl Default for Setup {
    fn default() -> Setup {
        Setup {
            kind: QpKind::Reliable,
            mtu: 256,
            psn_a: 0x100,
            psn_b: 0x80_0000,
            window: 16,
            timeout: 14,
            retries: 7,
            rnr_retries: 7,
            rd_atomic: 4,
            rnr_code: 1,
            words: 2048,
            apart: false,
        }
    }
}

/// One side: an endpoint, its queue pair, the memory that the peer may access, and local memory.
pub(crate) struct Side {
    pub(crate) endpoint: Endpoint,
    pub(crate) qp: QpId,
    pub(crate) number: u32,
    pub(crate) shared: RegionId,
    pub(crate) key: u32,
    pub(crate) local: RegionId,
    pub(crate) out: Outbox,
    path: Option<Path>,
}

impl Side {
    pub(crate) fn new(number: u32, setup: &Setup) -> Side {
        let mut endpoint = Endpoint::new();
        let config = QpConfig { kind: setup.kind, send_depth: 128, recv_depth: 128, merges: false };
        let qp = endpoint.create(number, DOMAIN, config).unwrap();
        let shared = endpoint.memory_mut().register(setup.words, VA);
        let local = endpoint.memory_mut().register(setup.words, 0);
        let key = endpoint.memory_mut().grant(shared, DOMAIN, Access::Atomic, 5).unwrap();
        Side { endpoint, qp, number, shared, key, local, out: Outbox::new(16), path: None }
    }

    /// Connects to the peer's queue pair.
    pub(crate) fn ready(&mut self, envelope: Envelope, dest_qp: u32, (own, peer): (u32, u32), setup: &Setup) {
        let path = Path {
            envelope,
            dest_qp,
            expected_psn: Psn::new(peer),
            mtu: setup.mtu,
            max_dest_rd_atomic: setup.rd_atomic,
            min_rnr_timer: RnrTimer::from_code(setup.rnr_code),
        };
        let sending = Sending {
            first_psn: Psn::new(own),
            timeout: setup.timeout,
            retries: setup.retries,
            rnr_retries: setup.rnr_retries,
            max_rd_atomic: setup.rd_atomic,
            window: setup.window,
            apart: setup.apart,
            merges: true,
        };
        self.path = Some(path);
        self.endpoint.init(self.qp).unwrap();
        self.endpoint.ready_to_receive(self.qp, path).unwrap();
        self.endpoint.ready_to_send(self.qp, sending).unwrap();
    }

    /// Returns the path that the queue pair was connected with.
    pub(crate) fn path(&self) -> Path {
        self.path.expect("the queue pair is connected")
    }

    pub(crate) fn remote(&self, offset: u64) -> Remote {
        Remote { va: VA + offset, rkey: self.key }
    }

    pub(crate) fn span(&self, offset: u64, bytes: u32) -> Span {
        Span { region: self.local, offset, bytes }
    }

    pub(crate) fn post(&mut self, id: u64, request: Request<'_>) {
        self.endpoint.post_send(self.qp, &Work::signalled(id, request)).unwrap();
    }

    /// Returns all packets that this side sends at time `now`.
    pub(crate) fn packets(&mut self, now: u64) -> Vec<Flying> {
        let mut all = Vec::new();
        loop {
            let more = self.endpoint.transmit(now, &mut self.out);
            let before = all.len();
            all.extend(self.out.packets().map(|(envelope, bytes)| (*envelope, bytes.to_vec())));
            self.out.clear();
            if !more || all.len() == before {
                return all;
            }
        }
    }

    pub(crate) fn take(&mut self, now: u64, (envelope, transport): &Flying) {
        self.endpoint.receive(now, &Arrival { envelope: *envelope, transport, check: Check::Whole });
    }

    pub(crate) fn completions(&mut self) -> Vec<Completion> {
        std::iter::from_fn(|| self.endpoint.poll()).collect()
    }

    pub(crate) fn bytes(&self, region: RegionId) -> Vec<u8> {
        let words = self.endpoint.memory().words(region);
        words.iter().flat_map(|word| word.load(Ordering::Relaxed).to_ne_bytes()).collect()
    }

    pub(crate) fn fill(&self, region: RegionId, from: usize, data: &[u8]) {
        let mut all = self.bytes(region);
        all[from..from + data.len()].copy_from_slice(data);
        for (word, chunk) in self.endpoint.memory().words(region).iter().zip(all.chunks_exact(8)) {
            word.store(u64::from_ne_bytes(chunk.try_into().unwrap()), Ordering::Relaxed);
        }
    }
}

/// Returns two connected sides.
pub(crate) fn pair(setup: &Setup) -> (Side, Side) {
    let (mut a, mut b) = (Side::new(0x11, setup), Side::new(0x12, setup));
    let to_b = Envelope::plain(address(1), 0xc190, address(2)).unwrap();
    let to_a = Envelope::plain(address(2), 0xc191, address(1)).unwrap();
    a.ready(to_b, b.number, (setup.psn_a, setup.psn_b), setup);
    b.ready(to_a, a.number, (setup.psn_b, setup.psn_a), setup);
    (a, b)
}

/// Delivers packets between both sides, all at time `now`, until neither side sends more. Returns the number of
/// packets.
pub(crate) fn settle(now: u64, a: &mut Side, b: &mut Side) -> usize {
    let mut count = 0;
    loop {
        let (from_a, from_b) = (a.packets(now), b.packets(now));
        if from_a.is_empty() && from_b.is_empty() {
            return count;
        }
        count += from_a.len() + from_b.len();
        from_a.iter().for_each(|packet| b.take(now, packet));
        from_b.iter().for_each(|packet| a.take(now, packet));
    }
}

pub(crate) fn inline_write(data: &[u8], remote: Remote) -> Request<'_> {
    Request::Write { data: Data::Inline(data), remote, imm: None }
}

pub(crate) fn inline_send(data: &[u8]) -> Request<'_> {
    Request::Send { data: Data::Inline(data), imm: None }
}
