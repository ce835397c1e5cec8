//! A process promises a ballot, loses its memory, and is admitted by a ballot that is not larger: by the same one,
//! whose candidate had asked it, or by a smaller one, whose candidate was slow. Further cases of lost memory are here,
//! too.

use stentor_fabric::ProcessId;
use stentor_multicast::{Ballot, ClientId, Mutant, Replica, Variant};

use super::cluster::Cluster;
use super::judge::safe;
use super::net::Wire;

fn take(cluster: &mut Cluster, wire: Wire) {
    assert!(cluster.take(wire, None).expect("nothing is refused"), "{wire:?} has something to take");
}

fn control(from: u16, to: u16) -> Wire {
    Wire::Control { from, to }
}

/// Processes all messages that can be received from the channels for which `open` returns true.
fn rest(cluster: &mut Cluster, open: impl Fn(Wire) -> bool) {
    let (mut any, mut rounds) = (true, 0);
    while std::mem::take(&mut any) {
        rounds += 1;
        assert!(rounds < 1000, "the members exchange messages for ever");
        for wire in cluster.net.filled().into_iter().filter(|wire| open(*wire)) {
            any |= cluster.is_up(wire.receiver()) && cluster.take(wire, None).expect("the processes accept the input");
        }
    }
}

/// Ticks the members `times` times. After each tick of all of them, all messages that can be received are processed,
/// and the deliveries must be [`safe`].
fn tick_safely(cluster: &mut Cluster, times: usize, members: &[u16], open: impl Fn(Wire) -> bool) {
    for _ in 0..times {
        for member in members {
            cluster.tick(*member).expect("the processes accept the input");
        }
        rest(cluster, &open);
        safe(&cluster.logs(), &cluster.sent).unwrap_or_else(|flaw| panic!("{flaw}"));
    }
}

fn replica(cluster: &Cluster, member: u16) -> &Replica {
    cluster.members[usize::from(member)].replica.as_ref().expect("the member is up")
}

fn forget(cluster: &mut Cluster, member: u16) {
    cluster.crash(member);
    cluster.restart(member).expect("the processes accept the input");
}

/// Two of three members hold a message in one ballot that they have promised, and its client dies. One of the two loses
/// its memory while that ballot's candidate still waits for the promise of the other one, which was made before the
/// message arrived. That promise completes the ballot, which lacks the message. So the ballot must not admit the member
/// without memory. A later ballot, which has the message, admits it. Then the other one loses its memory.
#[test]
fn message_held_in_a_promised_ballot_survives_admission_by_the_same_ballot() {
    let (candidate, first, second) = (0, 1, 2);
    let mut cluster = Cluster::new(&[3], 1, (Variant::V2, 4, Mutant::None));
    cluster.campaign(candidate, None).expect("the processes accept the input");
    take(&mut cluster, control(candidate, first));
    take(&mut cluster, control(candidate, second));
    cluster.write_some(0, &[0], |member| member != candidate);
    for holds in [first, second] {
        take(&mut cluster, Wire::Body { client: 0, to: holds });
        let held = replica(&cluster, holds);
        assert_eq!((held.promised().number(), held.end_of_held(ClientId(0))), (2, 1), "held");
    }
    forget(&mut cluster, first);
    rest(&mut cluster, |wire| !wire.touches(second));
    // The promise that was made before the message arrived reaches the candidate now.
    take(&mut cluster, control(second, candidate));
    rest(&mut cluster, |wire| !wire.touches(second));
    for _ in 0..20 {
        for member in [candidate, first] {
            cluster.tick(member).expect("the processes accept the input");
        }
        rest(&mut cluster, |wire| !wire.touches(second));
    }
    assert!(replica(&cluster, first).is_joining(), "the second has promised nothing since the first forgot");
    for _ in 0..20 {
        (0..3).for_each(|member| cluster.tick(member).expect("the processes accept the input"));
        rest(&mut cluster, |_| true);
    }
    assert!(!replica(&cluster, first).is_joining(), "it is admitted again before the next one fails");
    forget(&mut cluster, second);
    for _ in 0..20 {
        (0..3).for_each(|member| cluster.tick(member).expect("the processes accept the input"));
        rest(&mut cluster, |_| true);
    }
    assert!((0..3).all(|member| !replica(&cluster, member).is_joining()));
    let delivered = [0, 1, 2].map(|member| replica(&cluster, member).delivered());
    assert_eq!(delivered, [1; 3], "two members held it");
}

