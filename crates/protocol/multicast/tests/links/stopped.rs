//! Members that are stalled while all others continue: they are expelled from flow control, and return by state.

use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Fault, NetworkModel};
use stentor_multicast::{GroupId, Hindrance, Incarnation, Limits, MessageId, Mutant, ProcessRole, Step};

use crate::bed::{Bed, RECONNECTED_NS};

/// Time for which other processes wait for a member that frees nothing, if their rings have room.
const LAG: Duration = Duration::from_millis(100);
/// Time for which processes are stalled: several windows and rings of messages.
const STOPPED_NS: u64 = 400_000_000;
/// Time between two messages of the client.
const PACE_NS: u64 = 1_000_000;
/// Minimum number of messages that others deliver while a process is stalled.
const AT_LEAST: usize = 300;

fn limits() -> Limits {
    Limits { message_bytes: 64, window: 16, body_ring_bytes: 4096, control_ring_bytes: 4096, ..Limits::default() }
}

/// A cluster, a client of it, and the client's messages.
struct Run {
    bed: Bed,
    to: Vec<u16>,
    sent: Vec<(MessageId, Vec<u8>)>,
}

impl Run {
    fn new(groups: &[usize], mutant: Mutant) -> Run {
        Run::with(groups, limits(), mutant)
    }

    fn with(groups: &[usize], limits: Limits, mutant: Mutant) -> Run {
        let mut bed = Bed::planted(groups, 1, limits, NetworkModel::calm(), (7, mutant));
        bed.members.iter_mut().for_each(|member| member.set_expel_after(LAG));
        bed.clients[0].set_expel_after(LAG);
        bed.run(4 * RECONNECTED_NS);
        Run { bed, to: (0..groups.len() as u16).collect(), sent: Vec::new() }
    }

    fn stop(&mut self, processes: &[u16]) {
        for process in processes {
            let stall = Fault::Stall { process: ProcessId(*process), for_ns: STOPPED_NS };
            self.bed.world.inject(self.bed.world.now_ns(), stall);
        }
    }

    /// The client multicasts for a while, whenever it can.
    fn load(&mut self, for_ns: u64) {
        for _ in 0..for_ns / PACE_NS {
            let payload = format!("message {}", self.sent.len());
            if let Ok(id) = self.bed.submit(0, &self.to, payload.as_bytes()) {
                self.sent.push((id, payload.into_bytes()));
            }
            let client = self.bed.topology.client_process(stentor_multicast::ClientId(0));
            self.bed.world.wake_at(client, self.bed.world.now_ns());
            self.bed.run(PACE_NS);
        }
    }

    /// Returns the number of messages that a member delivers under load while others are stalled.
    fn delivered_meanwhile(&mut self, member: usize) -> usize {
        let before = self.bed.delivered[member].len();
        self.load(STOPPED_NS - 20 * PACE_NS);
        self.bed.delivered[member].len() - before
    }

    fn expelled_by(&self, member: usize) -> Vec<u16> {
        self.bed.members[member].expelled().map(|process| process.0).collect()
    }

    /// Requires that all members return, and have delivered all messages in the same order.
    fn ends_complete(mut self) {
        self.load(100_000_000);
        self.bed.run(100 * RECONNECTED_NS);
        self.load(100_000_000);
        self.bed.run(20 * RECONNECTED_NS);
        for (member, delivered) in self.bed.delivered.iter().enumerate() {
            assert!(*delivered == self.sent, "member {member}: {} of {}", delivered.len(), self.sent.len());
            assert_eq!(self.bed.members[member].expelled().count(), 0, "all are back");
        }
        assert_eq!(self.bed.clients[0].expelled().count(), 0);
        assert_eq!(self.bed.clients[0].outstanding(), 0);
    }
}

#[test]
fn stalled_follower_delays_nobody_and_returns_by_state() {
    let mut run = Run::new(&[3, 3], Mutant::None);
    run.load(50_000_000);
    run.stop(&[5]);
    assert!(run.delivered_meanwhile(0) > AT_LEAST);
    assert_eq!((run.expelled_by(3), run.expelled_by(1)), (vec![5], vec![5]), "by its leader, and by the other group");
    assert_eq!(run.bed.clients[0].expelled().collect::<Vec<_>>(), [ProcessId(5)]);
    run.ends_complete();
}

/// The client needs no answer of the stalled members to begin, and has no connection with them that could block it.
#[test]
fn client_begins_beside_stalled_members_without_delay() {
    let mut run = Run::new(&[3, 3], Mutant::None);
    run.load(50_000_000);
    run.bed.run(10 * PACE_NS);
    run.stop(&[2, 5]);
    run.bed.run(1);
    run.bed.restart_client(0);
    run.bed.clients[0].set_expel_after(LAG);
    run.bed.run(2 * RECONNECTED_NS);
    let all = [GroupId(0), GroupId(1)];
    assert!(run.bed.clients[0].is_connected(&all) && !run.bed.clients[0].reaches_all(&all));
    let first = run.sent.len();
    assert!(run.delivered_meanwhile(0) > AT_LEAST);
    assert!(run.sent[first].0 > run.sent[first - 1].0, "its ids are its own");
    assert_eq!(run.bed.clients[0].expelled().count(), 0, "it has never met them");
    run.ends_complete();
}

#[cfg(feature = "plants")]
#[test]
fn stalled_follower_stops_every_group_without_expulsion() {
    let mut run = Run::new(&[3, 3], Mutant::NobodyExpelled);
    run.load(50_000_000);
    run.stop(&[5]);
    let delivered = run.delivered_meanwhile(0);
    assert!(delivered < 40, "{delivered} delivered, a window and what was under way");
}

