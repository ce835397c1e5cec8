//! How long packets to a peer may be.
//!
//! The interface of the own address says what leaves this host. What the links behind it take nobody says: a path may swallow
//! long packets and carry short ones. Then a queue pair breaks whose long packets were never answered.
//!
//! # States of a peer
//! *unlimited* → *limited* to the next smaller path MTU, each time a queue pair breaks like that → unlimited, [`FORGOTTEN`] after
//! the last time, because paths change, and because a peer that stopped answers nothing, either.
//!
//! # Invariants
//! - A limit is below the path MTU of the queue pair that broke, and at least the smallest.
//! - A queue pair whose unanswered packet would fit the smaller path MTU, too, says nothing about the path.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use stentor_fabric::QpId;
use stentor_wire::PATH_MTUS;

/// After which time a longer packet is tried again, with the next connection: as long as Linux remembers the MTU of a path.
const FORGOTTEN: Duration = Duration::from_secs(600);
/// Words that wait to be read.
const MOST_NOTES: usize = 64;

/// What is known of the ways to peers.
#[derive(Debug, Default)]
pub(super) struct PathMtus {
    /// The limit, and since when.
    limits: HashMap<IpAddr, (u16, Instant)>,
    /// The peer at the other end of a queue pair, as of its last connection.
    peers: HashMap<QpId, IpAddr>,
    notes: VecDeque<String>,
}

impl PathMtus {
    /// A queue pair is connected to a peer.
    pub(super) fn meet(&mut self, qp: QpId, peer: IpAddr) {
        self.peers.insert(qp, peer);
    }

    /// Returns the largest path MTU that may be used on a queue pair's next connection, of those up to `own`.
    pub(super) fn limit(&self, qp: QpId, own: u16, now: Instant) -> u16 {
        let limit = self.peers.get(&qp).and_then(|peer| self.limits.get(peer));
        limit.filter(|(_, since)| now < *since + FORGOTTEN).map_or(own, |(limit, _)| own.min(*limit))
    }

    /// A queue pair with a path MTU broke, because so many bytes of one request to a peer were never answered.
    pub(super) fn unanswered(&mut self, peer: IpAddr, mtu: u16, bytes: u32, now: Instant) {
        let smaller = PATH_MTUS.iter().copied().filter(|smaller| *smaller < mtu).max();
        let Some(limit) = smaller.filter(|smaller| bytes > u32::from(*smaller)) else { return };
        // Several queue pairs of one path MTU break for one reason.
        let known = self.limits.get(&peer).is_some_and(|(known, since)| *known <= limit && now < *since + FORGOTTEN);
        if known {
            return;
        }
        self.limits.insert(peer, (limit, now));
        if self.notes.len() < MOST_NOTES {
            let longest = bytes.min(mtu.into());
            self.notes.push_back(format!(
                "packets with {longest} bytes to {peer} were never answered: if shorter ones are, the path takes no long ones \
                 (compare the MTU of all links between); at most {limit} bytes go into a packet for the next {} min",
                FORGOTTEN.as_secs() / 60
            ));
        }
    }

    pub(super) fn next_note(&mut self) -> Option<String> {
        self.notes.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QP: QpId = QpId(3);

    fn peer() -> IpAddr {
        [10, 9, 0, 2].into()
    }

    fn met() -> (PathMtus, Instant) {
        let mut paths = PathMtus::default();
        paths.meet(QP, peer());
        (paths, Instant::now())
    }

    #[test]
    fn each_break_of_long_packets_takes_the_next_smaller_path_mtu() {
        let (mut paths, now) = met();
        assert_eq!(paths.limit(QP, 4096, now), 4096);
        for (mtu, limit) in [(4096, 2048), (2048, 1024), (1024, 512), (512, 256), (256, 256)] {
            paths.unanswered(peer(), mtu, 60_000, now);
            assert_eq!(paths.limit(QP, 4096, now), limit);
            // Another queue pair of the same connection breaks as well.
            paths.unanswered(peer(), mtu, 60_000, now);
            assert_eq!(paths.limit(QP, 4096, now), limit);
        }
        assert_eq!((paths.limit(QP, 128, now), paths.limit(QpId(4), 4096, now)), (128, 4096));
        let notes: Vec<_> = std::iter::from_fn(|| paths.next_note()).collect();
        assert_eq!(notes.len(), 4);
        assert!(notes[0].contains("4096 bytes to 10.9.0.2") && notes[0].contains("at most 2048"), "{}", notes[0]);
    }

    #[test]
    fn what_would_fit_a_smaller_packet_says_nothing_about_the_path() {
        let (mut paths, now) = met();
        paths.unanswered(peer(), 4096, 2048, now);
        assert_eq!((paths.limit(QP, 4096, now), paths.next_note()), (4096, None));
        paths.unanswered(peer(), 4096, 2049, now);
        assert_eq!(paths.limit(QP, 4096, now), 2048);
    }

    #[test]
    fn a_limit_is_forgotten_and_learnt_anew() {
        let (mut paths, now) = met();
        paths.unanswered(peer(), 1024, 1024, now);
        assert_eq!(paths.limit(QP, 4096, now + FORGOTTEN / 2), 512);
        let later = now + FORGOTTEN;
        assert_eq!(paths.limit(QP, 4096, later), 4096);
        paths.unanswered(peer(), 4096, 4096, later);
        assert_eq!(paths.limit(QP, 4096, later), 2048);
    }
}