/// One of three members promises a ballot, and loses its memory. The slow candidate of a smaller ballot, which the
/// third member promised before the larger ballot began, could admit the member. The member must not count in both
/// ballots.
#[test]
fn process_that_forgot_a_promise_is_not_admitted_by_a_smaller_ballot() {
    let (slow, forgets, fast) = (0, 1, 2);
    let mut cluster = Cluster::new(&[3], 2, (Variant::V2, 4, Mutant::None));
    cluster.campaign(slow, None).expect("the processes accept the input");
    take(&mut cluster, control(slow, fast));
    cluster.campaign(fast, None).expect("the processes accept the input");
    take(&mut cluster, control(fast, forgets));
    take(&mut cluster, control(forgets, fast));
    assert_eq!(replica(&cluster, fast).ballot().number(), 3, "it takes over, by its own promise and the other one's");
    forget(&mut cluster, forgets);
    rest(&mut cluster, |wire| wire == control(forgets, slow));
    take(&mut cluster, control(fast, slow));
    rest(&mut cluster, |wire| wire == control(slow, forgets) || wire == control(forgets, slow));
    assert!(cluster.submit(0, &[0], None) && cluster.submit(1, &[0], None));
    // The smaller ballot has one message, the larger ballot the other.
    take(&mut cluster, Wire::Body { client: 0, to: slow });
    take(&mut cluster, Wire::Body { client: 0, to: forgets });
    take(&mut cluster, Wire::Body { client: 1, to: fast });
    rest(&mut cluster, |wire| wire.joins(slow, forgets));
    take(&mut cluster, Wire::Body { client: 1, to: forgets });
    tick_safely(&mut cluster, 20, &[forgets, fast], |wire| wire.joins(fast, forgets));
    tick_safely(&mut cluster, 20, &[0, 1, 2], |_| true);
    assert_ne!(replica(&cluster, slow).ballot(), Ballot::NONE);
}

/// One of five members promises a ballot, loses its memory, and is admitted by a smaller ballot that began afterwards,
/// by promises of members that the larger ballot's candidate has not reached. The member must not count in both
/// ballots. The promise of its previous life no longer counts, even where no other member has learnt from the process
/// itself that this life is over.
#[test]
fn promise_of_an_earlier_life_does_not_count_beside_a_smaller_ballot_that_took_the_process_in() {
    let (fast, forgets, late, other, slow) = (0, 1, 2, 3, 4);
    let mut cluster = Cluster::new(&[5], 2, (Variant::V2, 4, Mutant::None));
    cluster.campaign(slow, None).expect("the processes accept the input");
    take(&mut cluster, control(slow, forgets));
    take(&mut cluster, control(forgets, slow));
    forget(&mut cluster, forgets);
    // The member without memory asks the leader. The leader has not learnt of the larger ballot, and campaigns.
    take(&mut cluster, control(forgets, fast));
    for promises in [late, other] {
        // The slow candidate's request to this member is still in flight.
        take(&mut cluster, control(fast, promises));
        take(&mut cluster, control(promises, fast));
    }
    rest(&mut cluster, |wire| [forgets, other].iter().any(|member| wire.joins(fast, *member)));
    let taken_in = replica(&cluster, forgets);
    assert!(!taken_in.is_joining() && taken_in.ballot() < replica(&cluster, slow).promised(), "by the smaller ballot");
    assert!(cluster.submit(0, &[0], None) && cluster.submit(1, &[0], None));
    for member in [fast, forgets, other] {
        take(&mut cluster, Wire::Body { client: 0, to: member });
    }
    rest(&mut cluster, |wire| {
        wire == control(forgets, fast)
            || wire == control(other, fast)
            || matches!(wire, Wire::Stream { from, to } if from == fast && [forgets, other].contains(&to))
    });
    assert_eq!(replica(&cluster, fast).delivered(), 1, "a majority acknowledged");
    // Now the slow candidate's messages arrive at `late`, and afterwards also at `forgets`.
    for member in [late, forgets, slow] {
        take(&mut cluster, Wire::Body { client: 1, to: member });
    }
    tick_safely(&mut cluster, 20, &[slow, late], |wire| wire.joins(slow, late));
    assert!(!replica(&cluster, slow).is_leader(), "two of five have promised");
    tick_safely(&mut cluster, 40, &[slow, late, forgets], |wire| wire.joins(slow, late) || wire.joins(slow, forgets));
    tick_safely(&mut cluster, 40, &[0, 1, 2, 3, 4], |_| true);
    let delivered = [0, 1, 2, 3, 4].map(|member| replica(&cluster, member).delivered());
    assert_eq!(delivered, [2; 5]);
}

