//! After warm-up, neither members nor clients allocate: two groups and a client on shared memory, stepped in turn by
//! one thread, with a counting allocator.

use std::path::Path;
use std::time::{Duration, Instant};

use stentor::runtime::{Client, ClientId, GroupId, Housekeeper, Member, ShmFabric, SubmitError, stateless};
use stentor_fabric::ProcessId;
use stentor_testutil::TempDir;

use crate::common::cluster;

/// Number of messages of each run; a multiple of the number of destination sets.
const MESSAGES: u64 = 12_000;
/// Time limit; reached only if the test hangs.
const PATIENCE: Duration = Duration::from_secs(60);
const BOTH: [GroupId; 2] = [GroupId(0), GroupId(1)];
const SETS: [&[GroupId]; 3] = [&BOTH, &[GroupId(0)], &[GroupId(1)]];
/// Number of deliveries if one message is multicast to each set: 4, 3 and 1.
const DELIVERIES_OF_SETS: u64 = 8;

struct Cluster {
    members: Vec<Member<ShmFabric>>,
    client: Client<ShmFabric>,
    housekeeper: Housekeeper,
    delivered: u64,
    payload: Vec<u8>,
    submitted: u64,
}

impl Cluster {
    fn start(directory: &Path) -> Self {
        let plan = cluster("allocations", 2, "", "clients = 1\nbody_ring_kib = 64");
        let members =
            (0..4).map(|me| plan.member(ProcessId(me), directory.to_owned()).expect("the member starts")).collect();
        let client = plan.client(ClientId(0), directory.to_owned()).expect("the client starts");
        let housekeeper = Housekeeper::default();
        let mut cluster = Cluster { members, client, housekeeper, delivered: 0, payload: vec![7; 512], submitted: 0 };
        while !(cluster.client.is_connected(&BOTH) && cluster.members.iter().all(Member::is_connected)) {
            cluster.members.iter_mut().for_each(|member| {
                member.housekeep();
            });
            cluster.client.housekeep();
            cluster.round();
        }
        cluster
    }

    /// Steps all processes once, and runs the control plane when it is due.
    fn round(&mut self) {
        let delivered = &mut self.delivered;
        let mut worked = false;
        for member in &mut self.members {
            worked |= member.step(self.housekeeper.now(), &mut stateless(|_| *delivered += 1));
        }
        worked |= self.client.step();
        if self.housekeeper.is_due(worked) {
            self.members.iter_mut().for_each(|member| {
                member.housekeep();
            });
            self.client.housekeep();
        }
    }

    /// Multicasts messages of all lengths, and waits until all members have delivered them.
    fn run(&mut self, messages: u64, outstanding: u64) {
        let (last, since) = (self.submitted + messages, Instant::now());
        while self.client.delivered_up_to() < last || !self.client.is_delivered_everywhere() {
            while self.submitted < last && self.submitted - self.client.delivered_up_to() < outstanding {
                let bytes = (self.submitted * 37 % 512) as usize;
                // A member sends a credit for a single slot of a window only on request.
                let notify = outstanding == 1 || self.submitted + SETS.len() as u64 >= last;
                match self.client.submit(SETS[self.submitted as usize % SETS.len()], &self.payload[..bytes], notify) {
                    Ok(_) => self.submitted += 1,
                    Err(SubmitError::Busy { .. }) => break,
                    Err(error) => panic!("{error}"),
                }
            }
            self.round();
            assert!(since.elapsed() < PATIENCE, "stuck: {} sent", self.submitted);
        }
    }
}

#[test]
fn twelve_thousand_messages_allocate_nothing() {
    let directory = TempDir::new();
    let mut cluster = Cluster::start(&directory);
    // Warm-up: each ring wraps around and each slot is used, under load and one by one.
    cluster.run(3_000, 64);
    cluster.run(300, 1);
    for outstanding in [64, 1] {
        let before = cluster.delivered;
        let counted = allocation_counter::measure(|| cluster.run(MESSAGES, outstanding));
        assert_eq!(cluster.delivered - before, MESSAGES / SETS.len() as u64 * DELIVERIES_OF_SETS);
        assert_eq!(counted.count_total, 0, "{outstanding} outstanding: {counted:?}");
    }
}

#[test]
fn the_counter_counts() {
    let counted = allocation_counter::measure(|| {
        std::hint::black_box(vec![1_u8; 100]);
    });
    assert_eq!((counted.count_total, counted.bytes_total), (1, 100));
}
