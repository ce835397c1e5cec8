//! How long a leader's death goes unnoticed, in steps of the model: an asserted bound and the spread.

use stentor_election::Mutant;

use crate::scenarios::bound;
use crate::world::{Setup, World};

/// Steps from each death of a leader until all others name the same new one.
fn replacements(setup: &Setup, deaths: u64) -> Vec<u64> {
    let mut world = World::settled(setup.clone());
    let mut took = Vec::new();
    for death in 0..deaths {
        let (_, leader) = world.agreed().expect("a leader");
        let leader = usize::from(leader.0);
        world.crash(leader);
        took.push(world.until_agreed(10_000).unwrap());
        world.run(7 + death % 5);
        world.start(leader);
        world.run(20 * setup.timeout_min);
    }
    assert_eq!(world.good(), Ok(()));
    took.sort_unstable();
    took
}

#[test]
fn a_leader_that_stops_is_replaced_within_the_bound() {
    for (members, interval, latency) in [(3, 1, 1), (5, 1, 1), (3, 10, 3), (7, 5, 12)] {
        let mut setup = Setup::new(members, Mutant::None);
        (setup.interval, setup.latency) = (interval, latency);
        (setup.timeout_min, setup.timeout_max) = (4 * interval, 64 * interval);
        let took = replacements(&setup, 200);
        let (best, median, worst) = (took[0], took[took.len() / 2], took[took.len() - 1]);
        // Regular beats: the timeout is the shortest one.
        let bound = bound(&setup, setup.timeout_min);
        println!(
            "{members} members, a poll every {interval} µs, readings {latency} µs old: replaced within \
             {best} / {median} / {worst} µs (best, median, worst of 200); bound {bound} µs"
        );
        assert!(worst <= bound, "{took:?}");
        assert!(best > setup.timeout_min, "nobody can know it sooner: {took:?}");
    }
}

#[test]
fn slow_pollers_cost_polls_not_safety() {
    // The time between two polls counts as a quarter of the shortest timeout at most, so a process that polls ten times
    // too rarely needs five polls to suspect.
    let mut setup = Setup::new(3, Mutant::None);
    (setup.timeout_min, setup.timeout_max) = (4, 64);
    let mut world = World::settled(setup.clone());
    (0..3).for_each(|n| world.pace(n, 10));
    world.run(2000);
    assert_eq!(world.reigns(), 1);
    world.crash(0);
    let took = world.until_agreed(1000).unwrap();
    assert!(took <= 10 * bound(&setup, setup.timeout_min), "{took}");
}
