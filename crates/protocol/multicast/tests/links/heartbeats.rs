//! Heartbeats: the other members of a group read what a member publishes while it lives.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Fault, NetworkModel};
use stentor_multicast::HeartbeatCell;

use crate::bed::{Bed, RECONNECTED_NS, limits};

/// Several ticks.
const READ_NS: u64 = 10_000_000;

fn words(n: u64) -> [u64; HeartbeatCell::WORDS] {
    std::array::from_fn(|word| n * 8 + word as u64)
}

impl Bed {
    fn publish(&mut self, n: u64) {
        for (at, member) in self.members.iter_mut().enumerate() {
            member.publish(&words(n * 100 + at as u64));
        }
    }

    fn read(&self, reader: usize, of: u16) -> HeartbeatCell {
        self.members[reader].heartbeat(ProcessId(of)).expect("the process is another member of the group")
    }
}

#[test]
fn members_read_what_the_others_of_their_group_published_last() {
    let mut bed = Bed::new(&[3, 2], 1, limits(), NetworkModel::adversarial(), 3);
    bed.run(RECONNECTED_NS);
    assert_eq!(bed.read(0, 1), HeartbeatCell { words: None, connected: true }, "without publishing nothing is read");
    for n in 1..20 {
        bed.publish(n);
        bed.run(READ_NS);
        for (reader, of) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1), (3, 4), (4, 3)] {
            let expected = HeartbeatCell { words: Some(words(n * 100 + u64::from(of))), connected: true };
            assert_eq!(bed.read(reader, of), expected, "{reader} reads {of}");
        }
    }
    assert_eq!(bed.members[0].heartbeat(ProcessId(0)), None, "itself");
    assert_eq!(bed.members[0].heartbeat(ProcessId(3)), None, "a member of another group");
    let used = bed.members[0].memory_use();
    assert_eq!(used.regions, used.region_limit, "M8");
}

#[test]
fn words_of_a_dead_member_stop_changing_and_its_next_life_begins_with_zeros() {
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::adversarial(), 5);
    bed.run(RECONNECTED_NS);
    bed.publish(1);
    bed.run(READ_NS);
    bed.world.inject(bed.world.now_ns(), Fault::Crash(ProcessId(1)));
    bed.run(RECONNECTED_NS);
    bed.publish(2);
    bed.run(READ_NS);
    assert_eq!(bed.read(0, 1), HeartbeatCell { words: Some(words(101)), connected: false });
    assert_eq!(bed.read(0, 2).words, Some(words(202)), "the others go on");
    bed.restart_member(1);
    bed.run(4 * RECONNECTED_NS);
    assert_eq!(bed.read(0, 1), HeartbeatCell { words: Some([0; HeartbeatCell::WORDS]), connected: true });
    bed.publish(3);
    bed.run(READ_NS);
    assert_eq!(bed.read(0, 1).words, Some(words(301)));
    assert_eq!(bed.read(1, 0).words, Some(words(300)), "it reads the others, too");
}
