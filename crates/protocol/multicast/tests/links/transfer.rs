//! States many times larger than a ring, with processes that die, stall or change while the states are in flight.

use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Fault, NetworkModel};
use stentor_multicast::{
    GivenUp, Incarnation, Limits, MessageId, Mutant, Rejected, TransferOutcome, TransferReport, TransferRole,
};

use crate::bed::{Bed, RECONNECTED_NS, SETTLED_NS, limits};

/// Bytes of a state: a hundred times as many as a control ring has.
const LARGE: usize = 400 << 10;

/// Returns a group with large states, in which messages were delivered.
fn bed(
    groups: &[usize],
    limits: Limits,
    network: NetworkModel,
    (seed, mutant): (u64, Mutant),
) -> (Bed, Vec<MessageId>) {
    let mut bed = Bed::planted(groups, 1, limits, network, (seed, mutant));
    bed.padding = LARGE;
    bed.run(RECONNECTED_NS);
    let sent = bed.multicast(20);
    (bed, sent)
}

fn calm(seed: u64) -> (Bed, Vec<MessageId>) {
    bed(&[5], limits(), NetworkModel::calm(), (seed, Mutant::None))
}

impl Bed {
    fn crash_member(&mut self, member: u16) {
        self.world.inject(self.world.now_ns(), Fault::Crash(ProcessId(member)));
    }

    fn stall(&mut self, member: u16, for_ns: u64) {
        self.world.inject(self.world.now_ns(), Fault::Stall { process: ProcessId(member), for_ns });
    }

    /// Multicasts messages, one after the other, each as soon as there is room.
    fn multicast(&mut self, messages: u32) -> Vec<MessageId> {
        let mut sent = Vec::new();
        for n in 0..messages {
            let mut tries = 0;
            let id = loop {
                match self.submit(0, &[0], &n.to_le_bytes()) {
                    Ok(id) => break id,
                    Err(error) => assert!(tries < 20_000, "message {n}: {error}"),
                }
                tries += 1;
                self.run(20_000);
            };
            sent.push(id);
            self.run(20_000);
        }
        sent
    }

    fn agree_on(&self, members: &[usize], sent: &[MessageId], why: &str) {
        for member in members {
            let delivered: Vec<MessageId> = self.delivered[*member].iter().map(|(id, _)| *id).collect();
            let handed = &self.handed[*member];
            assert_eq!(delivered, sent, "{why}: member {member}, {handed:?}");
            assert_eq!(handed.torn, 0, "{why}: member {member}, {handed:?}");
        }
        for member in &self.members {
            let used = member.memory_use();
            assert!(used.most_queued <= used.queue_limit, "{why}: {used:?}");
        }
    }

    /// Runs until a member takes part in a transfer and has received at least `bytes` bytes of the state.
    fn run_into_transfer(&mut self, receiver: usize, bytes: u64) {
        for _ in 0..20_000 {
            if self.members[receiver].transfer_received() >= bytes {
                return;
            }
            self.run(10_000);
        }
        panic!("no transfer: {:?}", self.handed);
    }

    /// Runs until clients were asked not to wait for a member, because it receives a state.
    fn run_out_of_flow_control(&mut self, receiver: usize) {
        self.members[receiver].set_tick(Duration::from_micros(100));
        self.run_into_transfer(receiver, 1);
        while !self.members[receiver].is_aside() {
            self.run(10_000);
            assert!(self.members[receiver].replica().is_joining(), "the state is larger than that");
        }
        self.run(SETTLED_NS);
    }

    fn outcomes(&self, member: usize, role: TransferRole) -> Vec<TransferOutcome> {
        let reports = self.handed[member].reports.iter();
        reports.filter(|report| report.role == role).map(|report| report.outcome).collect()
    }

    fn report(&self, member: usize, is: impl Fn(&TransferReport) -> bool) -> bool {
        self.handed[member].reports.iter().any(is)
    }
}

/// Restarts a member while messages flow.
fn restart_member_under_load(seed: u64, network: NetworkModel, mutant: Mutant) -> (Bed, Outcome) {
    let (mut bed, mut sent) = bed(&[3], limits(), network, (seed, mutant));
    bed.restart_member(2);
    bed.run_into_transfer(2, LARGE as u64 / 10);
    sent.extend(bed.multicast(3));
    assert!(bed.members[2].replica().is_joining(), "seed {seed}: the state is larger than that");
    sent.extend(bed.multicast(40));
    bed.run(20 * RECONNECTED_NS);
    sent.extend(bed.multicast(20));
    bed.run(2 * RECONNECTED_NS);
    let outcome = Outcome::of(&bed, &sent, &[0, 1, 2], 2);
    (bed, outcome)
}

