//! Links between members, and restarts.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::NetworkModel;
use stentor_multicast::{Hindrance, Incarnation, Rejected};

use crate::bed::{Bed, RECONNECTED_NS, SETTLED_NS, limits};

/// Exchanges a peer message in each direction between two members. Each must arrive complete, and no other message may
/// arrive.
fn exchange(bed: &mut Bed, a: u16, b: u16, round: u64) {
    for (from, to) in [(a, b), (b, a)] {
        assert!(bed.letter(from, to, &vec![round; 700], &[round as u8; 9]), "round {round}: not connected");
    }
    bed.run(10 * SETTLED_NS);
    for (from, to) in [(a, b), (b, a)] {
        let letter = bed.members[usize::from(to)].next_foreign();
        let letter = letter.unwrap_or_else(|| panic!("round {round}: no letter from {from} to {to}"));
        assert_eq!(letter.0.0, from);
        assert_eq!((&letter.1[..], &letter.2[..]), (&vec![round; 700][..], &[round as u8; 9][..]), "round {round}");
        assert_eq!(bed.members[usize::from(to)].next_foreign(), None, "round {round}");
    }
}

#[test]
fn two_hundred_restarts_of_a_peer_and_every_life_reads_its_own_records_only() {
    for (seed, network) in (0..).zip([NetworkModel::adversarial(), NetworkModel::unordered()]) {
        let mut bed = Bed::new(&[3], 1, limits(), network, seed);
        bed.run(RECONNECTED_NS);
        for round in 1..=100 {
            // With more rounds, the ring of the living member advances further. Now and then a peer message is left
            // half-written.
            if round % 3 == 0 {
                bed.letter(2, 1, &vec![u64::MAX; 2000], b"");
                bed.letter(1, 2, &vec![u64::MAX; 2000], b"");
                bed.run(round * 300 % SETTLED_NS);
            }
            bed.restart_member(1 + round as usize % 2);
            bed.run(RECONNECTED_NS);
            for member in &mut bed.members {
                while member.next_foreign().is_some() {}
                assert!(member.is_connected(), "seed {seed} round {round}");
            }
            exchange(&mut bed, 0, 1, round);
            exchange(&mut bed, 1, 2, round);
        }
        assert_eq!(bed.rejected(), 0, "seed {seed}");
    }
}

#[test]
fn connections_cut_under_load_reconnect_and_records_stay_intact() {
    for seed in 0..12 {
        let network = if seed % 3 == 2 { NetworkModel::unordered() } else { NetworkModel::adversarial() };
        let mut bed = Bed::new(&[3, 1], 2, limits(), network, seed);
        bed.run(RECONNECTED_NS);
        let (mut sent, pairs) = (Vec::new(), [(1, 2), (0, 4), (1, 5), (2, 3), (0, 3)]);
        for round in 0..30_u64 {
            for n in 0..20_u64 {
                let to: &[u16] = if n % 3 == 0 { &[0, 1] } else { &[0] };
                let payload = [round as u8; 40];
                sent.extend(
                    bed.submit((n % 2) as u16, to, &payload[..n as usize])
                        .map(|id| (id, payload[..n as usize].to_vec())),
                );
                bed.run(2_000);
            }
            // Most partitions are too short to break a queue pair.
            let (a, b) = pairs[(round % 5) as usize];
            bed.cut(a, b, if round % 4 == 3 { 2_500_000 } else { 300_000 });
        }
        bed.run(4 * RECONNECTED_NS);
        for member in &bed.members {
            assert!(member.is_connected(), "seed {seed}");
        }
        for delivered in &bed.delivered {
            for (id, payload) in delivered {
                let written = sent.iter().find(|(sent, _)| sent == id).map(|(_, payload)| payload);
                assert_eq!(written, Some(payload), "seed {seed}: {id}");
            }
        }
        for (a, b) in [(0, 1), (0, 2), (1, 2), (0, 3)] {
            exchange(&mut bed, a, b, seed + 1);
        }
    }
}

#[test]
fn follower_gets_all_later_entries_after_its_stream_reconnects() {
    // Nothing was in flight when the connections broke, so the replica misses nothing.
    for seed in 0..10 {
        let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::adversarial(), seed);
        bed.run(RECONNECTED_NS);
        let mut expected = Vec::new();
        for round in 0..10_u8 {
            for _ in 0..5 {
                expected.push((
                    bed.submit(0, &[0], &[round; 8]).expect("the client is connected to all destinations"),
                    vec![round; 8],
                ));
                bed.run(SETTLED_NS);
            }
            let (a, b) = [(0, 1), (1, 2), (0, 2), (2, 3), (0, 3)][usize::from(round) % 5];
            break_connection(&mut bed, a, b);
        }
        for delivered in &bed.delivered {
            assert_eq!(*delivered, expected, "seed {seed}");
        }
        assert_eq!(bed.rejected(), 0, "seed {seed}");
    }
}

/// Breaks a connection: both processes write data that does not arrive in time. Peer messages can be lost without harm.
fn break_connection(bed: &mut Bed, a: u16, b: u16) {
    bed.cut(a, b, RECONNECTED_NS);
    if b < bed.members.len() as u16 {
        bed.letter(a, b, &[1], b"");
        bed.letter(b, a, &[1], b"");
    }
    bed.run(4 * RECONNECTED_NS);
    for member in &mut bed.members {
        while member.next_foreign().is_some() {}
    }
}

