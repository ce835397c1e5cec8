//! Peer messages through the control ring.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::NetworkModel;
use stentor_multicast::Step;

use crate::bed::{Bed, RECONNECTED_NS, SETTLED_NS, limits};

fn networks() -> [NetworkModel; 3] {
    [NetworkModel::calm(), NetworkModel::adversarial(), NetworkModel::unordered()]
}

#[test]
fn peer_messages_of_a_mebibyte_arrive_through_a_ring_of_four_kibibytes_while_messages_flow() {
    for (seed, network) in (0..).zip(networks()) {
        let mut bed = Bed::new(&[3], 1, limits(), network, seed);
        bed.run(RECONNECTED_NS);
        let words: Vec<u64> = (0..(1 << 17)).collect();
        let tail: Vec<u8> = (0..1001_u32).map(|n| n as u8).collect();
        for (from, to) in [(0, 1), (1, 0), (2, 0)] {
            assert!(bed.letter(from, to, &words, &tail));
        }
        let (mut sent, mut longest_ns) = (0_u64, 0);
        let mut left = vec![(1, 0), (0, 1), (0, 2)];
        for _ in 0..60_000 {
            let before = bed.delivered[2].len();
            if before as u64 == sent {
                bed.submit(0, &[0], &sent.to_le_bytes()).expect("the client has no other message in flight");
                (sent, longest_ns) = (sent + 1, 0);
            }
            bed.run(5_000);
            longest_ns += 5_000;
            assert!(longest_ns < 500_000, "seed {seed}: message {sent} is delayed by peer messages");
            while let Some((at, letter)) = (0..3).find_map(|at| Some((at, bed.members[at].next_foreign()?))) {
                let (from, came, came_tail) = letter;
                assert_eq!((&came, &came_tail), (&words, &tail), "seed {seed}");
                left.retain(|pair| *pair != (at, from.index()));
            }
            if left.is_empty() {
                break;
            }
        }
        assert_eq!((left, bed.rejected()), (vec![], 0), "seed {seed}");
        assert!(sent > 20, "seed {seed}: {sent} messages meanwhile");
        for member in &bed.members {
            let used = member.memory_use();
            assert!(used.most_queued <= used.queue_limit && used.regions == used.region_limit, "{used:?}");
        }
    }
}

#[test]
fn peer_messages_wake_with_immediates_and_never_find_a_peer_without_receives() {
    let mut bed = Bed::new(&[2], 1, limits(), NetworkModel::calm(), 5);
    bed.run(RECONNECTED_NS);
    for round in 0..200_u64 {
        assert!(bed.letter(0, 1, &[round; 40], b""));
        bed.run(20_000);
        assert_eq!(bed.members[1].next_foreign().map(|(_, words, _)| words), Some(vec![round; 40]));
    }
    let faults = bed.world.fault_counts();
    assert_eq!((faults.rnr_retries, faults.rnr_exceeded), (0, 0));
    assert!(bed.members[0].counts().writes(Step::PeerMessage) >= 200);
    let imms = bed.world.process_counts(ProcessId(0)).total().write_imm;
    assert!(imms > 12, "{imms}: receives are posted again, and the sender learns of it");
}

#[test]
fn peer_message_is_lost_with_its_connection_and_the_next_one_arrives() {
    for seed in 0..20 {
        let mut bed = Bed::new(&[2], 1, limits(), NetworkModel::adversarial(), seed);
        bed.run(RECONNECTED_NS);
        assert!(bed.letter(0, 1, &[1; 30_000], b"lost"));
        bed.run(SETTLED_NS / 4);
        bed.cut(0, 1, RECONNECTED_NS);
        bed.run(3 * RECONNECTED_NS);
        assert!(bed.members.iter().all(|member| member.is_connected()), "seed {seed}");
        while bed.members[1].next_foreign().is_some() {}
        assert!(bed.letter(0, 1, &[2; 30_000], b"arrives"));
        bed.run(RECONNECTED_NS);
        let letter = bed.members[1].next_foreign().expect("the peer message arrives");
        assert_eq!((&letter.1[..], &letter.2[..]), (&[2; 30_000][..], &b"arrives"[..]), "seed {seed}");
        assert_eq!(bed.members[1].next_foreign(), None);
    }
}

#[test]
fn undeliverable_or_too_long_or_too_many_peer_messages_are_refused() {
    let mut bed = Bed::new(&[2], 1, limits(), NetworkModel::calm(), 5);
    assert!(!bed.letter(0, 1, &[1], b""), "not connected yet");
    bed.run(RECONNECTED_NS);
    assert!(!bed.letter(0, 0, &[1], b"") && !bed.letter(0, 9, &[1], b""));
    let longest = bed.limits.letter_bytes(&bed.topology) as usize / 8;
    assert!(!bed.letter(0, 1, &vec![0; longest], b""));
    assert!((0..1000).filter(|_| bed.letter(0, 1, &[1], b"")).count() < 1000);
}