/// Requests are repeated and messages are delivered all the time, but the donor freezes only once.
#[test]
fn a_large_state_arrives_at_the_first_attempt_while_messages_flow() {
    let networks = [NetworkModel::calm(), NetworkModel::adversarial(), NetworkModel::unordered()];
    for (seed, network) in (0..).zip(networks) {
        let (bed, outcome) = restart_member_under_load(seed, network, Mutant::None);
        let Outcome { complete, freezes, restores, torn } = outcome;
        assert!(complete && (freezes, restores, torn) == (1, 1, 0), "seed {seed}: {outcome:?}");
        let whole = [TransferOutcome::Began, TransferOutcome::Complete];
        assert_eq!(bed.outcomes(0, TransferRole::Donor), whole, "seed {seed}");
        assert_eq!(bed.outcomes(2, TransferRole::Receiver), whole, "seed {seed}");
        for member in &bed.members {
            let used = member.memory_use();
            assert!(used.most_queued <= used.queue_limit, "seed {seed}: {used:?}");
        }
    }
}

#[cfg(feature = "plants")]
#[test]
fn mutant_that_freezes_for_each_request_is_found() {
    let again = |seed| restart_member_under_load(seed, NetworkModel::calm(), Mutant::FrozenAgain).1.freezes > 1;
    assert!((0..4).any(again), "no request was repeated");
}

#[cfg(feature = "plants")]
#[test]
fn mutant_with_a_state_ahead_of_its_application_misses_deliveries() {
    let (mut bed, mut sent) = bed(&[3], limits(), NetworkModel::calm(), (0, Mutant::StateAheadOfApplication));
    bed.restart_member(2);
    bed.run(10 * RECONNECTED_NS);
    sent.extend(bed.multicast(20));
    bed.run(2 * RECONNECTED_NS);
    let outcome = Outcome::of(&bed, &sent, &[0, 1, 2], 2);
    assert!(outcome.torn > 0, "{outcome:?}");
}

#[test]
fn transfer_resumes_where_a_broken_connection_ended_it() {
    for seed in 0..4 {
        let (mut bed, mut sent) = bed(&[3], limits(), NetworkModel::adversarial(), (seed, Mutant::None));
        bed.restart_member(2);
        for part in 1..=3 {
            bed.run_into_transfer(2, LARGE as u64 * part / 4);
            bed.cut(0, 2, RECONNECTED_NS);
            sent.extend(bed.multicast(5));
        }
        bed.run(30 * RECONNECTED_NS);
        let why = format!("seed {seed}");
        bed.agree_on(&[0, 1, 2], &sent, &why);
        assert_eq!((bed.handed[0].freezes, bed.handed[2].restores.len()), (1, 1), "{why}: {:?}", bed.handed);
        assert!(bed.outcomes(0, TransferRole::Donor).contains(&TransferOutcome::Resumed), "{why}");
    }
}

/// The outcome of the transfer to a member that restarts.
#[derive(Debug)]
struct Outcome {
    /// `true` if all members have all messages, each once.
    complete: bool,
    /// Number of freezes at all donors.
    freezes: u32,
    restores: usize,
    torn: u32,
}

impl Outcome {
    fn of(bed: &Bed, sent: &[MessageId], members: &[usize], receiver: usize) -> Self {
        let all = |member: &usize| bed.delivered[*member].iter().map(|(id, _)| id).eq(sent);
        Outcome {
            complete: members.iter().all(all),
            freezes: bed.handed.iter().map(|handed| handed.freezes).sum(),
            restores: bed.handed[receiver].restores.len(),
            torn: bed.handed.iter().map(|handed| handed.torn).sum(),
        }
    }
}

/// Crashes the donor in the middle of a transfer, and makes another member take over.
fn loses_its_donor(seed: u64, mutant: Mutant) -> Outcome {
    let (mut bed, mut sent) = bed(&[5], limits(), NetworkModel::calm(), (seed, mutant));
    bed.restart_member(4);
    bed.run_into_transfer(4, LARGE as u64 / 2);
    bed.crash_member(0);
    bed.run(RECONNECTED_NS);
    bed.members[1].campaign().expect("a member");
    sent.extend(bed.multicast(10));
    bed.run(30 * RECONNECTED_NS);
    Outcome::of(&bed, &sent, &[1, 2, 3, 4], 4)
}

