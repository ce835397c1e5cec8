//! An endpoint with queue pairs to the switch and to another endpoint.

use std::net::{IpAddr, Ipv4Addr};

use stentor_fabric::memory::Ordering;
use stentor_fabric::{Access, QpConfig, QpId, QpKind, RegionId};
use stentor_fabric_roce::endpoint::{Data, Endpoint, Path, ProtectionDomain, Remote, Request, Sending, Work};
use stentor_support::Failure;
use stentor_switch::control::{CONTROL_RKEY, CONTROL_VA, Link};
use stentor_switch::{Attachment, Host};

use stentor_wire::{Envelope, Psn, RnrTimer};

use super::failed;
use super::packets::link_payload;

const DOMAIN: ProtectionDomain = ProtectionDomain(1);
/// Number of words of one receiver's part of the memory, which holds a message of 4096 bytes.
pub(super) const WORDS: usize = 512;
const VA: u64 = 1 << 40;

/// A queue pair, and the parameters that its peer needs.
#[derive(Clone, Copy)]
pub(super) struct Pair {
    pub(super) qp: QpId,
    pub(super) number: u32,
    pub(super) psn: Psn,
}

/// The queue pairs of one host.
pub(super) struct Ends {
    pub(super) endpoint: Endpoint,
    pub(super) pairs: Vec<Pair>,
    pub(super) address: Ipv4Addr,
    region: RegionId,
    key: u32,
    mtu: u16,
}

impl Ends {
    /// Creates `pairs` unconnected queue pairs, and memory for the same number of receivers.
    pub(super) fn new(address: Ipv4Addr, pairs: usize) -> Result<Ends, Failure> {
        let mut endpoint = Endpoint::new();
        let config = QpConfig { kind: QpKind::Reliable, send_depth: 256, recv_depth: 16, merges: false };
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

    /// Returns the address of a receiver's part.
    fn va(&self, receiver: usize) -> u64 {
        VA + (8 * WORDS * receiver) as u64
    }

    /// Returns the last word of a message of `words` words in a receiver's part.
    #[inline]
    pub(super) fn last(&self, receiver: usize, words: usize) -> u64 {
        self.endpoint.memory().words(self.region)[WORDS * receiver + words - 1].load(Ordering::Acquire)
    }

    fn write(&mut self, pair: usize, tag: u64, data: &[u8], remote: Remote) -> Result<(), Failure> {
        let request = Request::Write { data: Data::Inline(data), remote, imm: None };
        self.endpoint.post_send(self.pairs[pair].qp, &Work::signalled(tag, request)).map_err(failed)
    }

    /// Posts the control packet that links the first `n` parts of `receiver`.
    pub(super) fn link(&mut self, receiver: &Ends, n: usize) -> Result<(), Failure> {
        let link = |k: usize| Link { rank: k as u8, rkey: receiver.key, base: receiver.va(k) };
        let links: Vec<Link> = (0..n).map(link).collect();
        let payload = link_payload(self.pairs[0].number, self.pairs[0].psn, &links);
        self.write(0, 0, &payload, Remote { va: CONTROL_VA, rkey: CONTROL_RKEY })
    }

    /// Posts a message to `n` parts of `receiver`: one WRITE to the switch, or one to each part. Returns the number of
    /// requests.
    pub(super) fn post(
        &mut self,
        receiver: &Ends,
        n: usize,
        switched: bool,
        tag: u64,
        data: &[u8],
    ) -> Result<usize, Failure> {
        if switched {
            return self.write(0, tag, data, Remote { va: 0, rkey: 1 }).map(|()| 1);
        }
        let remote = |k| Remote { va: receiver.va(k), rkey: receiver.key };
        (0..n).try_for_each(|k| self.write(1 + k, tag, data, remote(k))).map(|()| n)
    }
}

/// Returns the hosts of a set with `n` ranks: the first one sends from `sender`, and all receive at `receiver`.
pub(super) fn hosts(sender: &Ends, receiver: &Ends, n: usize) -> Vec<Host> {
    let (pair, to) = (sender.pairs[0], receiver.address);
    let host = |rank: usize| {
        let (ip, qpn) = (if rank == 0 { sender.address } else { to }, receiver.pairs[rank].number);
        Host {
            sends: Attachment { ip, qpn: pair.number, first_psn: pair.psn },
            receives: Attachment { ip: to, qpn, first_psn: Psn::new(7) },
        }
    };
    (0..n).map(host).collect()
}