/// Returns what a member reports to a client: the ballot in which its holdings count, and how much it holds.
fn says(cluster: &Cluster, member: u16) -> (Option<Ballot>, u64) {
    let member = replica(cluster, member);
    (member.counts_in(), member.end_of_held(ClientId(0)))
}

/// Returns whether these reports, made at any time, come from a majority that holds the first message in one ballot.
fn is_synced(cluster: &Cluster, said: &[(Option<Ballot>, u64)]) -> bool {
    let in_ballot = |ballot: Ballot| said.iter().filter(|(other, end)| *other == Some(ballot) && *end > 0).count();
    let most = said.iter().filter_map(|(ballot, _)| ballot.map(in_ballot)).max().unwrap_or(0);
    most > cluster.members.len() / 2
}

/// Three of five members hold a message in a ballot that they have promised. One of them has forgotten its promise
/// since, and was admitted by a smaller ballot. Possibly no later leader learns of this majority.
#[test]
fn held_messages_count_in_a_ballot_only_when_it_is_installed() {
    let (away, late, forgets, leads, slow) = (0, 1, 2, 3, 4);
    let mut cluster = Cluster::new(&[5], 1, (Variant::V2, 4, Mutant::None));
    cluster.campaign(slow, None).expect("the processes accept the input");
    take(&mut cluster, control(slow, forgets));
    assert!(cluster.submit(0, &[0], None));
    for member in [slow, forgets] {
        take(&mut cluster, Wire::Body { client: 0, to: member });
    }
    let mut said = vec![says(&cluster, slow), says(&cluster, forgets)];
    forget(&mut cluster, forgets);
    // A smaller ballot admits the process.
    take(&mut cluster, control(forgets, leads));
    cluster.campaign(leads, None).expect("the processes accept the input");
    rest(&mut cluster, |wire| wire.joins(leads, away) || wire.joins(leads, late));
    rest(&mut cluster, |wire| wire.joins(leads, away) || wire.joins(leads, forgets));
    assert_eq!(replica(&cluster, forgets).ballot(), Ballot::new(2, ProcessId(leads)));
    take(&mut cluster, control(slow, late));
    take(&mut cluster, Wire::Body { client: 0, to: late });
    said.push(says(&cluster, late));
    let synced = is_synced(&cluster, &said);
    // The client dies. A larger ballot leads by promises of members that do not hold the message. Then the members that
    // hold it forget it.
    for wire in [away, leads].map(|to| Wire::Body { client: 0, to }) {
        cluster.net.queues.remove(&wire);
    }
    cluster.campaign(leads, None).expect("the processes accept the input");
    let three = [away, forgets, leads];
    let among = |wire: Wire| three.iter().any(|a| three.iter().any(|b| wire.joins(*a, *b)));
    rest(&mut cluster, among);
    assert!(replica(&cluster, leads).is_leader());
    for member in [late, slow] {
        forget(&mut cluster, member);
        for _ in 0..20 {
            (0..5).for_each(|member| cluster.tick(member).expect("the processes accept the input"));
            rest(&mut cluster, |wire| !wire.touches(slow) || member == slow);
        }
    }
    let delivered = [0, 1, 2, 3, 4].map(|member| replica(&cluster, member).delivered());
    assert!(!synced || delivered == [1; 5], "it was synced: {delivered:?}");
    assert_eq!(delivered, [0; 5], "no member knows the message any more");
}

