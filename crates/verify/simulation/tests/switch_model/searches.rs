//! The searches without mutants.

use stateright::{Checker, Model};
use stentor_switch::Aggregation;

use crate::model::{Budget, Search, link, link_at, send, write, write_imm};

/// The property that some state must satisfy.
const DONE: &str = "everything done";

/// Searches all states, prints statistics, and returns the number of states.
fn search(search: Search) -> usize {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (name, begin) = (search.name, std::time::Instant::now());
    let checker = search.checker().threads(threads).spawn_bfs().join();
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name}: {states} states, depth {depth}, {:.1} s", begin.elapsed().as_secs_f64());
    let found: Vec<&str> = checker.discoveries().into_keys().filter(|property| *property != DONE).collect();
    for property in &found {
        let Some(path) = checker.discovery(property) else { continue };
        let last = path.last_state().clone();
        println!("{property}: {:?} {:?}", last.world.watch().findings(), last.world.unfinished());
        path.into_actions().iter().for_each(|step| println!("  {step:?}"));
    }
    assert_eq!(found, [""; 0], "{name}");
    assert!(checker.discovery(DONE).is_some(), "{name}: no state completes all work");
    assert!(checker.is_done(), "{name}: the search did not end");
    states
}

const NONE: Budget =
    Budget { losses: 0, loop_losses: 0, repeats: 0, delays: 0, early_timers: 0, leases: 0, restarts: 0 };

/// Returns whether the longest searches are enabled, too.
fn large() -> bool {
    std::env::var("STENTOR_MODEL").is_ok_and(|size| size == "large")
}

/// Returns the programs of a sender and two receivers. The sender posts one control packet and three data packets.
fn three() -> Vec<Vec<stentor_simulation::switch::Op>> {
    vec![vec![link(&[1, 2]), write(1), send(), write_imm()], vec![], vec![]]
}

#[test]
fn without_losses_no_timeout_is_needed() {
    search(Search { timers: false, ..Search::new("no loss, no timers", three()) });
    let programs = vec![vec![link(&[1, 2]), write(3), link_at(&[2], 8), write(1)], vec![], vec![]];
    search(Search { timers: false, ..Search::new("no loss, no timers, two topologies", programs) });
}

#[test]
fn one_loss_is_recovered() {
    search(Search { budget: Budget { losses: 1, ..NONE }, ..Search::new("1 loss", three()) });
    let round = Search { aggregation: Aggregation::RoundBitmap, ..Search::new("1 loss, rounds", three()) };
    search(Search { budget: Budget { losses: 1, ..NONE }, ..round });
    search(Search { budget: Budget { loop_losses: 1, ..NONE }, ..Search::new("1 loss in the loop", three()) });
}

#[test]
fn two_senders_share_a_set() {
    let programs = vec![vec![link(&[2]), write(1), stentor_simulation::switch::Op::Release]; 2];
    let programs = [programs, vec![vec![]]].concat();
    search(Search::new("2 senders", programs));
}

#[test]
fn everything_else_in_searches_that_take_minutes() {
    if std::env::var("STENTOR_MODEL").is_err() {
        println!("skipped: set STENTOR_MODEL=minutes and use an optimised build");
        return;
    }
    let release = stentor_simulation::switch::Op::Release;
    let one = |losses, loop_losses, repeats| Budget { losses, loop_losses, repeats, ..NONE };
    let mut total = 0;
    let mut budgets = vec![("2 losses", one(2, 0, 0)), ("a loss and one in the loop", one(1, 1, 0))];
    budgets.push(("a restart", Budget { restarts: 1, ..one(1, 0, 0) }));
    if large() {
        budgets.push(("a loss and a repetition", one(1, 0, 1)));
        budgets.push(("a loss and an early timeout", Budget { early_timers: 1, ..one(1, 0, 0) }));
        budgets.push(("a loss and a delay", Budget { delays: 1, ..one(1, 0, 0) }));
    }
    for (name, budget) in budgets {
        total += search(Search { budget, ..Search::new(name, three()) });
        if large() {
            let rounds = Search { aggregation: Aggregation::RoundBitmap, ..Search::new("the same, rounds", three()) };
            total += search(Search { budget, ..rounds });
        }
    }
    let eager = Search { eager: true, ..Search::new("posted ahead of the control packet, 1 loss", three()) };
    total += search(Search { budget: one(1, 0, 0), ..eager });
    let two = vec![vec![link(&[1, 2]), send(), write_imm()], vec![], vec![]];
    total += search(Search { receives: 1, ..Search::new("receivers that are not ready", two) });
    let members = vec![vec![link(&[1, 2]), write(1), link_at(&[2], 8), write(2)], vec![], vec![]];
    for (budget, eager) in [(one(1, 0, 0), false), (one(0, 1, 0), false), (one(0, 0, 1), false), (one(1, 0, 0), true)] {
        total += search(Search { budget, eager, ..Search::new("members change", members.clone()) });
    }
    let two = vec![vec![link(&[2]), write(1), release.clone()], vec![link(&[2]), write(1), release], vec![]];
    for budget in [one(1, 0, 0), one(0, 1, 0), one(0, 0, 1), Budget { leases: 1, ..NONE }] {
        total += search(Search { budget, ..Search::new("2 senders, faults", two.clone()) });
    }
    let stolen = vec![vec![link(&[1, 2]), write(1)], vec![link(&[2]), write(1)], vec![]];
    for budget in [Budget { leases: 1, ..one(1, 0, 0) }, Budget { leases: 1, ..one(0, 1, 0) }] {
        total += search(Search { budget, ..Search::new("a lease ends", stolen.clone()) });
    }
    let third = vec![vec![link(&[1, 2, 3]), write(1), send()], vec![], vec![], vec![]];
    total += search(Search { budget: one(1, 0, 0), ..Search::new("3 receivers, 1 loss", third) });
    println!("{total} states in all");
}