#[test]
fn another_donor_begins_anew_when_the_first_one_dies() {
    for seed in 0..4 {
        let outcome = loses_its_donor(seed, Mutant::None);
        let Outcome { complete, freezes, restores, torn } = outcome;
        assert!(complete && (freezes, restores, torn) == (2, 1, 0), "seed {seed}: {outcome:?}");
    }
}

#[cfg(feature = "plants")]
#[test]
fn mutant_that_mixes_two_donors_tears_states() {
    let torn = (0..4).filter(|seed| loses_its_donor(*seed, Mutant::PiecesMixed).torn > 0).count();
    assert!(torn > 1, "{torn} torn");
}

/// The receiver's application has the snapshot and more, and its state machine has nothing, when the donor dies.
/// Another donor, which has delivered less, as much, or more, completes the transfer.
fn loses_its_donor_behind_the_snapshot(seed: u64) -> Outcome {
    let (mut bed, mut sent) = calm(seed);
    bed.restart_member(4);
    bed.run_into_transfer(4, LARGE as u64 / 2);
    sent.extend(bed.multicast(2));
    for _ in 0..100_000 {
        if !bed.handed[4].restores.is_empty() {
            break;
        }
        bed.run(500);
    }
    bed.run(seed % 10 * 500);
    bed.crash_member(0);
    bed.run(RECONNECTED_NS);
    bed.members[1].campaign().expect("a member");
    sent.extend(bed.multicast(10));
    bed.run(40 * RECONNECTED_NS);
    Outcome::of(&bed, &sent, &[1, 2, 3, 4], 4)
}

#[test]
fn donor_that_dies_after_the_snapshot_causes_no_gap_and_no_duplicate() {
    for seed in 0..20 {
        let outcome = loses_its_donor_behind_the_snapshot(seed);
        assert!(outcome.complete && outcome.torn == 0, "seed {seed}: {outcome:?}");
    }
}

#[test]
fn a_receiver_that_dies_gets_another_freeze_in_its_next_life() {
    for seed in 0..4 {
        let (mut bed, mut sent) = calm(seed);
        bed.restart_member(4);
        bed.run_into_transfer(4, LARGE as u64 / 2);
        bed.restart_member(4);
        sent.extend(bed.multicast(10));
        bed.run(30 * RECONNECTED_NS);
        bed.agree_on(&[0, 1, 2, 3, 4], &sent, &format!("seed {seed}"));
        assert_eq!((bed.handed[0].freezes, bed.handed[4].restores.len()), (2, 1), "seed {seed}");
    }
}

#[test]
fn a_leader_change_ends_the_transfer_of_the_one_before() {
    for seed in 0..4 {
        let (mut bed, mut sent) = calm(seed);
        bed.restart_member(4);
        bed.run_into_transfer(4, LARGE as u64 / 2);
        bed.members[1].campaign().expect("a member");
        bed.world.wake_at(ProcessId(1), bed.world.now_ns());
        sent.extend(bed.multicast(10));
        bed.run(30 * RECONNECTED_NS);
        let why = format!("seed {seed}: {:?}", bed.handed);
        bed.agree_on(&[0, 1, 2, 3, 4], &sent, &why);
        let given_up = TransferOutcome::GivenUp(GivenUp::LeaderChanged);
        assert!(bed.outcomes(0, TransferRole::Donor).contains(&given_up), "{why}");
        assert!(bed.outcomes(4, TransferRole::Receiver).contains(&TransferOutcome::Complete), "{why}");
    }
}

/// No process waits for a stalled receiver: neither for its acknowledgements, nor for room in its rings.
#[test]
fn stalled_receiver_delays_nobody() {
    for seed in 0..4 {
        let (mut bed, mut sent) = calm(seed);
        bed.padding = 10 * LARGE;
        bed.restart_member(4);
        bed.run_out_of_flow_control(4);
        bed.stall(4, 40 * RECONNECTED_NS);
        sent.extend(bed.multicast(100));
        bed.run(RECONNECTED_NS);
        bed.agree_on(&[0, 1, 2, 3], &sent, &format!("seed {seed}, meanwhile"));
        bed.run(80 * RECONNECTED_NS);
        bed.agree_on(&[0, 1, 2, 3, 4], &sent, &format!("seed {seed}"));
    }
}

