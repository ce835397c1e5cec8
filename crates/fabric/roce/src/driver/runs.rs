//! Runs: packets to one destination that the kernel accepts as one buffer. The kernel splits a run on output. If the
//! receiver is on the same host, the kernel need not split the run at all.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use stentor_wire::icrc::RunIds;
use stentor_wire::{Envelope, ICRC_BYTES, IpRepr, UDP_PORT};

use super::sys::{BATCH, Name, Outgoing};

/// Maximum length of a run, in bytes: one UDP datagram.
const MOST_BYTES: usize = 65_000;

/// The peers that accept runs, and the ICRC differences of the packets of a run.
#[derive(Debug)]
pub(super) struct Runs {
    /// Peers that accept runs. If the kernel refused a run to a peer, the value is the time until which no runs are
    /// sent to that peer.
    peers: HashMap<IpAddr, Option<Instant>>,
    ids: RunIds,
    /// Time for which no runs are sent to a peer after the kernel refused one.
    pause: Duration,
}

impl Runs {
    pub(super) fn new(pause: Duration) -> Runs {
        Runs { peers: HashMap::new(), ids: RunIds::default(), pause }
    }

    /// Sets whether a peer accepts runs.
    pub(super) fn to(&mut self, peer: IpAddr, takes: bool) {
        if takes {
            self.peers.entry(peer).or_insert(None);
        } else {
            self.peers.remove(&peer);
        }
    }

    /// Pauses runs to this peer, because the kernel cannot split a run for its path.
    pub(super) fn refuse(&mut self, peer: IpAddr) {
        if let Some(until) = self.peers.get_mut(&peer) {
            *until = Instant::now().checked_add(self.pause);
        }
    }

    fn may_go(&self, peer: IpAddr) -> bool {
        self.peers.get(&peer).is_some_and(|until| until.is_none_or(|until| Instant::now() >= until))
    }
}

/// Packets for one system call, grouped in runs.
pub(super) struct Batch<'a> {
    packets: [Outgoing<'a>; BATCH],
    used: usize,
    runs: [usize; BATCH],
    run_count: usize,
    /// Destination and packet length of the run that may still grow.
    open: Option<(IpAddr, usize)>,
}

