//! A group is founded when all its members have promised it. Until then, and while they learn of it, members may be
//! replaced.

use stentor_fabric::ProcessId;
use stentor_multicast::{Incarnation, Mutant, Replica, Variant};

use super::cluster::Cluster;
use super::walk::Random;

/// All members start without memory. Members are replaced before they have begun, as many as a group may lose, whether
/// or not others have begun with them. In the end all are members, in a ballot in which held messages count.
#[test]
fn group_is_founded_although_members_are_replaced_meanwhile() {
    let mut late = 0;
    for (sizes, seeds) in [(&[3][..], 0..2000), (&[5], 0..1000), (&[2], 0..100)] {
        for seed in seeds {
            let mut random = Random::new(seed);
            let members = sizes[0] as u16;
            let mut cluster = Cluster::new(sizes, 1, (Variant::V2, 4, Mutant::None));
            (0..members).for_each(|member| cluster.crash(member));
            (0..members).for_each(|member| cluster.restart(member).expect("the processes accept the input"));
            let mut replaced = (members - 1) / 2;
            for _ in 0..120 {
                let member = random.below(members.into()) as u16;
                let begun = |cluster: &Cluster, member: u16| !replica(cluster, member).is_joining();
                let some_begun = (0..members).any(|member| begun(&cluster, member));
                match random.below(12) {
                    0 if replaced > 0 && !begun(&cluster, member) && (some_begun || seed % 2 == 0) => {
                        late += u32::from(some_begun);
                        replaced -= 1;
                        cluster.crash(member);
                        cluster.restart(member).expect("the processes accept the input");
                    }
                    1 => cluster.tick(member).expect("the processes accept the input"),
                    _ => {
                        let filled = cluster.net.filled();
                        if !filled.is_empty() {
                            let wire = filled[random.below(filled.len() as u64) as usize];
                            cluster.take(wire, None).expect("the processes accept the input");
                        }
                    }
                }
            }
            finish(&mut cluster);
            for member in (0..members).map(|member| replica(&cluster, member)) {
                let begun = !member.is_joining() && member.counts_in().is_some();
                assert!(begun, "{sizes:?} seed {seed}: a member is left out");
            }
        }
    }
    assert!(late > 30, "{late} were replaced when others had begun");
}

fn replica(cluster: &Cluster, member: u16) -> &Replica {
    cluster.members[usize::from(member)].replica.as_ref().expect("the member is up")
}

fn finish(cluster: &mut Cluster) {
    let members = cluster.members.len() as u16;
    for round in 0..60 {
        while cluster
            .net
            .filled()
            .into_iter()
            .any(|wire| cluster.take(wire, None).expect("the processes accept the input"))
        {}
        (0..members).for_each(|member| cluster.tick(member).expect("the processes accept the input"));
        // A correct election names another leader if the first leader's life is over.
        let leads = |member: u16| replica(cluster, member).is_leader() || replica(cluster, member).is_candidate();
        let ready = (0..members).find(|member| !replica(cluster, *member).is_joining());
        if let Some(member) = ready.filter(|_| round == 20 && !(0..members).any(leads)) {
            cluster.campaign(member, None).expect("the processes accept the input");
        }
    }
}

/// Returns whether a group of three is founded. The members in `without` have no memory, the other members are stalled,
/// and a member of another group reports the incarnation that it `remembers`.
fn is_founded(mutant: Mutant, without: &[u16], remembers: Incarnation) -> bool {
    let mut cluster = Cluster::new(&[3, 1], 1, (Variant::V2, 4, mutant));
    without.iter().for_each(|member| cluster.crash(*member));
    for member in without {
        cluster.restart(*member).expect("the processes accept the input");
        let greeted = cluster.step(*member, None, None, |replica, _| {
            let done = replica.on_greeting(ProcessId(3), Incarnation::FIRST, remembers);
            done.map_err(|why| format!("{why:?}"))
        });
        greeted.expect("no contradiction");
    }
    let moves = |to: u16| without.contains(&to);
    for _ in 0..40 {
        without.iter().for_each(|member| cluster.tick(*member).expect("the processes accept the input"));
        let due: Vec<_> = cluster.net.filled().into_iter().filter(|wire| moves(wire.receiver())).collect();
        due.into_iter().for_each(|wire| drop(cluster.take(wire, None)));
    }
    without.iter().any(|member| !replica(&cluster, *member).is_joining())
}

#[test]
fn group_is_founded_by_all_members_only_while_nobody_remembers_it() {
    let nothing = Incarnation::NONE;
    assert!(is_founded(Mutant::None, &[0, 1, 2], nothing));
    assert!(!is_founded(Mutant::None, &[0, 1], nothing), "the third one is stalled, and may have delivered");
    assert!(!is_founded(Mutant::None, &[0, 1, 2], Incarnation::FIRST), "the other group may wait for it");
}

#[cfg(feature = "plants")]
#[test]
fn mutants_of_founding_are_found() {
    assert!(is_founded(Mutant::FoundedByMajority, &[0, 1], Incarnation::NONE));
    assert!(is_founded(Mutant::MemoryIgnored, &[0, 1, 2], Incarnation::FIRST));
}