/// The receiver restores the state in one call, which takes long. Meanwhile the receiver is expelled like any stalled
/// member, or its connection breaks because it does not answer. Afterwards the transfer continues.
#[test]
fn a_receiver_whose_connection_ends_while_it_restores_needs_no_other_freeze() {
    for seed in [0, 2] {
        let (mut bed, mut sent) = calm(seed);
        bed.restart_member(4);
        let whole = LARGE as u64 + sent.len() as u64 * 22;
        while bed.members[4].transfer_received() < whole {
            bed.run(100);
        }
        assert_eq!(bed.handed[4].restores, [0; 0], "seed {seed}: the end is under way");
        // Simulates an application that takes this long.
        bed.stall(4, 20_000_000_000);
        bed.cut(0, 4, 10 * RECONNECTED_NS);
        sent.extend(bed.multicast(100));
        bed.run(15_000_000_000);
        bed.agree_on(&[0, 1, 2, 3], &sent, &format!("seed {seed}, meanwhile"));
        assert!(!bed.members[0].is_connected_to(ProcessId(4)), "seed {seed}");
        bed.run(6_000_000_000);
        sent.extend(bed.multicast(20));
        bed.run(30 * RECONNECTED_NS);
        let why = format!("seed {seed}: {:?}", bed.handed);
        bed.agree_on(&[0, 1, 2, 3, 4], &sent, &why);
        let outcomes = [TransferOutcome::Began, TransferOutcome::Resumed, TransferOutcome::Complete];
        assert_eq!(bed.outcomes(0, TransferRole::Donor), outcomes, "{why}");
        assert_eq!((bed.handed[0].freezes, bed.handed[4].restores.len()), (1, 1), "{why}");
    }
}

/// A follower that has its memory was partitioned from the client and the leader for a while.
#[test]
fn a_follower_that_fell_behind_gets_a_large_state() {
    for seed in 0..4 {
        let (mut bed, mut sent) = calm(seed);
        bed.cut(5, 3, 4 * RECONNECTED_NS);
        bed.cut(0, 3, 4 * RECONNECTED_NS);
        bed.run(RECONNECTED_NS);
        sent.extend(bed.multicast(60));
        bed.run(20 * RECONNECTED_NS);
        sent.extend(bed.multicast(20));
        bed.run(10 * RECONNECTED_NS);
        bed.agree_on(&[0, 1, 2, 3, 4], &sent, &format!("seed {seed}"));
        assert_eq!(bed.handed[3].restores.len(), 1, "seed {seed}: {:?}", bed.handed[3]);
    }
}

#[test]
fn too_large_a_state_is_refused_at_both_ends_with_both_numbers() {
    let small = Limits { snapshot_bytes: LARGE as u64 / 4, ..limits() };
    let (mut bed, mut sent) = bed(&[3], small, NetworkModel::calm(), (1, Mutant::None));
    bed.restart_member(2);
    bed.run(20 * RECONNECTED_NS);
    sent.extend(bed.multicast(20));
    bed.run(RECONNECTED_NS);
    bed.agree_on(&[0, 1], &sent, "the others go on");
    let named = |report: &TransferReport| {
        let TransferOutcome::GivenUp(GivenUp::TooLarge { bytes, limit }) = report.outcome else { return false };
        bytes > LARGE as u64 && limit == LARGE as u64 / 4
    };
    assert!(bed.report(0, named) && bed.report(2, named), "{:?}", bed.handed);
    assert_eq!(bed.handed[0].freezes, 1, "it is not tried again at once");
}

/// The receiver is stalled while more is delivered than the backlog keeps.
#[test]
fn a_full_backlog_ends_the_transfer_and_the_next_one_succeeds() {
    let short = Limits { backlog_bytes: 48 << 10, ..limits() };
    let (mut bed, mut sent) = bed(&[5], short, NetworkModel::calm(), (2, Mutant::None));
    bed.padding = 10 * LARGE;
    bed.restart_member(4);
    bed.run_out_of_flow_control(4);
    bed.stall(4, 30 * RECONNECTED_NS);
    sent.extend(bed.multicast(1500));
    bed.agree_on(&[0, 1, 2, 3], &sent, "meanwhile");
    let given_up = TransferOutcome::GivenUp(GivenUp::BacklogFull { limit: 48 << 10 });
    assert!(bed.outcomes(0, TransferRole::Donor).contains(&given_up), "{:?}", bed.handed[0]);
    bed.run(600 * RECONNECTED_NS);
    bed.agree_on(&[0, 1, 2, 3, 4], &sent, "in the end");
}

