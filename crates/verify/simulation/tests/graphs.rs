//! Partial connectivity of members that run the whole protocol, such as hub, chain, ring and one-way graphs of three
//! and five members, and false reports of deaths.

use stentor_election::Mutant;
use stentor_simulation::graphs::{
    FalseDeath, Graph, GraphRun, INTERVAL_NS, SETTLES_NS, TIMEOUT_MAX_NS, run, run_changing, run_told,
};
use stentor_testutil::SplitMix64;

/// Returns the named graphs with their names and numbers of members.
fn named() -> Vec<(&'static str, usize, Graph)> {
    let mut all = Vec::new();
    for members in [3, 5] {
        let middle = members as u16 / 2;
        all.push(("hub", members, Graph::hub(members, middle)));
        all.push(("hub at the end", members, Graph::hub(members, members as u16 - 1)));
        all.push(("chain", members, Graph::chain(members)));
        let others = 1..members as u16;
        let mute: Vec<_> = others.clone().map(|other| (0, other)).collect();
        let deaf: Vec<_> = others.map(|other| (other, 0)).collect();
        all.push(("mute first member", members, Graph::without(members, &mute)));
        all.push(("deaf first member", members, Graph::without(members, &deaf)));
    }
    all.push(("ring", 5, Graph::ring(5)));
    all.push(("end of a chain", 5, Graph::of_edges(5, &[(0, 1), (1, 2)])));
    // No packets pass from a member to the second one after it. They do pass in the other direction.
    let one_way: Vec<_> = (0..5).map(|n| (n, (n + 2) % 5)).collect();
    all.push(("one-way ring", 5, Graph::without(5, &one_way)));
    all.push(("two halves", 5, Graph::of_edges(5, &[(0, 1), (2, 3)])));
    all
}

fn came(what: &str, seed: u64, graph: &Graph, leader: usize, mutant: Mutant) -> GraphRun {
    let came = run(seed, graph, leader, mutant).expect("a possible group");
    println!(
        "{what}, first leader {leader}: {:?} leads, {} resigned, {} campaigns, {} aside, {} caught up, {} messages, settled after {:.1} timeouts {}",
        came.leader,
        came.resigned,
        came.campaigns,
        came.aside,
        came.caught_up,
        came.messages,
        came.settled_ns as f64 / TIMEOUT_MAX_NS as f64,
        came.broken.join("; ")
    );
    came
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn every_named_graph_ends_with_a_leader_that_delivers() {
    let (mut resigned, mut moved, mut stayed, mut nobody) = (0, 0, 0, 0);
    let mut broken = Vec::new();
    for (name, members, graph) in named() {
        for leader in 0..members {
            let what = format!("{name} of {members}");
            let came = came(&what, 7 * leader as u64 + members as u64, &graph, leader, Mutant::None);
            resigned += came.resigned;
            moved += u64::from(came.leader.is_some_and(|now| now != leader));
            stayed += u64::from(came.leader == Some(leader));
            nobody += u64::from(came.leader.is_none());
            broken.extend(came.broken.iter().map(|broken| format!("{what}, first leader {leader}: {broken}")));
        }
    }
    println!("{resigned} resigned, {moved} moved, {stayed} stayed, {nobody} graphs without a leader");
    assert!(broken.is_empty(), "{}", broken.join("\n"));
    assert!(resigned >= 10 && moved >= 10 && stayed >= 10 && nobody > 0);
}

/// Tries all graphs of three members with every first leader, and some graphs of five members with one first leader
/// each.
#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn all_graphs_of_three_and_drawn_ones_of_five_end_with_a_leader_that_delivers() {
    let pairs = |members: u16| (0..members).flat_map(move |a| (a + 1..members).map(move |b| (a, b)));
    let edges = |members, bits: u64| -> Vec<(u16, u16)> {
        pairs(members).enumerate().filter(|(at, _)| bits >> at & 1 == 1).map(|(_, pair)| pair).collect()
    };
    let three = (0..8).flat_map(|bits| (0..3).map(move |leader| (3, bits, leader)));
    let five = (1..=24).map(|n: u64| (5, n.wrapping_mul(SplitMix64::GOLDEN) >> 54, n as usize % 5));
    let mut led = 0;
    for (members, bits, leader) in three.chain(five) {
        let graph = Graph::of_edges(usize::from(members), &edges(members, bits));
        let came = came(&format!("graph {bits:#b} of {members}"), bits + 1, &graph, leader, Mutant::None);
        assert_eq!(came.broken, Vec::<String>::new());
        led += u64::from(came.leader.is_some());
    }
    assert!((20..48).contains(&led), "{led} of 48 ended with a leader");
}

