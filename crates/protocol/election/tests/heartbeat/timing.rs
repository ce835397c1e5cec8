//! Time until a leader's crash is detected and it is replaced, in steps of the model: an asserted bound, and the
//! spread.

use stentor_election::Mutant;

use crate::scenarios::bound;
use crate::world::{Setup, World};

/// Returns the steps from each crash of a leader until all others name the same new one.
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
    assert_eq!(world.check_rules(), Ok(()));
    took.sort_unstable();
    took
}

#[test]
fn stopped_leader_is_replaced_within_the_bound() {
    for (members, interval, latency) in [(3, 1, 1), (5, 1, 1), (3, 10, 3), (7, 5, 12)] {
        let mut setup = Setup::new(members, Mutant::None);
        (setup.interval, setup.latency) = (interval, latency);
        (setup.timeout_min, setup.timeout_max) = (4 * interval, 64 * interval);
        let took = replacements(&setup, 200);
        let (best, median, worst) = (took[0], took[took.len() / 2], took[took.len() - 1]);
        // Beats are regular, so the timeout is the shortest one.
        let bound = bound(&setup, setup.timeout_min);
        println!(
            "{members} members, a poll every {interval} µs, readings {latency} µs old: replaced within \
             {best} / {median} / {worst} µs (best, median, worst of 200); bound {bound} µs"
        );
        assert!(worst <= bound, "{took:?}");
        assert!(best > setup.timeout_min, "a replacement was faster than the shortest timeout: {took:?}");
    }
}

#[test]
fn slow_polls_delay_suspicion_but_cause_no_wrong_one() {
    // Between two polls at most a quarter of the shortest timeout counts. A process that polls ten times too rarely
    // therefore needs five polls to suspect another.
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
