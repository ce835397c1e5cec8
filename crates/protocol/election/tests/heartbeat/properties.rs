//! Random faults, then a calm period: one leader remains, and no stream breaks a rule. As long as readings are regular,
//! leadership does not change.

use proptest::prelude::*;
use stentor_election::{Beat, Election, Mutant};
use stentor_fabric::ProcessId;

use crate::world::{Setup, World};

#[derive(Clone, Debug)]
enum Fault {
    Crash(usize),
    Start(usize),
    Stop(usize, u64),
    Jump(usize, u64),
    Pace(usize, u64),
    Link(usize, usize, bool),
    Isolate(usize, bool),
    HandOver(usize, usize),
    Stand(usize, bool),
    Unreachable(usize, usize),
    Witness(usize, u64),
    Scribble(usize, [u64; 6]),
}

fn fault(members: usize) -> impl Strategy<Value = Fault> {
    let node = || 0..members;
    prop_oneof![
        2 => node().prop_map(Fault::Crash),
        4 => node().prop_map(Fault::Start),
        2 => (node(), 1..200_u64).prop_map(|(n, steps)| Fault::Stop(n, steps)),
        1 => (node(), prop_oneof![0..1000_u64, Just(u64::MAX - 50), Just(1 << 40)]).prop_map(|(n, by)| Fault::Jump(n, by)),
        2 => (node(), 1..20_u64).prop_map(|(n, pace)| Fault::Pace(n, pace)),
        3 => (node(), node(), any::<bool>()).prop_map(|(a, b, works)| Fault::Link(a, b, works)),
        2 => (node(), any::<bool>()).prop_map(|(n, works)| Fault::Isolate(n, works)),
        2 => (node(), node()).prop_map(|(n, to)| Fault::HandOver(n, to)),
        1 => (node(), any::<bool>()).prop_map(|(n, stands)| Fault::Stand(n, stands)),
        2 => (node(), node()).prop_map(|(n, of)| Fault::Unreachable(n, of)),
        1 => (node(), 1..50_u64).prop_map(|(n, epoch)| Fault::Witness(n, epoch)),
        1 => (node(), any::<[u64; 6]>()).prop_map(|(n, words)| Fault::Scribble(n, words)),
    ]
}

fn apply(world: &mut World, fault: &Fault) {
    let process = |n: usize| ProcessId(n as u16);
    match *fault {
        Fault::Crash(n) => world.crash(n),
        Fault::Start(n) if !world.runs(n) => world.start(n),
        Fault::Start(_) => {}
        Fault::Stop(n, steps) => world.stop_for(n, steps),
        Fault::Jump(n, by) => world.jump_clock(n, by),
        Fault::Pace(n, pace) => world.pace(n, pace),
        Fault::Link(a, b, works) => world.link(a, b, works),
        Fault::Isolate(n, works) => world.isolate(n, works),
        // Hand-overs to members that cannot be read are tried, too, because refusals are also tested.
        Fault::HandOver(n, to) => {
            let _ = world.heartbeat(n).map(|heartbeat| heartbeat.hand_over(process(to)));
        }
        Fault::Stand(n, stands) => world.heartbeat(n).into_iter().for_each(|h| h.stand(stands)),
        Fault::Unreachable(n, of) => world.heartbeat(n).into_iter().for_each(|h| h.unreachable(process(of))),
        Fault::Witness(n, epoch) => world.heartbeat(n).into_iter().for_each(|h| h.witness(epoch, process(0))),
        // Every word but the life is overwritten: a larger life would count as a restart.
        Fault::Scribble(n, [_, counter, claim, doubt, stands, sees]) => {
            let beat = Beat { counter, claim: claim >> 30, doubt, stands, sees, ..world.memory(n) };
            world.scribble(n, beat);
        }
    }
}

fn calm(world: &mut World, members: usize) {
    for n in 0..members {
        world.isolate(n, true);
        world.stop_for(n, 0);
        world.pace(n, 1);
        if !world.runs(n) {
            world.start(n);
        }
        world.heartbeat(n).into_iter().for_each(|heartbeat| heartbeat.stand(true));
    }
}

fn faults() -> impl Strategy<Value = (usize, Vec<(u64, Fault)>)> {
    (1..=5_usize)
        .prop_flat_map(|members| (Just(members), proptest::collection::vec((0..80_u64, fault(members)), 0..60)))
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn one_stable_leader_remains_after_faults((members, faults) in faults(), quorum in any::<bool>()) {
        let mut setup = Setup::new(members, Mutant::None);
        setup.quorum = quorum.then_some(1);
        setup.stable = true;
        let mut world = World::settled(setup);
        for (steps, fault) in &faults {
            apply(&mut world, fault);
            world.run(*steps);
        }
        calm(&mut world, members);
        // The members need up to ten longest timeouts to agree, because they wait for restarted members and may skip
        // candidates.
        world.run(10 * 64);
        let settled = world.now;
        world.run(5 * 64);
        prop_assert_eq!(world.check_rules(), Ok(()));
        prop_assert!(world.agreed().is_some(), "{:?}", (0..members).map(|n| world.leader(n)).collect::<Vec<_>>());
        prop_assert_eq!(world.changes_since(settled), vec![]);
    }

    #[test]
    fn single_survivor_leads_with_a_quorum_of_one(survivor in 0..5_usize, members in 1..=5_usize) {
        let survivor = survivor % members;
        let mut setup = Setup::new(members, Mutant::None);
        setup.quorum = Some(1);
        let mut world = World::settled(setup);
        (0..members).filter(|n| *n != survivor).for_each(|n| world.crash(n));
        prop_assert!(world.until_agreed(200).is_ok());
        prop_assert_eq!(world.check_rules(), Ok(()));
    }

    #[test]
    fn regular_readings_change_nothing(
        members in 1..=7_usize,
        interval in 1..8_u64,
        latency in 0..20_usize,
        paces in proptest::collection::vec(1..8_u64, 7),
        starts in proptest::collection::vec(0..100_u64, 7),
    ) {
        let mut setup = Setup::new(members, Mutant::None);
        (setup.interval, setup.latency) = (interval, latency);
        (setup.timeout_min, setup.timeout_max) = (4 * interval, 64 * interval + 200);
        let mut world = World::empty(setup);
        for step in 0..100 {
            (0..members).filter(|n| starts[*n] == step).for_each(|n| world.start(n));
            world.step();
        }
        // Polls happen as often as configured, or more often.
        (0..members).for_each(|n| world.pace(n, paces[n].min(interval)));
        world.run(1000);
        prop_assert_eq!(world.agreed(), Some((1, ProcessId(0))));
        let settled = world.now;
        world.run(3000);
        prop_assert_eq!(world.changes_since(settled), vec![]);
        prop_assert_eq!(world.reigns(), 1);
        prop_assert_eq!(world.check_rules(), Ok(()));
    }
}