impl<'a> Batch<'a> {
    pub(super) fn new() -> Batch<'a> {
        let nothing = Outgoing::NOTHING;
        Batch { packets: [nothing; BATCH], used: 0, runs: [0; BATCH], run_count: 0, open: None }
    }

    pub(super) fn is_full(&self) -> bool {
        self.used == BATCH
    }

    pub(super) fn packets(&self) -> &[Outgoing<'a>] {
        &self.packets[..self.used]
    }

    /// Returns the number of packets of each run.
    pub(super) fn runs(&self) -> &[usize] {
        &self.runs[..self.run_count]
    }

    /// Returns whether any run has more than one packet.
    pub(super) fn has_runs(&self) -> bool {
        self.run_count < self.used
    }

    /// Adds a packet to the previous run if possible, and otherwise begins another run. If `alone` is set, the packet
    /// is sent outside of runs.
    pub(super) fn add(
        &mut self,
        (envelope, bytes, alone): (&Envelope, &'a [u8], bool),
        names: &mut Vec<Name>,
        runs: Option<&mut Runs>,
    ) {
        let to = envelope.ip.destination();
        let mut packet = Outgoing { bytes, ..Outgoing::NOTHING };
        let open = (!alone && runs.is_some()).then_some((to, bytes.len()));
        let place = self.run_count.wrapping_sub(1);
        let grows = open.is_some() && open == self.open && self.grows(place, bytes.len());
        // The lookup of the peer is the most expensive check, so it comes last. Most packets fail the checks before it.
        match runs.filter(|own| grows && own.may_go(to)) {
            Some(own) => {
                if let (IpRepr::V4(_), Some(icrc)) = (envelope.ip, bytes.last_chunk::<ICRC_BYTES>()) {
                    own.ids.fit(bytes.len());
                    packet.icrc = Some(own.ids.change(u32::from_le_bytes(*icrc), self.runs[place]).to_le_bytes());
                }
                self.runs[place] += 1;
            }
            None => {
                self.runs[self.run_count] = 1;
                self.run_count += 1;
                self.open = open;
            }
        }
        self.packets[self.used] = packet;
        self.used += 1;
        names.push(Name::new(to, UDP_PORT));
    }

    fn grows(&self, place: usize, bytes: usize) -> bool {
        let count = self.runs.get(place).map_or(RunIds::MOST, |count| *count);
        count < RunIds::MOST && (count + 1) * bytes <= MOST_BYTES
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn to(last: u8) -> Envelope {
        Envelope::plain(Ipv4Addr::new(10, 9, 0, 1).into(), 0xc001, Ipv4Addr::new(10, 9, 0, last).into()).unwrap()
    }

    /// Returns the number of packets of each run that is formed from these packets. A packet is given as the last byte
    /// of its destination 10.9.0.x, its length, and the flag `alone`.
    fn runs_of(packets: &[(u8, usize, bool)], refused: bool) -> Vec<usize> {
        let mut runs = Runs::new(Duration::from_secs(3600));
        runs.to(to(2).ip.destination(), true);
        runs.to(to(3).ip.destination(), true);
        if refused {
            runs.refuse(to(2).ip.destination());
            runs.to(to(2).ip.destination(), true);
        }
        let bytes = vec![7; 5000];
        let (mut batch, mut names) = (Batch::new(), Vec::new());
        for (last, length, alone) in packets {
            batch.add((&to(*last), &bytes[..*length], *alone), &mut names, Some(&mut runs));
        }
        assert_eq!((batch.packets().len(), names.len()), (packets.len(), packets.len()));
        batch.runs().to_vec()
    }

    #[test]
    fn a_run_has_one_destination_one_length_and_a_limit() {
        assert_eq!(runs_of(&[(2, 4128, false); 17], false), [15, 2]);
        assert_eq!(runs_of(&[(2, 5000, false); 14], false), [13, 1], "the maximum length of a datagram");
        let one = |last, bytes| (last, bytes, false);
        assert_eq!(
            runs_of(&[one(2, 40), one(2, 40), one(3, 40), one(3, 44), one(3, 44), one(2, 40)], false),
            [2, 1, 2, 1]
        );
        let again = (2, 40, true);
        assert_eq!(runs_of(&[one(2, 40), again, again, one(2, 40), one(2, 40)], false), [1, 1, 1, 2], "retransmits");
        assert_eq!(runs_of(&[one(4, 40), one(4, 40)], false), [1, 1], "the peer does not accept runs");
        let both = [one(2, 40), one(2, 40), one(3, 40), one(3, 40)];
        assert_eq!(runs_of(&both, true), [1, 1, 2], "packets are sent one by one after a refusal");
    }

    #[test]
    fn each_packet_of_a_run_has_the_icrc_of_its_identification() {
        let mut runs = Runs::new(Duration::ZERO);
        runs.to(to(2).ip.destination(), true);
        let mut envelope = to(2);
        let mut packets: Vec<_> = (0..4_u8).map(|n| vec![n; 60]).collect();
        packets.iter_mut().for_each(|packet| envelope.seal(packet));
        let (mut batch, mut names) = (Batch::new(), Vec::new());
        for packet in &packets {
            batch.add((&to(2), packet, false), &mut names, Some(&mut runs));
        }
        for (id, packet) in batch.packets().iter().enumerate() {
            let IpRepr::V4(ip) = &mut envelope.ip else { unreachable!() };
            ip.id = id as u16;
            let expected = envelope.icrc(packet.bytes).to_le_bytes();
            assert_eq!(packet.icrc, (id > 0).then_some(expected), "packet {id}");
        }
    }
}
