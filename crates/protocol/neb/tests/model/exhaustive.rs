//! Exhaustive searches with different modes and numbers of processes.

use stateright::{Checker, Model};
use stentor_neb::{Config, FaultModel, Mode};

use crate::network::{Broadcast, INDICES};
use crate::reduced;

const HOSTS: Mode = Mode::Quorum(FaultModel::LyingHosts);
const SENDER: Mode = Mode::Quorum(FaultModel::LyingSender);

fn config(n: usize, mode: Mode, f: usize, fast_path: bool) -> Config {
    Config { window: 1, payload_bytes: 8, fast_path, ..Config::new(n, mode, f) }
}

/// Searches every state and prints their number.
fn search(name: &str, model: Broadcast) {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let begin = std::time::Instant::now();
    let checker = model.checker().threads(threads).spawn_dfs().join();
    println!("{name}: {} states, {:.1} s", checker.unique_state_count(), begin.elapsed().as_secs_f64());
    checker.assert_properties();
    assert!(checker.is_done(), "{name}: the search did not end");
}

fn large() -> bool {
    std::env::var("STENTOR_MODEL").is_ok_and(|size| size == "large")
}

#[test]
fn three_processes() {
    for fast in [false, true] {
        let config = config(3, SENDER, 0, fast);
        search(
            &format!("lying-sender, 3, fast path {fast}, a crash"),
            Broadcast { config, indices: INDICES, crashes: 1, suspicions: 0 },
        );
    }
    let config = config(3, Mode::All, 0, false);
    search("all, 3, a crash", Broadcast { config, indices: INDICES, crashes: 1, suspicions: 0 });
    search("all, 3, a false suspicion", Broadcast { config, indices: INDICES, crashes: 0, suspicions: 1 });
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn four_processes_where_all_must_answer() {
    let config = config(4, Mode::All, 0, false);
    search("all, 4, a crash", Broadcast { config, indices: INDICES, crashes: 1, suspicions: 0 });
    search("all, 4, a false suspicion", Broadcast { config, indices: INDICES, crashes: 0, suspicions: 1 });
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn four_processes_with_a_quorum() {
    for (mode, name) in [(SENDER, "lying-sender"), (HOSTS, "lying-hosts")] {
        search(&format!("{name}, 4, one index, fast path false"), once(config(4, mode, 1, false), 1));
    }
}

#[test]
fn fast_paths_of_four_processes_that_take_minutes() {
    let asked = std::env::var("STENTOR_MODEL");
    if asked.is_err() {
        println!("with STENTOR_MODEL=minutes, optimised; lying-hosts with STENTOR_MODEL=large");
        return;
    }
    search("lying-sender, 4, one index, fast path true", once(config(4, SENDER, 1, true), 1));
    if large() {
        search("lying-hosts, 4, one index, fast path true", once(config(4, HOSTS, 1, true), 1));
    }
}

/// Returns a search without crashes, which add no behaviour, and without suspicions, which change nothing in mode
/// `quorum`.
fn once(config: Config, indices: usize) -> Broadcast {
    Broadcast { config, indices, crashes: 0, suspicions: 0 }
}

/// Returns the deliveries of all processes in every state, up to symmetry, by the plain search.
fn plainly(config: Config, indices: usize) -> std::collections::BTreeSet<Vec<[u8; INDICES]>> {
    let model = Broadcast { config, indices, crashes: 0, suspicions: 0 };
    let (mut seen, mut stack) = (std::collections::HashSet::new(), model.init_states());
    let mut outcomes = std::collections::BTreeSet::new();
    while let Some(state) = stack.pop() {
        if !seen.insert(state.clone()) {
            continue;
        }
        outcomes.insert(reduced::normal(state.delivered[1..].to_vec()));
        let mut actions = Vec::new();
        model.actions(&state, &mut actions);
        stack.extend(actions.into_iter().filter_map(|action| model.next_state(&state, action)));
    }
    outcomes
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn reduced_and_plain_search_find_the_same_deliveries() {
    let found = reduced::search(&reduced::four(FaultModel::LyingSender), 1);
    assert_eq!(found.outcomes, plainly(reduced::four(FaultModel::LyingSender), 1));
    assert!(found.outcomes.len() > 3 && found.violations == 0, "{:?}", found.outcomes);
}

#[test]
fn four_processes_with_a_quorum_and_a_reused_slot() {
    if !large() {
        println!("quorum, 4, two indices: with STENTOR_MODEL=large");
        return;
    }
    for (mode, name) in [(FaultModel::LyingSender, "lying-sender"), (FaultModel::LyingHosts, "lying-hosts")] {
        let begin = std::time::Instant::now();
        let found = reduced::search(&reduced::four(mode), INDICES);
        let seconds = begin.elapsed().as_secs_f64();
        println!("{name}, 4, two indices, reduced: {} states, {} sites, {seconds:.1} s", found.states, found.sites);
        assert_eq!(found.violations, 0);
        // The search must reach a conflict, a skip, and a run that delivers everything.
        assert!(found.quits && found.skips && found.outcomes.contains(&vec![[1, 1]; 3]), "{found:?}");
    }
}
