//! The 16 hosts of a set take turns as the sender, on sockets. Each sends to several random subsets of the others, one
//! after the other. Each change takes one control packet, no connection is set up again, and no register is added. The
//! simulation crate's `tests/switch_subsets.rs` does this without sockets, and checks every property at every step.

mod common;

use common::{Bed, GID};
use stentor_fabric::Status;
use stentor_fabric_roce::driver::Chances;
use stentor_fabric_roce::endpoint::{Data, Remote, Request};
use stentor_soft_switch::Faults;
use stentor_switch::control::Operation;
use stentor_switch::{Cause, resources};

const HOSTS: u8 = 16;
/// Address to which senders write their messages.
const VA: u64 = 64;
/// Number of words of a receiver's memory that messages may go to. Each LINK selects one.
const WORDS: u64 = 8;
/// Maximum number of subsets that a sender uses before it releases the set.
const TURN: u64 = 8;

/// The expected contents of each host, and a random generator.
struct Walk {
    bed: Bed,
    /// Expected receives of each rank: length in bytes and serial number of the message.
    meant: Vec<Vec<(u32, Option<u32>)>>,
    /// Words that WRITEs left in each rank's memory.
    written: Vec<[u64; WORDS as usize]>,
    posted: Vec<usize>,
    word: u64,
    linked: u32,
}

impl Walk {
    fn new(bed: Bed) -> Walk {
        let n = bed.hosts.len();
        Walk {
            bed,
            meant: vec![Vec::new(); n],
            written: vec![[0; WORDS as usize]; n],
            posted: vec![64; n],
            word: 1,
            linked: 0,
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.word = self.word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.word >> 33) % bound
    }

    /// Sends a message to each of some subsets of the other hosts, then releases the set.
    fn turn(&mut self, sender: usize, most: u64) {
        self.bed.lead(sender);
        let (count, n) = ((1 + self.below(TURN)).min(most), self.bed.hosts.len());
        for _ in 0..count {
            let mask = std::iter::repeat_with(|| self.below(1 << n) & !(1 << sender)).find(|mask| *mask != 0).unwrap();
            self.message(&(0..n).filter(|rank| mask >> rank & 1 == 1).collect::<Vec<_>>(), sender);
        }
        assert_eq!(self.bed.control(Operation::Release, &[]), Status::Success);
        self.bed.lead(sender);
        for (rank, posted) in self.posted.iter_mut().enumerate() {
            let spent = self.meant[rank].len() + 64 - *posted;
            self.bed.hosts[rank].post_receives(spent as u32, 64).unwrap();
            *posted += spent;
        }
    }

    fn message(&mut self, ranks: &[usize], sender: usize) {
        // The sender and the first host have exchanged their places.
        let place = |rank: usize| if rank == 0 { sender } else { rank };
        let places: Vec<(usize, u64)> = ranks.iter().map(|rank| (place(*rank), 8 * self.below(WORDS))).collect();
        assert_eq!(self.bed.link_at(&places), Status::Success, "subset {}", self.linked);
        self.linked += 1;
        let serial = self.linked;
        let word = u64::from(serial) << 32 | u64::from(!serial);
        let data = word.to_ne_bytes();
        let (data, remote, imm) = (Data::Inline(&data), Remote { va: VA, rkey: 0 }, Some(serial));
        let kind = self.below(3);
        let request = match kind {
            0 => Request::Send { data, imm },
            1 => Request::Write { data, remote, imm },
            _ => Request::Write { data, remote, imm: None },
        };
        assert_eq!(self.bed.request(request), Status::Success, "message {serial}");
        for (rank, (_, offset)) in ranks.iter().zip(&places) {
            if kind != 0 {
                self.written[*rank][(offset / 8) as usize] = word;
            }
            if kind != 2 {
                self.meant[*rank].push((8, imm));
            }
        }
        for host in &self.bed.hosts {
            let rank = usize::from(host.config().rank);
            let expected: Vec<u8> = self.written[rank].iter().flat_map(|word| word.to_ne_bytes()).collect();
            assert_eq!(host.bytes(VA as usize, 64), expected, "rank {rank}, message {serial} to {ranks:?}");
        }
    }

    /// Sends to `subsets` subsets, from all hosts in turn.
    fn walk(&mut self, subsets: u32) {
        let mut turns = 0;
        let bits = self.bed.switch.switch().arrays().bits();
        while self.linked < subsets {
            self.turn(turns % usize::from(HOSTS), u64::from(subsets - self.linked));
            turns += 1;
        }
        self.bed.rest();
        for (rank, meant) in self.meant.iter().enumerate() {
            assert!(self.bed.received[rank] == *meant, "each once, in order, at rank {rank}");
        }
        let switch = self.bed.switch.switch();
        assert_eq!((switch.arrays().bits(), self.bed.hosts.len()), (bits, usize::from(HOSTS)));
        assert_eq!(switch.counters().of(Cause::Began), u64::from(subsets), "each was linked once");
        let (set, groups) = (resources::set_bits(HOSTS.into()).total(), resources::static_groups(HOSTS.into()));
        println!(
            "{subsets} subsets of {HOSTS} hosts in {turns} turns: {bits} bits of registers before and after, {set} for a \
             set of {HOSTS}; set up one by one n*(2^(n-1)-1) = {groups} groups"
        );
    }
}

#[test]
fn ten_thousand_random_subsets_take_one_control_packet_each() {
    let mut walk = Walk::new(Bed::new(21, HOSTS, |_| {}));
    walk.walk(10_000);
    let shown = walk.bed.switch.show(&walk.bed.settings, Some(GID));
    assert_eq!((shown.sets.len(), shown.sets[0].state.as_str()), (1, "free"));
}

#[test]
fn messages_to_a_thousand_subsets_survive_one_percent_loss() {
    let mut walk = Walk::new(Bed::new(22, HOSTS, |settings| {
        let links = Chances { drop: 0.01, ..Chances::default() };
        settings.faults = Faults { links, loop_drop: 0.01, seed: 4 };
    }));
    walk.walk(1000);
    let injected = walk.bed.switch.injected();
    assert!(injected.iter().sum::<u64>() > 100, "{injected:?}");
}