/// Returns how many of 100 messages a restored follower delivers, and the number of peer messages that its leader
/// writes meanwhile.
fn delivered_after(mutant: Mutant) -> (usize, u64) {
    let mut run = Run::new(&[3, 3], mutant);
    run.load(50_000_000);
    run.stop(&[5]);
    assert!(run.delivered_meanwhile(0) > AT_LEAST);
    run.load(100_000_000);
    run.bed.run(100 * RECONNECTED_NS);
    let seen = |run: &Run| (run.bed.delivered[5].len(), run.bed.members[3].counts().writes(Step::PeerMessage));
    let before = seen(&run);
    run.load(100_000_000);
    let after = seen(&run);
    (after.0 - before.0, after.1 - before.1)
}

#[test]
fn restored_member_gets_messages_through_its_own_ring_again() {
    let (delivered, forwarded) = delivered_after(Mutant::None);
    assert!(delivered >= 99 && forwarded == 0, "{delivered} delivered, {forwarded} peer messages");
}

#[cfg(feature = "plants")]
#[test]
fn mutant_that_overwrites_unfreed_cells_makes_the_member_stop_reading() {
    let (delivered, forwarded) = delivered_after(Mutant::ExpelledInPlace);
    assert!(delivered < 50 || forwarded > 50, "{delivered} delivered, {forwarded} peer messages");
}

#[test]
fn stalled_minorities_delay_no_group() {
    let mut run = Run::new(&[3, 5], Mutant::None);
    run.load(50_000_000);
    run.stop(&[2, 6, 7]);
    assert!(run.delivered_meanwhile(0) > AT_LEAST);
    let mut expelled = run.expelled_by(4);
    expelled.sort_unstable();
    assert_eq!(expelled, [2, 6, 7]);
    run.ends_complete();
}

/// A write needs a majority, so continuing without one would gain nothing.
#[test]
fn stalled_majority_is_waited_for() {
    let mut run = Run::new(&[3, 3], Mutant::None);
    run.load(50_000_000);
    run.stop(&[4, 5]);
    let delivered = run.delivered_meanwhile(0);
    assert!(delivered < 40, "{delivered}");
    let counted = |member: u16| match run.bed.topology.role(ProcessId(member)) {
        Some(ProcessRole::Member { group, .. }) => group == GroupId(1),
        _ => false,
    };
    assert!(run.expelled_by(3).into_iter().filter(|member| counted(*member)).count() < 2);
    run.ends_complete();
}

#[test]
fn stalled_leader_is_replaced_and_returns() {
    let mut run = Run::new(&[3, 3], Mutant::None);
    run.load(50_000_000);
    run.stop(&[3]);
    run.load(10_000_000);
    run.bed.members[4].campaign().expect("the member can campaign");
    assert!(run.delivered_meanwhile(0) > AT_LEAST);
    assert!(run.bed.members[4].replica().is_leader());
    run.ends_complete();
}

/// No process waits for a client, or expels anybody because a client is stalled.
#[test]
fn stalled_client_delays_nobody() {
    let mut run = Run::new(&[3, 3], Mutant::None);
    run.load(50_000_000);
    let client = run.bed.topology.client_process(stentor_multicast::ClientId(0));
    run.stop(&[client.0]);
    run.bed.run(STOPPED_NS + PACE_NS);
    assert!((0..6).all(|member| run.expelled_by(member).is_empty()));
    run.ends_complete();
}

/// Members to which nothing is written have nothing to free, so they are not expelled.
#[test]
fn nobody_is_expelled_where_nothing_is_written() {
    let mut run = Run::new(&[3, 3], Mutant::None);
    run.load(20_000_000);
    run.stop(&[5]);
    run.bed.run(STOPPED_NS - PACE_NS);
    assert!((0..5).all(|member| run.expelled_by(member).is_empty()));
    run.ends_complete();
}

/// All processes but one have lost their memory, and that one is stalled until it is expelled. The stalled process
/// still remembers the groups, so no group is founded. When all have been restarted, both groups are founded.
#[test]
fn expelled_process_still_remembers_its_group_and_others() {
    let limits = Limits { control_ring_bytes: 16_384, ..limits() };
    let mut run = Run::with(&[3, 1], limits, Mutant::None);
    run.load(50_000_000);
    for member in [0, 1, 3] {
        run.bed.restart_member(member);
        run.bed.members[member].set_expel_after(LAG);
    }
    run.bed.restart_client(0);
    run.bed.run(20 * RECONNECTED_NS);
    run.stop(&[2]);
    for _ in 0..STOPPED_NS / PACE_NS - 20 {
        for member in [0, 1, 3] {
            run.bed.letter(member, 2, &[7; 6], &[]);
        }
        run.bed.run(PACE_NS);
    }
    for member in [0, 1, 3] {
        let hindrance = run.bed.members[member].replica().hindrance();
        let remembered = Hindrance::Remembered { by: ProcessId(2), incarnation: Incarnation::FIRST };
        assert_eq!((run.expelled_by(member), hindrance), (vec![2], Some(remembered)), "member {member}");
    }
    run.bed.run(100 * RECONNECTED_NS);
    assert!([0, 1, 3].into_iter().all(|member| run.bed.members[member].replica().is_joining()), "it is back");
    // The other members learnt of the group from this process. They would remember the group, so they are restarted,
    // too.
    (0..4).for_each(|member| run.bed.restart_member(member));
    run.bed.restart_client(0);
    run.bed.run(20 * RECONNECTED_NS);
    assert!(run.bed.members.iter().all(|member| !member.replica().is_joining()), "all have forgotten");
}