/// The first leader is cut off and resigns, but its replica still believes that it leads. The second member leads the
/// third in a larger ballot, and is cut off before the first member learns of that ballot. When the first and the third
/// member reach each other again, the election names the first one. It must campaign, because otherwise neither of them
/// delivers anything.
#[test]
fn leader_that_missed_a_ballot_campaigns_when_it_is_named_again() {
    let graphs = [(0, Graph::of_edges(3, &[(1, 2)])), (SETTLES_NS, Graph::of_edges(3, &[(0, 2)]))];
    for seed in 1..=8 {
        let came = run_changing(seed, &graphs, 0, Mutant::None).expect("a possible group");
        let what = format!("seed {seed}: {came:?}");
        assert_eq!(came.broken, Vec::<String>::new(), "{what}");
        assert_eq!(came.leader, Some(0), "{what}");
        assert!(came.campaigns > 0, "{what}");
    }
}

/// In each run, one member receives a false report of the death of one other member, once or twice. Runs cover all
/// pairs of members and all leaders.
#[test]
fn false_death_deposes_a_leader_at_most_once() {
    for (to, of) in (0..3).flat_map(|to| (0..3).map(move |of| (to, of))).filter(|(to, of)| to != of) {
        for leader in 0..3 {
            let told = [0, INTERVAL_NS / 2].map(|at_ns| FalseDeath { at_ns, to, of });
            for told in [&told[..1], &told] {
                let seed = u64::from(to) + 3 * u64::from(of) + 9 * leader as u64;
                let came = run_told(seed, 3, leader, told).expect("a possible group");
                let what = format!("p{to} is told of p{of}, leader p{leader}: {came:?}");
                assert_eq!(came.broken, Vec::<String>::new(), "{what}");
                // A member that is not next in line defers to a member that it sees, and learns in time that the leader
                // is alive.
                let first = (0..3).find(|member| *member != leader).expect("three members");
                let deposes = usize::from(of) == leader && usize::from(to) == first;
                assert_eq!(came.leader, Some(if deposes { first } else { leader }), "{what}");
            }
        }
    }
}

#[test]
fn flood_of_false_deaths_ends_with_one_leader_that_delivers() {
    let mut campaigns = 0;
    for seed in 1..=24 {
        let members = if seed % 2 == 0 { 3 } else { 5 };
        let mut rng = SplitMix64(seed);
        let mut below = |most: u64| rng.below(most) as u16;
        let told: Vec<FalseDeath> = (0..400)
            .map(|n| {
                let to = below(members);
                let of = (to + 1 + below(members - 1)) % members as u16;
                FalseDeath { at_ns: n * INTERVAL_NS / 2, to, of }
            })
            .collect();
        let came = run_told(seed, members as usize, 0, &told).expect("a possible group");
        assert_eq!(came.broken, Vec::<String>::new(), "seed {seed}: {came:?}");
        campaigns += came.campaigns;
    }
    println!("{campaigns} campaigns after the floods");
}

#[cfg(feature = "plants")]
#[test]
fn mutants_are_found_by_a_graph() {
    for (mutant, name, first, sees) in [
        (Mutant::NeverResigns, "end of a chain", 0, "members [0] lead; [1] are connected to a majority"),
        (Mutant::DoubtersInSight, "ring", 1, "a view of the leader changed"),
        (Mutant::NeverCutOff, "ring", 1, "the client multicast 0 messages"),
    ] {
        let (_, _, graph) = named().into_iter().find(|(named, members, _)| *named == name && *members == 5).unwrap();
        let came = came(name, 5, &graph, first, mutant);
        assert!(came.broken.iter().any(|broken| broken.contains(sees)), "{mutant:?}: {:?}", came.broken);
    }
}