/// The receiver gets a fortieth of a processor, and clients send as much as they may. Without slowing them down, it
/// would fall behind for ever. Each client continues, however much the others use of the credits.
#[test]
fn a_slow_receiver_catches_up_with_clients_that_never_pause() {
    const CLIENTS: u16 = 16;
    let short = Limits { backlog_bytes: 1 << 20, slowed_percent: 1, ..limits() };
    let mut bed = Bed::new(&[3], CLIENTS, short, NetworkModel::calm(), 2);
    bed.padding = LARGE;
    bed.run(RECONNECTED_NS);
    let mut sent = bed.multicast(20);
    for member in &mut bed.members {
        member.set_tick(Duration::from_micros(100));
    }
    bed.restart_member(2);
    bed.run_into_transfer(2, 1);
    let mut rounds = 0;
    while bed.members[2].replica().is_joining() {
        rounds += 1;
        assert!(rounds < 3000, "it never catches up: {:?} of {} messages", bed.members[2].applied(), sent.len());
        bed.stall(2, 3_900_000);
        let before = sent.len();
        for _ in 0..20 {
            for client in 0..CLIENTS {
                while let Ok(id) = bed.submit(client, &[0], &[7; 64]) {
                    sent.push(id);
                }
            }
            bed.run(200_000);
        }
        let own = |client: u16| sent[before..].iter().filter(|id| id.client.0 == client).count();
        let counts: Vec<usize> = (0..CLIENTS).map(own).collect();
        // When the receiver has returned, all wait for it.
        assert!(counts.iter().all(|own| *own > 0) || sent.len() == before, "round {rounds}: {counts:?}");
    }
    assert!(bed.outcomes(0, TransferRole::Donor).contains(&TransferOutcome::Complete), "{:?}", bed.handed[0]);
    bed.run(20 * RECONNECTED_NS);
    let delivered = |member: usize| bed.delivered[member].iter().map(|(id, _)| *id).collect::<Vec<MessageId>>();
    let mut all = delivered(0);
    assert_eq!((&all, &all), (&delivered(1), &delivered(2)), "in the end");
    all.sort_unstable();
    sent.sort_unstable();
    assert_eq!(all, sent);
}

/// The other members are lost when the receiver's application has the state and its state machine has not. The group is
/// founded again, and that application is reset.
#[test]
fn refounded_group_forgets_the_state_of_an_unfinished_transfer() {
    for seed in 0..10 {
        let (mut bed, _) = bed(&[3], limits(), NetworkModel::calm(), (seed, Mutant::None));
        bed.restart_member(2);
        for _ in 0..1_000_000 {
            if !bed.handed[2].restores.is_empty() {
                break;
            }
            bed.run(500);
        }
        assert!(bed.members[2].replica().is_joining() && bed.members[2].applied() > 0, "seed {seed}");
        bed.restart_member(0);
        bed.restart_member(1);
        // The client is restarted, too, because it would remember the group.
        bed.restart_client(0);
        bed.run(40 * RECONNECTED_NS);
        assert!(bed.members.iter().all(|member| !member.replica().is_joining()), "seed {seed}");
        let sent = bed.multicast(5);
        bed.run(SETTLED_NS * 10);
        bed.agree_on(&[0, 1, 2], &sent, &format!("seed {seed}"));
        assert_eq!(bed.handed[2].restores.last(), Some(&0), "seed {seed}");
    }
}

