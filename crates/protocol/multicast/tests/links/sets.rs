//! A client whose fan-out set breaks, and whose copies land late.

use stentor_fabric::{Fabric, ProcessId, QpId, QpState};
use stentor_fabric_sim::{Fault, NetworkModel};
use stentor_multicast::{GroupId, Limits, Mutant, SubmitError};

use crate::bed::{Bed, RECONNECTED_NS, SETTLED_NS};

const G0: &[GroupId] = &[GroupId(0)];
/// The member that is partitioned.
const AWAY: u16 = 2;
const CLIENT: u16 = 3;
/// The client's queue pair to that member.
const LINK: QpId = QpId(2);
const SET: QpId = QpId(3);
/// Maximum time for which copies of a broken set stay in the network: longer than a link needs to reconnect.
const LATE_NS: u64 = 12 * RECONNECTED_NS;

fn network() -> NetworkModel {
    NetworkModel { hardware_multicast: true, late_copy_ns: LATE_NS, set_grace_ns: 2 * LATE_NS, ..NetworkModel::calm() }
}

/// Returns limits with which a lap of the client's ring has 16 cache lines, so that at most 16 lines are ever kept.
fn limits() -> Limits {
    Limits { message_bytes: 64, window: 64, body_ring_bytes: 1024, control_ring_bytes: 4096, ..Limits::default() }
}

/// The outcome of a run.
struct Outcome {
    /// `true` if all members delivered all messages in the same order.
    complete: bool,
    /// `true` if the client counted the member although a write of the set might still land there.
    early: bool,
    late_copies: u64,
}

/// A client writes through its fan-out set to a member from which it is partitioned. First the set breaks, then the
/// link. The client continues with the other two members for several laps, until the whole ring is kept. The link
/// reconnects while the network still has the first copy.
fn reconnect_before_a_late_copy(seed: u64, mutant: Mutant) -> Outcome {
    let mut bed = Bed::planted(&[3], 1, limits(), network(), (seed, mutant));
    bed.run(2 * RECONNECTED_NS);
    assert!(bed.clients[0].is_copied(G0), "seed {seed}");
    let mut sent = Vec::new();
    let mut submit = |bed: &mut Bed| {
        let payload = format!("message {}", sent.len());
        let id = bed.submit(0, &[0], payload.as_bytes())?;
        sent.push((id, payload.into_bytes()));
        Ok::<(), SubmitError>(())
    };
    bed.world.cut(ProcessId(CLIENT), ProcessId(AWAY));
    // The network does not report the end of the set to the partitioned member.
    bed.world.cut_one_way(ProcessId(AWAY), ProcessId(AWAY));
    submit(&mut bed).expect("the client is connected to all destinations");
    bed.run(RECONNECTED_NS);
    assert!(!bed.clients[0].counts_on(ProcessId(AWAY)) && !bed.clients[0].is_copied(G0), "seed {seed}");
    for _ in 0..40 {
        submit(&mut bed).expect("two of three are connected, and free what they read");
        bed.run(SETTLED_NS);
    }
    // Nothing is delivered any more, so nothing is freed, and the ring fills.
    bed.world.inject(bed.world.now_ns(), Fault::Stall { process: ProcessId(0), for_ns: RECONNECTED_NS });
    bed.run(1_000);
    while submit(&mut bed).is_ok() {}
    bed.world.heal(ProcessId(CLIENT), ProcessId(AWAY));
    bed.run(2 * RECONNECTED_NS);
    let fabric = bed.clients[0].fabric();
    assert_eq!(fabric.state(LINK), QpState::Ready, "seed {seed}");
    assert!(!fabric.set_settled(SET, ProcessId(AWAY)), "seed {seed}: it cannot know yet");
    let early = bed.clients[0].counts_on(ProcessId(AWAY));
    bed.world.heal(ProcessId(AWAY), ProcessId(AWAY));
    bed.run(LATE_NS);
    // Another lap passes through the position that a late copy may have overwritten.
    for _ in 0..40 {
        let _ = submit(&mut bed);
        bed.run(SETTLED_NS);
    }
    bed.run(LATE_NS);
    let complete = sent.len() > 80 && bed.delivered.iter().all(|delivered| *delivered == sent);
    Outcome { complete, early, late_copies: bed.world.set_counts().late_copies }
}

#[test]
fn member_that_reconnects_before_a_late_copy_is_restarted_after_it_and_misses_nothing() {
    let mut late = 0;
    for seed in 0..40 {
        let outcome = reconnect_before_a_late_copy(seed, Mutant::None);
        assert!(outcome.complete && !outcome.early, "seed {seed}");
        late += outcome.late_copies;
    }
    assert!(late > 0, "nothing was late");
}

/// The late copy overwrites records that were written again too early. The member stops reading at that record, and the
/// client blocks when the ring is full.
#[cfg(feature = "plants")]
#[test]
fn mutant_that_restarts_a_member_before_late_copies_are_over_blocks_its_client() {
    let outcomes: Vec<_> = (0..40).map(|seed| reconnect_before_a_late_copy(seed, Mutant::UnsettledStart)).collect();
    assert!(outcomes.iter().any(|outcome| outcome.early));
    let stuck: Vec<_> = outcomes.iter().filter(|outcome| !outcome.complete).collect();
    assert!(stuck.len() > 2 && stuck.iter().all(|outcome| outcome.late_copies > 0), "{} of 40", stuck.len());
}