/// A group is founded when all its members have connected to each other. A client that arrives before waits, and its
/// messages are then synced in a ballot that all members promised.
#[test]
fn a_client_that_comes_before_its_group_is_founded_waits_for_that() {
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    (0..3).for_each(|member| bed.restart_member(member));
    bed.restart_client(0);
    bed.cut(0, 1, 20 * RECONNECTED_NS);
    bed.run(10 * RECONNECTED_NS);
    assert!(bed.submit(0, &[0], b"early").is_err());
    let missing = |bed: &Bed, member: usize| bed.members[member].replica().hindrance();
    assert_eq!(missing(&bed, 0), Some(Hindrance::Missing(ProcessId(1))));
    assert_eq!(missing(&bed, 1), Some(Hindrance::Missing(ProcessId(0))));
    bed.run(40 * RECONNECTED_NS);
    let id = bed.submit(0, &[0], b"then").expect("the group is founded");
    bed.run(10 * SETTLED_NS);
    assert_eq!(bed.clients[0].synced_up_to(), id.sequence);
    let replicas = [0, 1, 2].map(|member| bed.members[member].replica());
    assert!(replicas.iter().all(|replica| replica.counts_in() == Some(replica.ballot()) && !replica.is_joining()));
    assert!(bed.delivered.iter().all(|delivered| delivered.len() == 1));
}

/// The clock was set back, and only one member knew the earlier process of this id. The other members admitted the
/// second process, which has a smaller life. When they learn of the larger life, they cannot decide which process
/// started last. The second process stops, and a third process of this id is admitted.
#[test]
fn member_whose_group_remembers_a_later_process_of_its_id_stops() {
    let mut bed = Bed::new(&[5], 1, limits(), NetworkModel::calm(), 1);
    let (place, witness, others) = (1_u16, 2_u16, [0, 3, 4]);
    bed.run(RECONNECTED_NS);
    for other in others {
        bed.cut(witness, other, 16 * RECONNECTED_NS);
        bed.cut(place, other, 3 * RECONNECTED_NS);
    }
    bed.incarnation = 99;
    bed.restart_member(usize::from(place));
    bed.run(2 * RECONNECTED_NS);
    bed.cut(place, witness, 12 * RECONNECTED_NS);
    bed.incarnation = 4;
    bed.restart_member(usize::from(place));
    bed.run(8 * RECONNECTED_NS);
    let now = |bed: &Bed, member: u16| {
        let replica = bed.members[usize::from(member)].replica();
        (replica.is_joining(), replica.is_superseded())
    };
    assert_eq!(now(&bed, place), (false, false), "three others took it in");
    bed.run(12 * RECONNECTED_NS);
    assert_eq!(now(&bed, place), (false, false), "nobody has asked the witness");
    bed.members[usize::from(witness)].campaign().expect("the member can campaign");
    bed.world.wake_at(ProcessId(witness), bed.world.now_ns());
    bed.run(2 * RECONNECTED_NS);
    assert_eq!(now(&bed, place), (false, true));
    assert_eq!(bed.members[usize::from(place)].campaign(), Err(Rejected::Superseded));
    bed.submit(0, &[0], b"without it").expect("the client is connected to all destinations");
    bed.run(RECONNECTED_NS);
    let counts = |bed: &Bed| bed.delivered.iter().map(Vec::len).collect::<Vec<_>>();
    assert_eq!(counts(&bed), [1, 0, 1, 1, 1]);
    bed.restart_member(usize::from(place));
    bed.run(8 * RECONNECTED_NS);
    assert_eq!((now(&bed, place), counts(&bed)), ((false, false), vec![1; 5]));
    assert_eq!((0..5).filter(|member| now(&bed, *member).1).count(), 0);
}

/// As long as a member, a member of another group or a client remembers the group, it is not founded again, and that
/// process is named. When none does, it is founded.
#[test]
fn a_group_waits_while_anybody_remembers_it_and_begins_anew_when_nobody_does() {
    let mut bed = Bed::new(&[3, 1], 2, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    let before = bed.submit(0, &[0], b"before").expect("the client is connected to all destinations");
    bed.run(RECONNECTED_NS);
    assert!((0..3).all(|member| bed.delivered[member] == [(before, b"before".to_vec())]));
    let joining = |bed: &Bed| [0, 1, 2].map(|member: usize| bed.members[member].replica().is_joining());
    let named = |bed: &Bed| match bed.members[0].replica().hindrance() {
        Some(Hindrance::Remembered { by, incarnation: Incarnation::FIRST }) => Some(by.0),
        _ => None,
    };
    for member in [0, 1] {
        bed.restart_member(member);
    }
    bed.run(10 * RECONNECTED_NS);
    assert_eq!((joining(&bed), named(&bed)), ([true, true, false], Some(2)));
    bed.restart_member(2);
    bed.run(20 * RECONNECTED_NS);
    assert_eq!(joining(&bed), [true; 3], "another group remembers it, and so do clients");
    for remembers in [3, 4, 5] {
        assert!(named(&bed).is_some_and(|by| by >= remembers), "{:?}", named(&bed));
        match remembers {
            3 => bed.restart_member(3),
            client => bed.restart_client(client - 4),
        }
        bed.run(20 * RECONNECTED_NS);
    }
    assert_eq!((joining(&bed), named(&bed)), ([false; 3], None));
    let incarnation = bed.members[0].replica().incarnation();
    assert!(incarnation.number > 1, "above what was heard: {incarnation}");
    assert!(bed.delivered.iter().all(Vec::is_empty), "nobody knows what was delivered");
    bed.run(10 * RECONNECTED_NS);
    let after = bed.submit(0, &[0, 1], b"next").expect("the client is connected to all destinations");
    bed.run(RECONNECTED_NS);
    assert!(bed.delivered.iter().all(|delivered| delivered.last() == Some(&(after, b"next".to_vec()))));
}