/// A process without memory has received the application's state up to the latest deliveries when all members that had
/// made these deliveries are lost. The group is reset with the state of a member that was behind. Returns whether all
/// members deliver alike from then on. A lost message may be delivered once more, if a member holds it.
fn are_alike_when_reset_behind_an_application(seed: u64, mutant: Mutant) -> bool {
    let (mut bed, sent) = bed(&[5], limits(), NetworkModel::calm(), (seed, mutant));
    (0..3).chain([4, 5]).for_each(|other| bed.cut(3, other, 20 * RECONNECTED_NS));
    bed.multicast(20);
    bed.restart_member(4);
    for _ in 0..1_000_000 {
        if bed.members[4].applied() > 20 {
            break;
        }
        bed.run(500);
    }
    assert!(bed.members[4].replica().is_joining() && bed.members[4].applied() > 20, "seed {seed}");
    (0..3).for_each(|member| bed.restart_member(member));
    bed.restart_client(0);
    bed.run(40 * RECONNECTED_NS);
    assert_eq!(bed.members[3].replica().delivered(), 20, "seed {seed}");
    let ends = bed.members[3].replica().reset_ends();
    bed.members[3].reset(ends, false).expect("a member with memory can reset its group");
    bed.world.wake_at(ProcessId(3), bed.world.now_ns());
    bed.run(60 * RECONNECTED_NS);
    let after = bed.multicast(30);
    bed.run(10 * RECONNECTED_NS);
    let ids: Vec<MessageId> = bed.delivered[3].iter().map(|(id, _)| *id).collect();
    assert!(ids.starts_with(&sent) && ids.ends_with(&after), "seed {seed}: {ids:?}");
    bed.handed.iter().all(|handed| handed.torn == 0)
        && bed.delivered.iter().all(|delivered| *delivered == bed.delivered[3])
}

#[test]
fn reset_group_forgets_the_state_of_an_unfinished_transfer() {
    for seed in 0..4 {
        assert!(are_alike_when_reset_behind_an_application(seed, Mutant::None), "seed {seed}");
    }
}

#[cfg(feature = "plants")]
#[test]
fn mutant_with_an_application_ahead_in_another_history_misses_deliveries() {
    assert!(!are_alike_when_reset_behind_an_application(0, Mutant::AheadOfAnotherHistory));
}

/// A reset would continue with less than the application has.
#[test]
fn a_member_whose_application_is_ahead_resets_nothing() {
    let (mut bed, _) = calm(0);
    bed.cut(5, 3, 4 * RECONNECTED_NS);
    bed.cut(0, 3, 4 * RECONNECTED_NS);
    bed.run(RECONNECTED_NS);
    bed.multicast(60);
    let ahead = |bed: &Bed| bed.members[3].applied() > bed.members[3].replica().delivered();
    for _ in 0..1_000_000 {
        if ahead(&bed) {
            break;
        }
        bed.run(500);
    }
    assert!(ahead(&bed), "{:?}", bed.handed[3]);
    let ends = bed.members[3].replica().reset_ends();
    assert_eq!(bed.members[3].reset(ends, false), Err(Rejected::Ahead));
}

/// A transfer is in progress when its receiver resets the group. The transfer delivers nothing more: the new history
/// continues from the receiver's deliveries, and so does its application.
#[test]
fn a_member_that_resets_its_group_takes_no_state_meanwhile() {
    for seed in 0..4 {
        let (mut bed, sent) = calm(seed);
        bed.cut(5, 3, 4 * RECONNECTED_NS);
        bed.cut(0, 3, 4 * RECONNECTED_NS);
        bed.run(RECONNECTED_NS);
        bed.multicast(60);
        bed.run_into_transfer(3, LARGE as u64 / 2);
        let delivered = bed.members[3].replica().delivered();
        assert_eq!(bed.members[3].applied(), delivered, "seed {seed}");
        let ends = bed.members[3].replica().reset_ends();
        bed.members[3].reset(ends, false).expect("its application is not ahead");
        bed.world.wake_at(ProcessId(3), bed.world.now_ns());
        // The reset has no majority until the whole state would have arrived.
        [1, 2, 4].into_iter().for_each(|member| bed.stall(member, RECONNECTED_NS));
        bed.run(RECONNECTED_NS - SETTLED_NS);
        assert_eq!(bed.members[3].replica().incarnation(), Incarnation::FIRST, "seed {seed}");
        assert_eq!(bed.members[3].applied(), delivered, "seed {seed}");
        bed.run(10 * RECONNECTED_NS);
        let replica = bed.members[3].replica();
        assert_eq!((replica.incarnation().number, replica.delivered()), (2, delivered), "seed {seed}");
        assert_eq!(bed.members[3].applied(), delivered, "seed {seed}");
        let ids: Vec<MessageId> = bed.delivered[3].iter().map(|(id, _)| *id).collect();
        assert_eq!((&ids[..], bed.handed[3].torn), (&sent[..], 0), "seed {seed}");
    }
}
