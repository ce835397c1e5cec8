//! A member that stands aside and comes back on the same connection, where writes have no order.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Delay, Fault, NetworkModel};
use stentor_multicast::{Limits, Mutant};

use crate::bed::{Bed, RECONNECTED_NS};

/// The member that stands aside.
const AWAY: u16 = 2;
/// How long a message may take: in this time the others free several laps.
const LATE_NS: u64 = 6_000_000;
/// Between two messages of the client.
const PACE_NS: u64 = 20_000;
const SEEDS: std::ops::Range<u64> = 0..40;

/// One message in forty is late, and what is posted after it overtakes it.
fn network() -> NetworkModel {
    let propagation = Delay::between(600, 1_200).with_tail(25_000, LATE_NS);
    NetworkModel { ordered_writes: false, propagation, ..NetworkModel::calm() }
}

/// A lap of 16 lines.
fn limits() -> Limits {
    Limits { message_bytes: 64, window: 64, body_ring_bytes: 1024, control_ring_bytes: 4096, ..Limits::default() }
}

impl Bed {
    fn stand_aside(&mut self, aside: bool) {
        self.members[usize::from(AWAY)].set_aside(aside);
        self.world.wake_at(ProcessId(AWAY), self.world.now_ns());
    }
}

/// The outcome of a run.
struct Outcome {
    /// Whether everybody delivered everything, and alike, and the client goes on in the end.
    complete: bool,
    /// How often the member was waited for no more, and again.
    returns: u64,
    reordered: u64,
}

/// A client goes on for laps while a member stands aside, which then comes back, again and again.
fn back_on_the_same_connection(seed: u64, mutant: Mutant) -> Outcome {
    let mut bed = Bed::planted(&[3], 1, limits(), network(), (seed, mutant));
    bed.run(4 * RECONNECTED_NS);
    let mut sent = Vec::new();
    let mut submit = |bed: &mut Bed| {
        let payload = format!("message {}", sent.len());
        let id = bed.submit(0, &[0], payload.as_bytes()).ok();
        sent.extend(id.map(|id| (id, payload.into_bytes())));
        id.is_some()
    };
    let away = ProcessId(AWAY);
    let (mut returns, mut goes_on) = (0, true);
    for _ in 0..12 {
        while submit(&mut bed) {}
        bed.stand_aside(true);
        for _ in 0..40 {
            submit(&mut bed);
            bed.run(PACE_NS);
        }
        let left = !bed.clients[0].counts_on(away);
        bed.stand_aside(false);
        bed.run(5 * PACE_NS);
        // Now it reads nothing: what lands late finds records that were not taken.
        bed.world.inject(bed.world.now_ns(), Fault::Stall { process: away, for_ns: LATE_NS });
        for _ in 0..40 {
            submit(&mut bed);
            bed.run(PACE_NS);
        }
        bed.run(4 * LATE_NS);
        returns += u64::from(left && bed.clients[0].counts_on(away));
        // More than a lap: it stands still, or waits for a message that is late.
        for _ in 0..20 {
            if !submit(&mut bed) {
                bed.run(4 * LATE_NS);
                goes_on &= submit(&mut bed);
            }
        }
        bed.run(4 * LATE_NS);
    }
    bed.run(8 * LATE_NS);
    let complete = goes_on && bed.delivered.iter().all(|delivered| *delivered == sent);
    Outcome { complete, returns, reordered: bed.world.fault_counts().reordered_on_one_queue_pair }
}

#[test]
fn a_member_that_comes_back_is_written_when_no_earlier_write_can_land() {
    let (mut returns, mut reordered) = (0, 0);
    for seed in SEEDS {
        let outcome = back_on_the_same_connection(seed, Mutant::None);
        assert!(outcome.complete, "seed {seed}");
        returns += outcome.returns;
        reordered += outcome.reordered;
    }
    assert!(returns > 100 && reordered > 1_000, "{returns} returns, {reordered} overtaken");
}

/// A write of an earlier lap lands on what was written since: the member reads on there no more, and the client stands still
/// when the ring is full.
#[cfg(feature = "plants")]
#[test]
fn a_member_that_is_started_under_earlier_writes_stops_its_client() {
    let stuck = SEEDS.filter(|seed| !back_on_the_same_connection(*seed, Mutant::StartedUnderWrites).complete).count();
    assert!(stuck > 1, "{stuck} stuck");
}
