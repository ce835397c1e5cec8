//! A member that stands aside and returns on the same connection, where writes are not ordered.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Delay, Fault, NetworkModel};
use stentor_multicast::{Limits, Mutant};

use crate::bed::{Bed, RECONNECTED_NS};

/// The member that stands aside.
const AWAY: u16 = 2;
/// Maximum delay of a write; the other members free several laps in this time.
const LATE_NS: u64 = 6_000_000;
/// Time between two messages of the client.
const PACE_NS: u64 = 20_000;
const SEEDS: std::ops::Range<u64> = 0..40;

/// Returns a network on which one write in forty is late, and is overtaken by writes that were posted after it.
fn network() -> NetworkModel {
    let propagation = Delay::between(600, 1_200).with_tail(25_000, LATE_NS);
    NetworkModel { ordered_writes: false, propagation, ..NetworkModel::calm() }
}

/// Returns limits with which a lap of the client's ring has 16 cache lines.
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
    /// `true` if all members delivered all messages in the same order, and the client continues at the end.
    complete: bool,
    /// Number of times that the member stood aside and was waited for again.
    returns: u64,
    reordered: u64,
}

/// A client continues for several laps while a member stands aside and then returns, again and again.
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
        // The member is stalled now, so late writes land on records that it has not read.
        bed.world.inject(bed.world.now_ns(), Fault::Stall { process: away, for_ns: LATE_NS });
        for _ in 0..40 {
            submit(&mut bed);
            bed.run(PACE_NS);
        }
        bed.run(4 * LATE_NS);
        returns += u64::from(left && bed.clients[0].counts_on(away));
        // More than a lap: the client is blocked for good, or waits for a late write.
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
fn returned_member_is_written_when_no_earlier_write_can_land() {
    let (mut returns, mut reordered) = (0, 0);
    for seed in SEEDS {
        let outcome = back_on_the_same_connection(seed, Mutant::None);
        assert!(outcome.complete, "seed {seed}");
        returns += outcome.returns;
        reordered += outcome.reordered;
    }
    assert!(returns > 100 && reordered > 1_000, "{returns} returns, {reordered} overtaken");
}

/// A write of an earlier lap lands on newer records. The member stops reading at that record, and the client blocks
/// when the ring is full.
#[cfg(feature = "plants")]
#[test]
fn mutant_that_restarts_a_member_under_earlier_writes_blocks_its_client() {
    let stuck = SEEDS.filter(|seed| !back_on_the_same_connection(*seed, Mutant::StartedUnderWrites).complete).count();
    assert!(stuck > 1, "{stuck} stuck");
}
