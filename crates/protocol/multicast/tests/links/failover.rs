//! Leaders and followers that die under load, and members that restart: the nodes on the simulator.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Fault, NetworkModel};
use stentor_multicast::MessageId;

use crate::bed::{Bed, RECONNECTED_NS, SETTLED_NS, limits};

impl Bed {
    pub(crate) fn crash(&mut self, member: usize) {
        self.world.inject(self.world.now_ns(), Fault::Crash(ProcessId(member as u16)));
    }

    /// Multicasts `messages` messages, each as soon as there is room.
    fn load(&mut self, to: &[u16], messages: u32) -> Vec<MessageId> {
        let mut sent = Vec::new();
        for n in 0..messages {
            let mut tries = 0;
            let id = loop {
                match self.submit(0, to, &n.to_le_bytes()) {
                    Ok(id) => break id,
                    Err(error) => {
                        assert!(tries < 20_000, "message {n}: {error}, after {tries} tries: {}", self.describe());
                    }
                }
                tries += 1;
                self.run(20_000);
            };
            sent.push(id);
        }
        sent
    }

    fn describe(&self) -> String {
        let member = |member: &stentor_multicast::Member<_>| {
            let replica = member.replica();
            let (ballot, promised) = (replica.ballot(), replica.promised());
            let state = (replica.is_leader(), replica.is_candidate(), replica.is_joining(), replica.delivered());
            format!("ballot {ballot} of {promised} {state:?} {:?} connected {}", member.counts(), member.is_connected())
        };
        self.members.iter().map(member).collect::<Vec<_>>().join("\n")
    }

    pub(crate) fn agree(&self, members: &[usize], sent: &[MessageId], why: &str) {
        for member in members {
            let delivered: Vec<MessageId> = self.delivered[*member].iter().map(|(id, _)| *id).collect();
            assert_eq!(delivered, sent, "{why}: member {member}");
        }
    }
}

#[test]
fn follower_takes_over_and_the_old_leader_rejoins() {
    for (seed, network) in (0..6).zip([NetworkModel::adversarial(), NetworkModel::unordered()].into_iter().cycle()) {
        let mut bed = Bed::new(&[3], 1, limits(), network, seed);
        bed.run(RECONNECTED_NS);
        let mut sent = bed.load(&[0], 40);
        for round in 0..3 {
            let why = format!("seed {seed}, round {round}");
            let (old, new) = ([0, 1, 2][round % 3], [1, 2, 0][round % 3]);
            assert!(bed.members[old].replica().is_leader(), "{why}");
            bed.crash(old);
            bed.run(RECONNECTED_NS);
            bed.members[new].campaign().expect("the member can campaign");
            sent.extend(bed.load(&[0], 40));
            bed.run(3 * RECONNECTED_NS);
            assert!(bed.members[new].replica().is_leader(), "{why}");
            bed.agree(&[new, [2, 0, 1][round % 3]], &sent, &why);
            bed.restart_member(old);
            sent.extend(bed.load(&[0], 40));
            bed.run(8 * RECONNECTED_NS);
            sent.extend(bed.load(&[0], 10));
            bed.run(3 * RECONNECTED_NS);
            assert!(!bed.members[old].replica().is_joining(), "{why}: it is admitted");
            bed.agree(&[0, 1, 2], &sent, &why);
        }
    }
}

#[test]
fn messages_to_two_groups_survive_both_leaders() {
    for seed in 0..6 {
        let mut bed = Bed::new(&[3, 3], 1, limits(), NetworkModel::adversarial(), seed);
        bed.run(RECONNECTED_NS);
        let mut sent = bed.load(&[0, 1], 30);
        // Some of these messages are still in flight when the leaders crash.
        sent.extend(bed.load(&[0, 1], 8));
        bed.run(SETTLED_NS / 10);
        bed.crash(0);
        bed.crash(3);
        bed.run(RECONNECTED_NS);
        bed.members[1].campaign().expect("the member can campaign");
        bed.members[4].campaign().expect("the member can campaign");
        sent.extend(bed.load(&[0, 1], 30));
        bed.run(10 * RECONNECTED_NS);
        bed.agree(&[1, 2, 4, 5], &sent, &format!("seed {seed}"));
        bed.restart_member(0);
        bed.restart_member(3);
        sent.extend(bed.load(&[0, 1], 30));
        bed.run(10 * RECONNECTED_NS);
        bed.agree(&[0, 1, 2, 3, 4, 5], &sent, &format!("seed {seed}, with the restarted ones"));
    }
}

#[test]
fn a_leader_that_is_alive_hands_over() {
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::adversarial(), 4);
    bed.run(RECONNECTED_NS);
    let mut sent = bed.load(&[0], 20);
    bed.members[0].hand_over(ProcessId(2));
    bed.world.wake_at(ProcessId(0), bed.world.now_ns());
    sent.extend(bed.load(&[0], 20));
    bed.run(3 * RECONNECTED_NS);
    assert!(bed.members[2].replica().is_leader() && !bed.members[0].replica().is_leader());
    bed.agree(&[0, 1, 2], &sent, "after the change");
}

/// The leader sends its state again and again to a follower that fell behind, until the follower has the state. Some of
/// these peer messages find no room in the queue. The stream resumes at a position that is named in a peer message that
/// arrived.
#[test]
fn state_that_finds_no_room_in_the_queue_does_not_end_the_stream() {
    for seed in 0..8 {
        let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::adversarial(), seed);
        bed.run(RECONNECTED_NS);
        let mut sent = bed.load(&[0], 20);
        // The client (process 3) continues without that follower, and reuses slots.
        bed.cut(3, 2, 4 * RECONNECTED_NS);
        sent.extend(bed.load(&[0], 150));
        for _ in 0..300 {
            while bed.letter(0, 2, &[7; 100], b"") {}
            bed.run(20_000);
            while bed.members[2].next_foreign().is_some() {}
        }
        bed.run(8 * RECONNECTED_NS);
        sent.extend(bed.load(&[0], 30));
        bed.run(3 * RECONNECTED_NS);
        bed.agree(&[0, 1, 2], &sent, &format!("seed {seed}"));
    }
}
