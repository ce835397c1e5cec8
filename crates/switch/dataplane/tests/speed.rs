//! Measures the cost of a pass. The test is ignored by default; it needs an otherwise idle processor and a release
//! build: `cargo test --release -p stentor-switch --test speed -- --ignored --nocapture` (the step `switch-speed` of
//! `cargo xtask nightly`).

mod common;

use std::hint::black_box;
use std::time::Instant;

use common::{Bed, FIRST, link};
use stentor_switch::control::Operation;
use stentor_switch::{Arrival, Cause};
use stentor_wire::{Message, Psn};

/// Number of rounds, of which the median counts.
const ROUNDS: usize = 101;
/// Passes of a round: few, so that a round is rarely interrupted.
const PASSES: u32 = 1920;
/// Number of trials, of which the best counts: on a shared machine some trials are disturbed.
const TRIALS: usize = 5;
/// Limit for one receiver, in nanoseconds.
const MOST_NS: f64 = 100.0;
/// Limit for n receivers, as a multiple of n times the cost of one.
const MOST_PART: f64 = 1.10;

/// Returns the time of all passes of a packet with 64 bytes of payload, in nanoseconds.
fn time(receivers: u8) -> f64 {
    let mut bed = Bed::new(32);
    let links: Vec<_> = (0..receivers).map(link).collect();
    bed.left(&Bed::control(0, (FIRST, 0), Operation::Link, &links));
    let mut bytes = Bed::data(0, 0, Message::SendOnly, &[7; 64]);
    let mut psn = Psn::new(FIRST);
    let mut times = Vec::new();
    let packets = PASSES / u32::from(receivers);
    for _ in 0..ROUNDS {
        let since = Instant::now();
        for _ in 0..packets {
            psn = psn.next();
            bytes[37..40].copy_from_slice(&psn.to_bytes());
            let mut bridge = None;
            loop {
                let departure = bed.switch.step(&Arrival { bytes: black_box(&bytes), bridge, now_ns: 1 });
                black_box(&departure.emission);
                bridge = departure.mirror;
                if bridge.is_none() {
                    break;
                }
            }
        }
        times.push(since.elapsed().as_secs_f64() * 1e9 / f64::from(packets));
    }
    let copies = bed.switch.counters().of(Cause::Copied);
    assert_eq!(copies, ROUNDS as u64 * u64::from(packets) * u64::from(receivers), "each packet was copied");
    times.sort_by(f64::total_cmp);
    times[ROUNDS / 2]
}

#[test]
#[ignore = "measures: see the top of the file"]
fn pass_takes_at_most_100_ns_for_any_number_of_receivers() {
    let mut within = false;
    for _ in 0..TRIALS {
        let one = time(1);
        let times: Vec<(u8, f64)> = [2, 8, 32].into_iter().map(|n| (n, time(n))).collect();
        let parts: Vec<f64> = times.iter().map(|(n, time)| time / (one * f64::from(*n))).collect();
        println!("1 receiver: {one:.1} ns; {times:.1?} ns; as parts of n times one receiver: {parts:.2?}");
        within = one <= MOST_NS && parts.iter().all(|part| *part <= MOST_PART);
        if within {
            break;
        }
    }
    assert!(within, "the limits were exceeded in all {TRIALS} trials");
}
