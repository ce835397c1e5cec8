//! An endpoint with queue pairs to the switch and to another endpoint, side by side.

use std::net::{IpAddr, Ipv4Addr};

use stentor_fabric::memory::Ordering;
use stentor_fabric::{Access, QpConfig, QpId, QpKind, RegionId};
use stentor_fabric_roce::endpoint::{Endpoint, Path, ProtectionDomain, Sending};
use stentor_support::Failure;
use stentor_wire::{Envelope, Psn, RnrTimer};

use super::failed;

const DOMAIN: ProtectionDomain = ProtectionDomain(1);
/// Words of a receiver's part of the memory: a message of 4096 bytes.
pub(super) const WORDS: usize = 512;
const VA: u64 = 1 << 40;

/// A queue pair and what the other end has to know of it.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) qp: QpId,
    pub(super) number: u32,
    pub(super) psn: Psn,
}

/// Queue pairs of one host.
pub(super) struct Ends {
    pub(super) endpoint: Endpoint,
    pub(super) pairs: Vec<Pair>,
    pub(super) address: Ipv4Addr,
    region: RegionId,
    pub(super) key: u32,
    mtu: u16,
}

impl Ends {
    /// So many queue pairs, connected to nothing yet, and memory for as many receivers.
    pub(super) fn new(address: Ipv4Addr, pairs: usize) -> Result<Ends, Failure> {
        let mut endpoint = Endpoint::new();
        let config = QpConfig { kind: QpKind::Reliable, send_depth: 256, recv_depth: 16 };
        let region = endpoint.memory_mut().register(WORDS * pairs, VA);
        let key = endpoint.memory_mut().grant(region, DOMAIN, Access::Write, 1);
        let key = key.ok_or_else(|| failed("no key"))?;
        let pair = |n: usize| {
            let number = 0x100 + n as u32;
            let qp = endpoint.create(number, DOMAIN, config).ok_or_else(|| failed("no queue pair"))?;
            Ok(Pair { qp, number, psn: Psn::new(1000 * n as u32) })
        };
        let pairs = (0..pairs).map(pair).collect::<Result<Vec<_>, Failure>>()?;
        Ok(Ends { endpoint, pairs, address, region, key, mtu: 1024 })
    }

    /// Connects a queue pair, from a UDP port.
    pub(super) fn connect(&mut self, n: usize, port: u16, to: Ipv4Addr, other: (u32, Psn)) -> Result<(), Failure> {
        let Pair { qp, psn, .. } = self.pairs[n];
        let (own, to): (IpAddr, IpAddr) = (self.address.into(), to.into());
        let path = Path {
            envelope: Envelope::plain(own, port, to).map_err(failed)?,
            dest_qp: other.0,
            expected_psn: other.1,
            mtu: self.mtu,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RnrTimer::from_code(12),
        };
        self.endpoint.init(qp).map_err(failed)?;
        self.endpoint.ready_to_receive(qp, path).map_err(failed)?;
        let sending = Sending { timeout: 14, window: 64, ..Sending::new(psn) };
        self.endpoint.ready_to_send(qp, sending).map_err(failed)
    }

    /// Where a receiver's part begins.
    pub(super) fn va(&self, receiver: usize) -> u64 {
        VA + (8 * WORDS * receiver) as u64
    }

    /// The last word of a message of so many words in a receiver's part.
    #[inline]
    pub(super) fn last(&self, receiver: usize, words: usize) -> u64 {
        self.endpoint.memory().words(self.region)[WORDS * receiver + words - 1].load(Ordering::Acquire)
    }
}
