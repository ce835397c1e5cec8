//! Records that clients send to members.

use stentor_fabric::{ProcessId, SplitMix64};
use stentor_fabric_sim::NetworkModel;
use stentor_multicast::{ClientId, Limits, Mutant, RecordSent, Step};

use crate::bed::{Bed, RECONNECTED_NS, SETTLED_NS, limits};

/// Maximum length of a query, in bytes.
const LONGEST: usize = 256;
const MEMBERS: u16 = 3;
/// Process id of the first client.
const CLIENT: u16 = MEMBERS;

/// Returns limits with which each ring has room for two of the longest records.
fn small() -> Limits {
    Limits { reply_bytes: 300, reply_ring_bytes: 0, ..limits() }
}

fn connected(clients: u16, network: NetworkModel, seed: u64) -> Bed {
    let mut bed = Bed::planted(&[usize::from(MEMBERS)], clients, small(), network, (seed, Mutant::None));
    bed.run(2 * RECONNECTED_NS);
    bed
}

fn calm(clients: u16) -> Bed {
    connected(clients, NetworkModel::calm(), 1)
}

impl Bed {
    /// Returns the queries that a member took from one client.
    fn asked_by(&self, member: u16, client: u16) -> Vec<Vec<u8>> {
        let of_client = |query: &&(ClientId, Vec<u8>)| query.0 == ClientId(client);
        self.queries[usize::from(member)].iter().filter(of_client).map(|query| query.1.clone()).collect()
    }

    fn rounds(&self, member: u16) -> u64 {
        self.clients[0].query_rounds(ProcessId(member))
    }
}

#[test]
fn queries_arrive_as_they_were_sent_in_the_order_of_their_client() {
    let mut bed = calm(2);
    let lengths = [0, 1, 7, 8, 9, 40, 41, 255, LONGEST];
    for (number, bytes) in (0_u8..).zip(lengths) {
        for (client, member) in [(0, 0), (0, 2), (1, 2)] {
            assert_eq!(bed.query(client, member, &vec![number; bytes]), RecordSent::Sent, "{bytes} bytes");
        }
        bed.run(SETTLED_NS / 10);
    }
    let expected: Vec<Vec<u8>> = (0_u8..).zip(lengths).map(|(number, bytes)| vec![number; bytes]).collect();
    assert_eq!((bed.asked_by(0, 0), bed.asked_by(2, 0)), (expected.clone(), expected.clone()));
    assert_eq!((bed.asked_by(2, 1), bed.queries[1].len(), bed.rejected()), (expected, 0, 0));
    assert_eq!(bed.clients[0].counts().writes(Step::Query), 2 * lengths.len() as u64);
}

#[test]
fn impossible_queries_are_refused_with_a_reason() {
    let mut bed = calm(1);
    assert_eq!(bed.query(0, 0, &[7; LONGEST + 1]), RecordSent::TooLong);
    assert_eq!(bed.query(0, CLIENT, b"a client"), RecordSent::Away);
    assert_eq!(bed.query(0, 99, b"nobody"), RecordSent::Away);
    assert!(bed.clients[0].is_connected_to(ProcessId(1)) && !bed.clients[0].is_connected_to(ProcessId(CLIENT)));
    bed.world.crash(ProcessId(1));
    let _ = bed.query(0, 1, b"breaks the connection");
    bed.run(RECONNECTED_NS);
    assert_eq!(bed.query(0, 1, b"away"), RecordSent::Away);
    assert_eq!(bed.query(0, 2, b"another"), RecordSent::Sent);
}

#[test]
fn a_full_ring_takes_nothing_more_until_the_member_reads() {
    let mut bed = calm(1);
    bed.takes_queries = false;
    let mut sent = 0;
    while bed.query(0, 0, &[sent; LONGEST]) == RecordSent::Sent {
        sent += 1;
        bed.run(SETTLED_NS);
    }
    assert!((2..4).contains(&sent), "{sent} of the longest");
    bed.run(4 * SETTLED_NS);
    assert_eq!(bed.query(0, 0, &[1; LONGEST]), RecordSent::Full);
    assert_eq!(bed.query(0, 1, b"another member's ring is its own"), RecordSent::Sent);
    bed.takes_queries = true;
    bed.world.wake_at(ProcessId(0), bed.world.now_ns());
    bed.run(SETTLED_NS);
    assert_eq!(bed.asked_by(0, 0), (0..sent).map(|number| vec![number; LONGEST]).collect::<Vec<_>>());
    assert_eq!(bed.query(0, 0, &[1; LONGEST]), RecordSent::Sent);
}

