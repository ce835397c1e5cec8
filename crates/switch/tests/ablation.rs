//! Acknowledgements in rounds with a bitmap, as an earlier draft had them, against the exact least: how often the last packet
//! stays unacknowledged although nothing was lost, and what that costs.
//!
//! A sender sends 16 packets, one per packet time; each receiver acknowledges each packet, after a packet time and a jitter by
//! chance, in order. A stall ends when the sender's timeout does.

mod common;

use common::{Bed, FIRST, GID, link, receives_from};
use stentor_switch::control::Operation;
use stentor_switch::{Aggregation, Config};
use stentor_wire::{Psn, Syndrome};

const PACKETS: u32 = 16;
const RUNS: u32 = 100;
/// 1.05 ms, in packet times of 4096 bytes at 100 Gbit/s.
const TIMEOUT: f64 = 3200.0;

/// SplitMix64.
struct Random(u64);

impl Random {
    /// From 0 up to 1.
    fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ z >> 31) >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// When the sender has the last acknowledgement, packet times from its first packet; none if it never has.
fn completion(aggregation: Aggregation, n: u8, jitter: f64, random: &mut Random) -> Option<f64> {
    let config = Config { aggregation, ..Config::new(common::FORWARD, common::BACKWARD) };
    let mut bed = Bed::with(n, config);
    let links: Vec<_> = (0..n).map(link).collect();
    bed.left(&Bed::control(0, (FIRST, 0), Operation::Link, &links));
    for packet in 1..=PACKETS {
        assert_eq!(bed.left(&Bed::send(0, FIRST + packet)).len(), usize::from(n));
    }
    let mut answers = Vec::new();
    for rank in 0..n {
        let mut at = 0.0_f64;
        for packet in 0..PACKETS {
            at = at.max(f64::from(packet) + 1.0 + jitter * random.part());
            answers.push((at, rank, packet));
        }
    }
    answers.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.2.cmp(&b.2)));
    for (at, rank, packet) in answers {
        bed.left(&Bed::feedback(rank, receives_from(rank) + packet, Syndrome::ACK, packet + 1));
        if bed.switch.arrays().view(GID).unwrap().progress.last == Psn::new(FIRST + PACKETS) {
            return Some(at);
        }
    }
    None
}

/// Stalls, as a part of all runs, and the mean completion time, with stalls as long as the timeout.
fn many(aggregation: Aggregation, n: u8, jitter: f64) -> (f64, f64) {
    let mut random = Random(u64::from(n));
    let (mut stalls, mut sum) = (0.0, 0.0);
    for _ in 0..RUNS {
        match completion(aggregation, n, jitter, &mut random) {
            Some(at) => sum += at,
            None => (stalls, sum) = (stalls + 1.0, sum + f64::from(PACKETS) + TIMEOUT),
        }
    }
    (stalls / f64::from(RUNS), sum / f64::from(RUNS))
}

#[test]
fn rounds_stall_and_the_exact_least_never_does() {
    println!("receivers  jitter  stalls: rounds  exact   completion, packet times: rounds  exact");
    for n in [2, 4, 8, 32] {
        for jitter in [0.5, 2.0] {
            let (rounds, late) = many(Aggregation::RoundBitmap, n, jitter);
            let (exact, soon) = many(Aggregation::ExactMin, n, jitter);
            let (a, b) = (100.0 * rounds, 100.0 * exact);
            println!("{n:>9}  {jitter:>6}  {a:>13.1}%  {b:>4.1}%  {late:>32.1}  {soon:>5.1}");
            assert!(exact == 0.0 && soon < f64::from(PACKETS) + 2.0, "{n}: {exact}, {soon}");
            if jitter > 1.0 {
                assert!(rounds > 0.0 && late > soon, "{n}: {rounds}");
            } else {
                assert!(rounds == 0.0, "{n}: jitter below a packet's time, {rounds}");
            }
        }
    }
}
