//! Known hard cases of the protocol, step by step.

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

/// Returns the clients of the messages that the first member delivered, in order.
fn first_delivers(cluster: &Cluster) -> Vec<u16> {
    cluster.members[0].log.iter().map(|(id, _)| id.client.0).collect()
}

/// Processes all messages in flight, and ticks all members, in 20 rounds. Afterwards all members that are up must have
/// all messages.
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

/// A group of five. The leader writes its timestamp (2A) to the first `reached` followers and crashes; those followers
/// acknowledge (2B) to all members.
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

/// The leader's 2A reaches one of four followers, then the leader fails. Every member has one 2B, on which none may
/// deliver. Whichever member leads next, whether it saw the 2A or not, all deliver the message once.
#[test]
fn the_leader_fails_after_the_2a_reached_one_of_four() {
    for candidate in 1..5 {
        for without_the_witness in [false, true] {
            let mut five = five_with_2a_at(1);
            assert_eq!(five.deliveries, 0, "a follower and the leader are two of five");
            five.campaign(candidate, None).expect("the member can campaign");
            if without_the_witness && candidate != 1 {
                // The three members that did not see the 2A promise first: a majority that knows nothing of it.
                let others = || (2..5).filter(|member| *member != candidate);
                others().for_each(|to| take(&mut five, Wire::Control { from: candidate, to }));
                others().for_each(|from| take(&mut five, Wire::Control { from, to: candidate }));
                let new = five.members[usize::from(candidate)].replica.as_ref().expect("the member is up");
                assert_eq!(new.ballot(), new.promised(), "it has taken over");
            }
            finish(&mut five).expect("sound and complete");
            assert!(five.members[1..].iter().all(|member| member.log == five.members[1].log && member.log.len() == 1));
        }
    }
}

/// The leader's 2A reaches three of four followers, then the leader fails. Those three have three 2Bs and deliver. The
/// fourth has three 2Bs but no 2A: it knows that the message is decided and must not deliver it, because it has not
/// seen the preceding stream entries. It delivers once it has a state, from its own candidacy or another leader, at the
/// same timestamp.
#[test]
fn the_leader_fails_after_the_2a_reached_three_of_four() {
    for candidate in 1..5 {
        let mut five = five_with_2a_at(3);
        let delivered: Vec<usize> = five.members[1..].iter().map(|member| member.log.len()).collect();
        assert_eq!(delivered, [1, 1, 1, 0], "the follower without the 2A waits");
        let before = five.members[1].log.clone();
        five.campaign(candidate, None).expect("the member can campaign");
        finish(&mut five).expect("sound and complete");
        assert!(five.members[1..].iter().all(|member| member.log == before), "candidate {candidate}");
    }
}

/// A leads ballot b1 and assigns time 1 to m1, but its entry reaches no other member. B leads b2 with C's promise and
/// assigns time 1 to m2, and m2 is delivered. A then leads b3 with B's promise, and must not revive m1 at time 1,
/// before m2.
fn five_steps(mutant: Mutant) -> Result<Cluster, String> {
    let (a, b, c) = (0, 1, 2);
    let control = |from, to| Wire::Control { from, to };
    let mut three = cluster(&[3], 2, mutant);
    // 1. A leads; its entry for m1 reaches no other member.
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
    // 4. A learns of B's ballot and takes over with B.
    take(&mut three, control(b, a));
    three.campaign(a, None)?;
    take(&mut three, control(a, b));
    take(&mut three, control(a, b));
    // 5. Everything that A revives is decided.
    finish(&mut three).map(|()| three)
}

#[test]
fn message_accepted_only_by_an_old_leader_is_not_ordered_before_a_delivered_one() {
    let three = five_steps(Mutant::None).expect("sound and complete");
    assert_eq!(first_delivers(&three), [1, 0], "m2, then m1");
}

/// Group 0 is A, B and C, group 1 is D, whose clock is ahead. A leads ballot b1 and has the vector (1, 2) of m0, which
/// no other member has seen. B leads b2 with C's promise, and assigns time 1 to m0 and time 2 to m1. So m1 precedes m0,
/// whose final time is 2 at group 1. C's and D's acknowledgements of m0 reach A, which has not received b2's state. A
/// must not deliver m0 because of these acknowledgements, because it knows nothing of m1.
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
    // m0 gets time 1 again and m1 gets 2, before B learns that m0 has 2 at group 1.
    [b, c].into_iter().for_each(|to| take(&mut four, Wire::Body { client: 1, to }));
    assert!(four.submit(2, &[0], None));
    [b, c].into_iter().for_each(|to| take(&mut four, Wire::Body { client: 2, to }));
    // D receives A's timestamp of m0. When D learns that B leads, D and B exchange their timestamps of m0.
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
fn acknowledgements_of_a_newer_ballot_deliver_nothing_before_its_state_arrives() {
    let four = acknowledged_in_a_newer_ballot(Mutant::None).expect("sound and complete");
    assert_eq!(first_delivers(&four), [2, 1], "m1, then m0");
}

#[cfg(feature = "plants")]
#[test]
fn counting_a_newer_ballot_before_its_state_arrives_breaks_order() {
    let flaw = acknowledged_in_a_newer_ballot(Mutant::NewerBallotCounts).err().expect("m0 without m1");
    assert!(flaw.contains("different orders"), "{flaw}");
}

#[cfg(feature = "plants")]
#[test]
fn the_highest_ballot_per_message_breaks_order_in_five_steps() {
    let flaw = five_steps(Mutant::HighestBallotPerMessage).err().expect("m1@1 is revived");
    assert!(flaw.starts_with("c0:1 at") || flaw.contains("different orders"), "m1 beside m2: {flaw}");
}

/// The majority of a group is dead. Messages to the group wait, whatever is tried and however long. Nothing is
/// delivered that a dead member may have delivered differently. Two of the dead members restart without memory: that is
/// not enough to continue, either.
#[test]
fn without_a_majority_everybody_waits_and_nothing_wrong_is_delivered() {
    for sizes in [&[3][..], &[5], &[3, 1]] {
        let mut cluster = cluster(sizes, 2, Mutant::None);
        let gone = (sizes[0] as u16 - 1) / 2 + 1;
        assert!(cluster.submit(0, &[0], None));
        finish(&mut cluster).expect("the members deliver all messages");
        let before: Vec<_> = cluster.members.iter().map(|member| member.log.clone()).collect();
        (0..gone).for_each(|member| cluster.crash(member));
        let to: Vec<u16> = (0..sizes.len() as u16).collect();
        assert!(cluster.submit(1, &to, None));
        let left: Vec<u16> = (gone..cluster.members.len() as u16).collect();
        for candidate in left.iter().copied().cycle().take(6) {
            cluster.campaign(candidate, None).expect("the member can campaign");
            assert!(finish(&mut cluster).is_err(), "{sizes:?}: no member can deliver");
        }
        for member in 0..gone.min(2) {
            cluster.restart(member).expect("the member can restart");
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
        safe(&cluster.logs(), &cluster.sent).expect("the deliveries are safe");
    }
}