/// A group is founded. One member has its founder's state and holds a message. Then this member and the founder lose
/// their memory, and the group is founded again with the third member, which had promised the first founding. The third
/// member also receives the message, and holds it in the first ballot of the second founding. Then it loses its memory,
/// too.
#[test]
fn message_held_in_first_ballots_of_two_foundings_has_no_majority() {
    let (founder, first, second) = (0, 1, 2);
    let mut cluster = Cluster::new(&[3], 1, (Variant::V2, 4, Mutant::None));
    (0..3).for_each(|member| cluster.crash(member));
    (0..3).for_each(|member| cluster.restart(member).expect("the processes accept the input"));
    (0..3).for_each(|member| cluster.tick(member).expect("the processes accept the input"));
    cluster.tick(founder).expect("the processes accept the input");
    rest(&mut cluster, |wire| wire == control(first, founder) || wire == control(second, founder));
    rest(&mut cluster, |wire| wire == control(founder, first) || wire == control(founder, second));
    rest(&mut cluster, |wire| wire == control(first, founder));
    assert!(replica(&cluster, founder).is_joining(), "a majority is not enough");
    rest(&mut cluster, |wire| wire == control(second, founder) || wire == control(founder, first));
    assert!(!replica(&cluster, first).is_joining() && replica(&cluster, second).is_joining());
    cluster.write_some(0, &[0], |member| member != founder);
    take(&mut cluster, Wire::Body { client: 0, to: first });
    let mut said = vec![says(&cluster, first)];
    forget(&mut cluster, first);
    forget(&mut cluster, founder);
    for _ in 0..4 {
        (0..3).for_each(|member| cluster.tick(member).expect("the processes accept the input"));
        rest(&mut cluster, |wire| matches!(wire, Wire::Control { .. }));
    }
    assert!(!replica(&cluster, second).is_joining(), "they found it anew");
    take(&mut cluster, Wire::Body { client: 0, to: second });
    said.push(says(&cluster, second));
    assert_eq!(said.len(), 2);
    let synced = is_synced(&cluster, &said);
    forget(&mut cluster, second);
    for _ in 0..40 {
        (0..3).for_each(|member| cluster.tick(member).expect("the processes accept the input"));
        rest(&mut cluster, |_| true);
    }
    let members = [0, 1, 2].map(|member| replica(&cluster, member));
    assert!(members.iter().all(|member| !member.is_joining() && member.counts_in().is_some()), "nobody waits for ever");
    let delivered = members.map(Replica::delivered);
    assert!(!synced, "{said:?}");
    assert_eq!(delivered, [0; 3], "no member knows the message any more");
}

/// Processes of a client leave more no-op slots than a window holds, and nothing is delivered meanwhile. A member that
/// was partitioned, or that restarts without memory, takes over the application's state, which has as many deliveries
/// as its own. The member must nevertheless pass these slots.
#[test]
fn no_op_slots_are_passed_with_a_state_although_nothing_was_delivered() {
    for returns in ["leads", "follows", "without memory"] {
        let (leader, other, late) = (0, 1, 2);
        let mut cluster = Cluster::new(&[3], 2, (Variant::V2, 4, Mutant::None));
        let here = |wire: Wire| !wire.touches(late);
        for generation in 0..3 {
            cluster.begin(0, generation, &[leader, other]).expect("the processes accept the input");
            rest(&mut cluster, here);
            cluster.write_some(0, &[0], |_| false);
            cluster.write_some(0, &[0], |member| member != late);
            rest(&mut cluster, here);
            [leader, other]
                .into_iter()
                .for_each(|member| cluster.give_up(0, member, 0).expect("the processes accept the input"));
            for _ in 0..40 {
                (0..2).for_each(|member| cluster.tick(member).expect("the processes accept the input"));
                rest(&mut cluster, here);
            }
        }
        let passed = [leader, other].map(|member| replica(&cluster, member).first_held(ClientId(0)));
        assert_eq!(passed, [6, 6], "all slots are no-ops");
        match returns {
            "leads" => {
                [leader, other]
                    .into_iter()
                    .for_each(|member| cluster.reconnect(late, member).expect("the processes accept the input"));
                cluster.campaign(late, None).expect("the processes accept the input");
            }
            "follows" => {
                [leader, other]
                    .into_iter()
                    .for_each(|member| cluster.reconnect(late, member).expect("the processes accept the input"));
                cluster.campaign(other, None).expect("the processes accept the input");
            }
            _ => forget(&mut cluster, late),
        }
        for _ in 0..100 {
            (0..3).for_each(|member| cluster.tick(member).expect("the processes accept the input"));
            rest(&mut cluster, |_| true);
        }
        let passed = [0, 1, 2].map(|member| replica(&cluster, member).first_held(ClientId(0)));
        let ballots = [0, 1, 2].map(|member| replica(&cluster, member).ballot());
        assert_eq!(passed, [6; 3], "{returns}");
        assert_eq!(ballots, [ballots[0]; 3], "{returns}");
    }
}
