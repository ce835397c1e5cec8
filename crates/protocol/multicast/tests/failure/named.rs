//! The cases that the protocol's notes and design name, step by step.

use stentor_multicast::{Mutant, Variant};

use super::cluster::Cluster;
use super::judge::{complete, safe};
use super::net::Wire;

fn cluster(sizes: &[usize], clients: u16, mutant: Mutant) -> Cluster {
    Cluster::new(sizes, clients, (Variant::V2, 2, mutant))
}

fn take(cluster: &mut Cluster, wire: Wire) {
    assert!(cluster.take(wire, None).expect("nothing is refused"), "{wire:?} has something to take");
}

/// Whose messages the first member delivered, in order.
fn first_delivers(cluster: &Cluster) -> Vec<u16> {
    cluster.members[0].log.iter().map(|(id, _)| id.client.0).collect()
}

/// Everything on its way arrives, and again after ticks, until everybody who is up has everything.
fn finish(cluster: &mut Cluster) -> Result<(), String> {
    for _ in 0..20 {
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for wire in cluster.net.filled() {
                while cluster.is_up(wire.receiver()) && cluster.take(wire, None)? {
                    moved = true;
                }
            }
            safe(&cluster.logs(), &cluster.sent)?;
        }
        for process in 0..cluster.members.len() as u16 {
            cluster.tick(process)?;
        }
    }
    let members = cluster.members.iter().zip(0..).filter(|(member, _)| member.replica.is_some());
    let up: Vec<_> = members.map(|(member, process)| (process, member.group, &member.log)).collect();
    complete(&cluster.topology, &up, &cluster.logs(), &cluster.sent)
}

/// One group of five. The leader writes its timestamp (2A) to as many followers as given, the first ones, and crashes;
/// those acknowledge (2B) to everybody.
fn five_with_2a_at(reached: u16) -> Cluster {
    let mut five = cluster(&[5], 1, Mutant::None);
    assert!(five.submit(0, &[0], None));
    (0..5).for_each(|to| take(&mut five, Wire::Body { client: 0, to }));
    five.crash(0);
    for to in 1..5 {
        let stream = Wire::Stream { from: 0, to };
        if to <= reached {
            take(&mut five, stream);
        } else {
            five.net.queues.remove(&stream).expect("the 2A was on its way");
        }
    }
    for from in 1..=reached {
        for to in (1..5).filter(|to| *to != from) {
            take(&mut five, Wire::Control { from, to });
        }
    }
    five
}

/// "Leader process writes 2A on 1 of 4 followers then fails": everybody has one 2B, nobody may deliver on it. Whoever
/// leads next, whether it saw the 2A or not, everybody delivers once.
#[test]
fn the_leader_fails_after_the_2a_reached_one_of_four() {
    for candidate in 1..5 {
        for without_the_witness in [false, true] {
            let mut five = five_with_2a_at(1);
            assert_eq!(five.deliveries, 0, "a follower and the leader are two of five");
            five.campaign(candidate, None).expect("it has memory");
            if without_the_witness && candidate != 1 {
                // The promises of the other three come first: a majority that knows nothing of the 2A.
                let others = || (2..5).filter(|member| *member != candidate);
                others().for_each(|to| take(&mut five, Wire::Control { from: candidate, to }));
                others().for_each(|from| take(&mut five, Wire::Control { from, to: candidate }));
                let new = five.members[usize::from(candidate)].replica.as_ref().expect("up");
                assert_eq!(new.ballot(), new.promised(), "it has taken over");
            }
            finish(&mut five).expect("sound and complete");
            assert!(five.members[1..].iter().all(|member| member.log == five.members[1].log && member.log.len() == 1));
        }
    }
}