/// 5 000 records of all lengths pass through rings with room for two of the longest ones.
#[test]
fn nothing_is_lost_or_doubled_in_small_rings() {
    const ALL: usize = 5_000;
    let models = [NetworkModel::calm(), NetworkModel { retry_ns: 50_000_000, ..NetworkModel::unordered() }];
    for (seed, network) in (1..).zip(models) {
        let mut bed = connected(1, network, seed);
        let (mut random, mut sent, mut idle) = (SplitMix64(seed), Vec::<Vec<u8>>::new(), 0);
        while sent.len() < ALL {
            let record = vec![sent.len() as u8; random.word() as usize % (LONGEST + 1)];
            idle += 1;
            if bed.query(0, 0, &record) == RecordSent::Sent {
                sent.push(record);
                idle = 0;
                continue;
            }
            bed.run(20_000);
            assert!(idle < 1_000, "seed {seed}: stuck after {}", sent.len());
        }
        bed.run(8 * RECONNECTED_NS);
        assert!(bed.asked_by(0, 0) == sent, "seed {seed}");
    }
}

/// Only queries that were in flight when the connection broke may be missing, and none arrives twice. The client can
/// determine which queries may be missing.
#[test]
fn reconnection_restarts_the_ring() {
    let mut bed = calm(1);
    for round in 0..20_u8 {
        let before = bed.rounds(0);
        bed.cut(0, CLIENT, RECONNECTED_NS);
        bed.run(1);
        let _ = bed.query(0, 0, b"lost");
        bed.run(4 * RECONNECTED_NS);
        assert_eq!((bed.rounds(0), bed.rounds(1)), (before + 1, 1), "round {round}");
        for number in 0..4 {
            assert_eq!(bed.query(0, 0, &[round, number]), RecordSent::Sent, "round {round}");
            bed.run(SETTLED_NS);
        }
    }
    let expected = (0..20_u8).flat_map(|round| (0..4).map(move |number| vec![round, number]));
    assert_eq!(bed.asked_by(0, 0), expected.collect::<Vec<_>>());
}

#[test]
fn new_process_at_either_end_reads_only_queries_sent_to_it() {
    let mut bed = calm(1);
    for round in 0..10_u8 {
        bed.takes_queries = false;
        while bed.query(0, 1, &[round; 100]) == RecordSent::Sent {}
        bed.run(SETTLED_NS);
        if round % 2 == 0 {
            bed.restart_client(0);
        } else {
            bed.restart_member(1);
        }
        bed.run(6 * RECONNECTED_NS);
        bed.queries[1].clear();
        bed.takes_queries = true;
        bed.world.wake_at(ProcessId(1), bed.world.now_ns());
        bed.run(SETTLED_NS);
        assert_eq!(bed.queries[1].len(), 0, "round {round}");
        for number in 0..20 {
            assert_eq!(bed.query(0, 1, &[round, number]), RecordSent::Sent, "round {round}");
            bed.run(SETTLED_NS);
        }
        assert_eq!(bed.asked_by(1, 0), (0..20).map(|number| vec![round, number]).collect::<Vec<_>>(), "round {round}");
    }
}

/// The client sends another hello on the same connection, and its ring of messages restarts. Its queries continue.
#[test]
fn queries_continue_after_another_hello_on_the_connection() {
    for network in [NetworkModel::calm(), NetworkModel::unordered()] {
        let mut bed = connected(1, network, 4);
        for round in 0..20_u8 {
            for aside in [true, false] {
                assert_eq!(bed.query(0, 2, &[round; LONGEST]), RecordSent::Sent, "round {round}");
                bed.members[2].set_aside(aside);
                bed.world.wake_at(ProcessId(2), bed.world.now_ns());
                bed.run(4 * SETTLED_NS);
            }
        }
        assert_eq!(bed.asked_by(2, 0), (0..40).map(|n| vec![n / 2; LONGEST]).collect::<Vec<_>>());
        assert_eq!(bed.rounds(2), 1);
    }
}
