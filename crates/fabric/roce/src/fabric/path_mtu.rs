//! The path MTU: the maximum payload of packets to a peer.
//!
//! The MTU of the local interface limits the packets that leave this host. The limits of the links beyond it are
//! unknown: a path may drop long packets and transmit short ones. A queue pair whose long packets are never answered
//! then breaks, and its peer reconnects at once.
//!
//! # States of a peer
//! - Any state → *suspected*: a queue pair whose long packets were not answered breaks. The suspected limit is the next
//!   path MTU below that of the queue pair, and already applies to the next connection. If a limit that is as small or
//!   smaller is in force, the state does not change.
//! - *Suspected* → *limited* to that path MTU: the peer reconnects within [`SOON`].
//! - *Suspected* → *unlimited*: the peer reconnects later. It may have been stopped, so that it answered no packet at
//!   all.
//! - *Limited* → *unlimited*: [`FORGOTTEN`] has passed, because paths change.
//!
//! # Invariants
//! - A limit is below the path MTU of the queue pair that broke, and at least the smallest path MTU.
//! - A broken queue pair causes no suspicion if its unanswered packet would also fit the smaller path MTU, or if a
//!   packet of the same length in the same direction was answered before. If the path has changed since that answer,
//!   the next connection detects it.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use stentor_fabric::QpId;
use stentor_wire::PATH_MTUS;

use crate::endpoint::Unanswered;

/// Lifetime of a limit, after which the next connection tries longer packets. Linux remembers the MTU of a path for the
/// same time.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Time within which a running peer reconnects.
const SOON: Duration = Duration::from_secs(2);
/// Maximum number of notes that wait to be read.
const MOST_NOTES: usize = 64;

#[derive(Clone, Copy, Debug)]
struct Limit {
    mtu: u16,
    since: Instant,
    /// Payload of the unanswered packets, in bytes, while the limit is only suspected.
    suspected: Option<u32>,
}

/// The limits of the paths to peers.
#[derive(Debug, Default)]
pub(super) struct PathMtus {
    limits: HashMap<IpAddr, Limit>,
    /// The peer to which each queue pair was last connected.
    peers: HashMap<QpId, IpAddr>,
    notes: VecDeque<String>,
}

impl PathMtus {
    /// Records that a queue pair is connected to a peer.
    pub(super) fn meet(&mut self, qp: QpId, peer: IpAddr, now: Instant) {
        self.peers.insert(qp, peer);
        let Some(limit) = self.limits.get_mut(&peer) else { return };
        let Some(longest) = limit.suspected else { return };
        if now >= limit.since + SOON {
            self.limits.remove(&peer);
            return;
        }
        limit.suspected = None;
        if self.notes.len() < MOST_NOTES {
            self.notes.push_back(format!(
                "packets with {longest} bytes to {peer} were never answered, although the peer reconnected: compare the MTU of \
                 all links on the path; packets to the peer have at most {} bytes for the next {} min",
                limit.mtu,
                FORGOTTEN.as_secs() / 60
            ));
        }
    }

    /// Returns the largest path MTU for a queue pair's next connection, at most `own`.
    pub(super) fn limit(&self, qp: QpId, own: u16, now: Instant) -> u16 {
        let limit = self.peers.get(&qp).and_then(|peer| self.limits.get(peer));
        limit.filter(|limit| now < limit.since + FORGOTTEN).map_or(own, |limit| own.min(limit.mtu))
    }

    /// Records that a queue pair has broken with an unanswered request.
    pub(super) fn unanswered(&mut self, told: &Unanswered, now: Instant) {
        let Unanswered { path, bytes, longest } = *told;
        let (peer, mtu) = (path.peer(), path.mtu);
        let smaller = PATH_MTUS.iter().copied().filter(|smaller| *smaller < mtu).max();
        let in_packet = |bytes: u32| bytes.min(mtu.into());
        let says = |smaller: u16| bytes > u32::from(smaller) && in_packet(longest) < in_packet(bytes);
        let Some(limit) = smaller.filter(|smaller| says(*smaller)) else { return };
        // Several queue pairs with the same path MTU may break for the same reason. Only the first one sets the limit.
        let known = self.limits.get(&peer).is_some_and(|known| known.mtu <= limit && now < known.since + FORGOTTEN);
        if !known {
            let suspected = Some(in_packet(bytes));
            self.limits.insert(peer, Limit { mtu: limit, since: now, suspected });
        }
    }