/// "Leader process writes 2A on 3 of 4 followers then fails": those have three 2Bs and deliver. "If leader does not
/// receive 2A, but receive 3 2B => TODO": it knows that the message is decided and must not deliver, because it has not
/// seen what the stream has before; it delivers once it has a state, its own candidacy's or another leader's, at the
/// same timestamp.
#[test]
fn the_leader_fails_after_the_2a_reached_three_of_four() {
    for candidate in 1..5 {
        let mut five = five_with_2a_at(3);
        let delivered: Vec<usize> = five.members[1..].iter().map(|member| member.log.len()).collect();
        assert_eq!(delivered, [1, 1, 1, 0], "who has not seen the 2A waits");
        let before = five.members[1].log.clone();
        five.campaign(candidate, None).expect("it has memory");
        finish(&mut five).expect("sound and complete");
        assert!(five.members[1..].iter().all(|member| member.log == before), "candidate {candidate}");
    }
}

/// A(b1) assigns m1@1 to itself alone; B(b2, with C) assigns m2@1 and m2 is delivered; A(b3, with B) must not revive
/// m1@1 before it.
fn five_steps(mutant: Mutant) -> Result<Cluster, String> {
    let (a, b, c) = (0, 1, 2);
    let control = |from, to| Wire::Control { from, to };
    let mut three = cluster(&[3], 2, mutant);
    // 1. A leads; its entry for m1 reaches nobody.
    assert!(three.submit(0, &[0], None));
    take(&mut three, Wire::Body { client: 0, to: a });
    for to in [b, c] {
        three.net.queues.remove(&Wire::Stream { from: a, to }).expect("the entry was on its way");
    }
    // 2. B takes over with C.
    three.campaign(b, None)?;
    for wire in [control(b, c), control(c, b), control(b, c), control(c, b)] {
        take(&mut three, wire);
    }
    assert!(three.members[1].replica.as_ref().is_some_and(stentor_multicast::Replica::is_leader));
    // 3. B assigns m2, C acknowledges, both deliver.
    assert!(three.submit(1, &[0], None));
    (0..3).for_each(|to| take(&mut three, Wire::Body { client: 1, to }));
    while !three.net.queues[&Wire::Stream { from: b, to: c }].is_empty() {
        take(&mut three, Wire::Stream { from: b, to: c });
    }
    take(&mut three, control(c, b));
    assert_eq!((three.members[1].log.len(), three.members[2].log.len()), (1, 1), "m2 is delivered");
    // 4. A hears of B's ballot and takes over with B.
    take(&mut three, control(b, a));
    three.campaign(a, None)?;
    take(&mut three, control(a, b));
    take(&mut three, control(a, b));
    // 5. Whatever A revives is decided, by anybody.
    finish(&mut three).map(|()| three)
}

#[test]
fn what_only_an_old_leader_accepted_does_not_come_back_before_what_was_delivered() {
    let three = five_steps(Mutant::None).expect("sound and complete");
    assert_eq!(first_delivers(&three), [1, 0], "m2, then m1");
}

