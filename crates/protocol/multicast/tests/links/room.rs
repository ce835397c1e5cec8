//! Members whose applications have no room for a while: they take part in everything else, and deliver later.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Fault, NetworkModel};
use stentor_multicast::MessageId;

use crate::bed::{Bed, RECONNECTED_NS, SETTLED_NS, limits};

fn bed(seed: u64) -> Bed {
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), seed);
    bed.run(RECONNECTED_NS);
    bed
}

impl Bed {
    fn have_delivered(&self, members: &[usize], sent: &[MessageId]) {
        for member in members {
            let delivered: Vec<MessageId> = self.delivered[*member].iter().map(|(id, _)| *id).collect();
            assert_eq!(delivered, sent, "member {member}");
            assert_eq!((self.handed[*member].torn, self.handed[*member].beyond), (0, 0), "member {member}");
        }
    }

    fn fill(&mut self) -> Vec<MessageId> {
        let mut sent = Vec::new();
        while let Ok(id) = self.submit(0, &[0], &[sent.len() as u8; 40]) {
            sent.push(id);
            self.run(SETTLED_NS);
        }
        sent
    }
}

#[test]
fn a_member_without_room_delivers_nothing_and_does_everything_else() {
    let mut bed = bed(1);
    bed.room[1] = 0;
    let mut sent: Vec<_> = (0..3).map(|n| bed.submit(0, &[0], &[n; 40]).expect("there is room")).collect();
    bed.run(RECONNECTED_NS);
    bed.have_delivered(&[0, 2], &sent);
    bed.have_delivered(&[1], &[]);
    assert!(bed.members[1].waits_for_room() && !bed.members[0].waits_for_room());
    // From here on nothing is decided without this member's acknowledgements.
    bed.world.inject(bed.world.now_ns(), Fault::Crash(ProcessId(2)));
    bed.run(RECONNECTED_NS);
    sent.push(bed.submit(0, &[0], b"last").expect("there is room"));
    bed.run(RECONNECTED_NS);
    bed.have_delivered(&[0], &sent);
    bed.room[1] = 2;
    bed.run(RECONNECTED_NS);
    bed.have_delivered(&[1], &sent[..2]);
    bed.room[1] = u64::MAX;
    bed.run(RECONNECTED_NS);
    bed.have_delivered(&[0, 1], &sent);
    assert!(!bed.members[1].waits_for_room());
}

#[test]
fn members_without_room_slow_their_clients_and_lose_nothing() {
    let mut bed = bed(2);
    bed.room = vec![0; 3];
    let mut sent = bed.fill();
    assert_eq!(sent.len(), limits().window as usize, "a waiting message keeps its slot");
    bed.run(1_000_000_000);
    assert_eq!(bed.clients[0].expulsions(), 0, "all are alike");
    // One member at a time has room for one delivery, so the members' numbers of deliveries differ most of the time.
    for _ in 0..8 {
        for member in 0..3 {
            bed.room[member] = 1;
            bed.run(RECONNECTED_NS);
        }
        sent.extend(bed.fill());
    }
    assert_eq!((sent.len(), bed.clients[0].expulsions()), (limits().window as usize + 8, 0));
    bed.room = vec![u64::MAX; 3];
    bed.run(RECONNECTED_NS);
    bed.have_delivered(&[0, 1, 2], &sent);
}

#[test]
fn a_leader_that_waits_for_room_is_followed_by_one_that_delivers_the_same() {
    let mut bed = bed(3);
    bed.room = vec![0, 0, u64::MAX];
    let sent: Vec<_> = (0..8).map(|n| bed.submit(0, &[0], &[n; 40]).expect("there is room")).collect();
    bed.run(RECONNECTED_NS);
    bed.have_delivered(&[2], &sent);
    bed.members[1].campaign().expect("the member can campaign");
    bed.world.wake_at(ProcessId(1), bed.world.now_ns());
    bed.run(RECONNECTED_NS);
    assert!(bed.members[1].replica().is_leader());
    bed.have_delivered(&[0, 1], &[]);
    bed.room = vec![u64::MAX; 3];
    bed.run(RECONNECTED_NS);
    bed.have_delivered(&[0, 1, 2], &sent);
}

#[test]
fn a_state_counts_when_the_application_has_room_again() {
    let mut bed = bed(4);
    let mut sent: Vec<_> = (0..5).map(|n| bed.submit(0, &[0], &[n; 40]).expect("there is room")).collect();
    bed.run(RECONNECTED_NS);
    bed.padding = 100 << 10;
    bed.room[2] = 0;
    bed.restart_member(2);
    bed.run(10 * RECONNECTED_NS);
    for n in 0..5 {
        sent.push(bed.submit(0, &[0], &[n; 50]).expect("the client does not wait for the joining member"));
        bed.run(RECONNECTED_NS);
    }
    assert_eq!(bed.handed[2].restores, [5], "it was handed the state");
    assert!(bed.members[2].replica().is_joining(), "the state counts only when it is taken over");
    assert_eq!(bed.handed[0].freezes + bed.handed[1].freezes, 1, "no donor sends another one meanwhile");
    bed.room[2] = 3;
    bed.run(10 * RECONNECTED_NS);
    assert_eq!(bed.handed[2].beyond, 0, "deliveries after a state wait, too");
    bed.room[2] = u64::MAX;
    bed.run(10 * RECONNECTED_NS);
    assert!(!bed.members[2].replica().is_joining());
    bed.have_delivered(&[0, 1, 2], &sent);
}