    /// Returns the next message for the operator.
    pub(super) fn next_note(&mut self) -> Option<String> {
        self.notes.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use stentor_wire::{Envelope, Psn, RnrTimer};

    use super::*;
    use crate::endpoint::Path;

    const QP: QpId = QpId(3);

    fn peer() -> IpAddr {
        [10, 9, 0, 2].into()
    }

    /// Records that a queue pair with path MTU `mtu` broke. A request of `bytes` bytes was unanswered, and the longest
    /// answered request had `longest` bytes.
    fn end(paths: &mut PathMtus, mtu: u16, (bytes, longest): (u32, u32), now: Instant) {
        let path = Path {
            envelope: Envelope::plain([10, 9, 0, 1].into(), 0xc001, peer()).unwrap(),
            dest_qp: 2,
            expected_psn: Psn::new(0),
            mtu,
            max_dest_rd_atomic: 1,
            min_rnr_timer: RnrTimer::from_code(1),
        };
        paths.unanswered(&Unanswered { path, bytes, longest }, now);
    }

    fn met() -> (PathMtus, Instant) {
        let (mut paths, now) = (PathMtus::default(), Instant::now());
        paths.meet(QP, peer(), now);
        (paths, now)
    }

    #[test]
    fn each_break_with_long_packets_lowers_the_path_mtu() {
        let (mut paths, now) = met();
        assert_eq!(paths.limit(QP, 4096, now), 4096);
        for (mtu, limit) in [(4096, 2048), (2048, 1024), (1024, 512), (512, 256), (256, 256)] {
            end(&mut paths, mtu, (60_000, 0), now);
            assert_eq!(paths.limit(QP, 4096, now), limit);
            // Another queue pair to the same peer breaks, too.
            end(&mut paths, mtu, (60_000, 0), now);
            assert_eq!(paths.limit(QP, 4096, now), limit);
            paths.meet(QP, peer(), now);
            // A third queue pair breaks after the reconnect.
            end(&mut paths, mtu, (60_000, 0), now);
            paths.meet(QP, peer(), now);
        }
        assert_eq!((paths.limit(QP, 128, now), paths.limit(QpId(4), 4096, now)), (128, 4096));
        let notes: Vec<_> = std::iter::from_fn(|| paths.next_note()).collect();
        assert_eq!(notes.len(), 4);
        assert!(notes[0].contains("4096 bytes to 10.9.0.2") && notes[0].contains("at most 2048"), "{}", notes[0]);
    }

    #[test]
    fn packets_that_fit_a_smaller_mtu_cause_no_limit() {
        let (mut paths, now) = met();
        end(&mut paths, 4096, (2048, 0), now);
        assert_eq!(paths.limit(QP, 4096, now), 4096);
        for answered in [4096, 100_000] {
            end(&mut paths, 4096, (60_000, answered), now);
            assert_eq!(paths.limit(QP, 4096, now), 4096, "a packet of this length was answered before");
        }
        end(&mut paths, 4096, (2049, 2048), now);
        assert_eq!(paths.limit(QP, 4096, now), 2048);
        paths.meet(QP, peer(), now);
        // The limit of the path may lie between two path MTUs.
        end(&mut paths, 2048, (60_000, 1500), now);
        assert_eq!(paths.limit(QP, 4096, now), 1024);
    }

    #[test]
    fn a_late_reconnect_causes_no_limit() {
        let (mut paths, now) = met();
        end(&mut paths, 4096, (60_000, 0), now);
        paths.meet(QP, peer(), now + SOON);
        assert_eq!((paths.limit(QP, 4096, now + SOON), paths.next_note()), (4096, None));
    }

    #[test]
    fn a_limit_expires_and_is_found_again() {
        let (mut paths, now) = met();
        end(&mut paths, 1024, (1024, 0), now);
        paths.meet(QP, peer(), now);
        assert_eq!(paths.limit(QP, 4096, now + FORGOTTEN / 2), 512);
        let later = now + FORGOTTEN;
        assert_eq!(paths.limit(QP, 4096, later), 4096);
        end(&mut paths, 4096, (4096, 0), later);
        assert_eq!(paths.limit(QP, 4096, later), 2048);
    }
}