/// Group 0 is A, B and C, group 1 is D, whose clock is ahead. A(b1) has m0 at (1, 2), nobody else has seen that; B(b2,
/// with C) gives m0 the same time, and the next one to m1, which comes before m0's final time. C's and D's
/// acknowledgements of m0 reach A, which has not got b2's state: it must not deliver m0 on them, for it knows nothing
/// of m1.
fn acknowledged_in_a_newer_ballot(mutant: Mutant) -> Result<Cluster, String> {
    let (a, b, c, d) = (0, 1, 2, 3);
    let control = |from, to| Wire::Control { from, to };
    let mut four = cluster(&[3, 1], 3, mutant);
    assert!(four.submit(0, &[1], None));
    take(&mut four, Wire::Body { client: 0, to: d });
    assert!(four.submit(1, &[0, 1], None));
    [d, a].into_iter().for_each(|to| take(&mut four, Wire::Body { client: 1, to }));
    take(&mut four, control(d, a));
    for to in [b, c] {
        four.net.queues.remove(&Wire::Stream { from: a, to }).expect("assignment and vector were on their way");
    }
    four.campaign(b, None)?;
    for wire in [control(b, c), control(c, b), control(b, c), control(c, b)] {
        take(&mut four, wire);
    }
    // m0 gets time 1 again, m1 gets 2, before B hears that m0 has 2 at group 1.
    [b, c].into_iter().for_each(|to| take(&mut four, Wire::Body { client: 1, to }));
    assert!(four.submit(2, &[0], None));
    [b, c].into_iter().for_each(|to| take(&mut four, Wire::Body { client: 2, to }));
    // D has A's timestamp, then hears of B, repeats its own to it and gets B's.
    while four.take(control(a, d), None)? {}
    while four.take(control(b, d), None)? {}
    while four.take(control(d, b), None)? {}
    while four.take(Wire::Stream { from: b, to: c }, None)? {}
    while four.take(control(c, a), None)? {}
    while four.take(control(d, a), None)? {}
    safe(&four.logs(), &four.sent)?;
    finish(&mut four).map(|()| four)
}

#[test]
fn acknowledgements_of_a_newer_ballot_deliver_nothing_before_its_state_is_there() {
    let four = acknowledged_in_a_newer_ballot(Mutant::None).expect("sound and complete");
    assert_eq!(first_delivers(&four), [2, 1], "m1, then m0");
}

#[cfg(feature = "plants")]
#[test]
fn counting_a_newer_ballot_before_its_state_is_there_breaks_order() {
    let flaw = acknowledged_in_a_newer_ballot(Mutant::NewerBallotCounts).err().expect("m0 without m1");
    assert!(flaw.contains("different orders"), "{flaw}");
}

#[cfg(feature = "plants")]
#[test]
fn the_highest_ballot_per_message_breaks_order_in_five_steps() {
    let flaw = five_steps(Mutant::HighestBallotPerMessage).err().expect("m1@1 comes back");
    assert!(flaw.starts_with("c0:1 at") || flaw.contains("different orders"), "m1 beside m2: {flaw}");
}

/// f+1 of a group are gone: what needs them waits, whatever is tried and however long; nothing is delivered that one of
/// those who are gone may have delivered otherwise. Two of them come back without memory: that is not enough to go on
/// from, either.
#[test]
fn without_a_majority_everybody_waits_and_nothing_wrong_is_delivered() {
    for sizes in [&[3][..], &[5], &[3, 1]] {
        let mut cluster = cluster(sizes, 2, Mutant::None);
        let gone = (sizes[0] as u16 - 1) / 2 + 1;
        assert!(cluster.submit(0, &[0], None));
        finish(&mut cluster).expect("all are there");
        let before: Vec<_> = cluster.members.iter().map(|member| member.log.clone()).collect();
        (0..gone).for_each(|member| cluster.crash(member));
        let to: Vec<u16> = (0..sizes.len() as u16).collect();
        assert!(cluster.submit(1, &to, None));
        let left: Vec<u16> = (gone..cluster.members.len() as u16).collect();
        for candidate in left.iter().copied().cycle().take(6) {
            cluster.campaign(candidate, None).expect("it may try");
            assert!(finish(&mut cluster).is_err(), "{sizes:?}: nobody can deliver");
        }
        for member in 0..gone.min(2) {
            cluster.restart(member).expect("it may come back");
            assert!(finish(&mut cluster).is_err(), "{sizes:?}: those without memory are no majority");
        }
        for process in left {
            let member = &cluster.members[usize::from(process)];
            assert_eq!(member.log, before[usize::from(process)], "{sizes:?}: {process} has delivered nothing");
            assert!(
                !member.replica.as_ref().is_some_and(|r| r.group().0 == 0 && r.is_leader()),
                "{process} leads nobody"
            );
        }
        safe(&cluster.logs(), &cluster.sent).expect("sound");
    }
}
