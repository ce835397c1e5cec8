//! Groups whose members do not all reach each other: every graph of three and of five members, with every first leader.
//!
//! An edge means that a member can read another's beats. A READ needs a request and a response, so on every fabric a
//! lost direction disables both. The directed graphs show that the election does not depend on that. Two members
//! *reach* each other if each reads the other. A member is *connected to a majority* if it reaches one, itself
//! included.

use stentor_election::{Change, Election, Mutant};
use stentor_fabric::ProcessId;

use crate::scenarios::ensure;
use crate::world::{Setup, World};

/// Longest timeout, in steps.
const TIMEOUT: u64 = 16;
/// Bound on the time from the cut to the last change of any view, in longest timeouts.
const SETTLES_WITHIN: u64 = 12;
/// Time for which no view may change after [`SETTLES_WITHIN`], in longest timeouts.
const QUIET: u64 = 60;

/// `graph[reader][owner]` is `true` if the reader can read the owner.
type Graph = Vec<Vec<bool>>;

fn empty(members: usize) -> Graph {
    vec![vec![false; members]; members]
}

/// Returns the graph with these edges in both directions.
fn of_edges(members: usize, edges: &[(usize, usize)]) -> Graph {
    let mut graph = empty(members);
    for &(a, b) in edges {
        (graph[a][b], graph[b][a]) = (true, true);
    }
    graph
}

/// Returns the graph with those of `pairs` whose bit is set in `bits`.
fn of_bits(members: usize, bits: u32, pairs: &[(usize, usize)], one_way: bool) -> Graph {
    let mut graph = empty(members);
    for (_, &(a, b)) in pairs.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1) {
        graph[a][b] = true;
        graph[b][a] |= !one_way;
    }
    graph
}

fn reaches_majority(graph: &Graph, n: usize) -> bool {
    let others = (0..graph.len()).filter(|other| *other != n && graph[n][*other] && graph[*other][n]);
    others.count() + 1 > graph.len() / 2
}

/// Returns the processes that lead in their own view.
fn leaders(world: &World, members: usize) -> Vec<usize> {
    (0..members).filter(|n| world.leader(*n).is_some_and(|(_, leader)| usize::from(leader.0) == *n)).collect()
}

fn cut_to(world: &mut World, graph: &Graph) {
    for (reader, row) in graph.iter().enumerate() {
        for (owner, works) in row.iter().enumerate().filter(|(owner, _)| *owner != reader) {
            world.link(reader, owner, *works);
        }
    }
}

fn complete_graph(members: usize) -> Graph {
    vec![vec![true; members]; members]
}

/// Returns a settled group in which `leader` leads.
fn led_by(members: usize, leader: usize, mutant: Mutant) -> Result<World, String> {
    let mut setup = Setup::new(members, mutant);
    setup.timeout_max = TIMEOUT;
    let mut world = World::settled(setup);
    if leader != 0 {
        let handed = world.heartbeat(0).map(|heartbeat| heartbeat.hand_over(ProcessId(leader as u16)));
        ensure(handed == Some(Ok(())), || format!("{handed:?}"))?;
        world.run(10);
    }
    let leads = leaders(&world, members);
    ensure(leads == [leader], || format!("{leads:?} lead before anything is cut"))?;
    Ok(world)
}

/// Result of a run.
struct Came {
    /// Steps from the cut to the last change of a view.
    settled: u64,
    resigned: bool,
    leader: Option<usize>,
}

/// Cuts the links of a group to those of the graph, and runs the group. With `leader`, the group is settled under this
/// leader before the cut. Without it, all members start after the cut. Checks that exactly one leader remains if any
/// member is connected to a majority, and otherwise none.
fn ends(graph: &Graph, leader: Option<usize>, mutant: Mutant) -> Result<Came, String> {
    let members = graph.len();
    let mut world = match leader {
        Some(leader) => led_by(members, leader, mutant)?,
        None => {
            let mut setup = Setup::new(members, mutant);
            setup.timeout_max = TIMEOUT;
            World::empty(setup)
        }
    };
    cut_to(&mut world, graph);
    if leader.is_none() {
        (0..members).for_each(|n| world.start(n));
    }
    let cut = world.now;
    world.run((SETTLES_WITHIN + QUIET) * TIMEOUT);
    world.check_rules()?;
    let changes = world.changes_since(cut);
    let settled = changes.iter().map(|(_, at, _)| at - cut).max().unwrap_or(0);
    ensure(settled <= SETTLES_WITHIN * TIMEOUT, || {
        format!("a change {settled} steps after the cut, {} in all: {:?}", changes.len(), changes.last())
    })?;
    let leads = leaders(&world, members);
    let able: Vec<usize> = (0..members).filter(|n| reaches_majority(graph, *n)).collect();
    let one = leads.len() == 1 && able.contains(&leads[0]);
    ensure(if able.is_empty() { leads.is_empty() } else { one }, || format!("{leads:?} lead; {able:?} could"))?;
    // A leader that kept its majority stays leader.
    if let Some(leader) = leader.filter(|leader| able.contains(leader)) {
        ensure(leads == [leader], || format!("{leader} was deposed, {leads:?} lead"))?;
    }
    let resigned = changes.iter().any(|(_, _, change)| matches!(change, Change::Resigned { .. }));
    Ok(Came { settled, resigned, leader: leads.first().copied() })
}

/// Runs every graph over these pairs, with every first leader and with members that start after the cut.
fn all(members: usize, pairs: &[(usize, usize)], one_way: bool) {
    let (mut worst, mut runs, mut resigned, mut led, mut moved) = (0, 0, 0, 0, 0);
    for bits in 0..1_u32 << pairs.len() {
        let graph = of_bits(members, bits, pairs, one_way);
        for leader in (0..members).map(Some).chain([None]) {
            let came = ends(&graph, leader, Mutant::None)
                .unwrap_or_else(|what| panic!("{members} members, graph {bits:#b}, first leader {leader:?}: {what}"));
            worst = worst.max(came.settled);
            runs += 1;
            resigned += u64::from(came.resigned);
            led += u64::from(came.leader.is_some());
            moved += u64::from(leader.is_some() && came.leader.is_some() && came.leader != leader);
        }
    }
    println!(
        "{members} members, {runs} runs: {led} end with a leader, {moved} with another than the first, {resigned} saw a \
         resignation; settled after {:.1} longest timeouts at most",
        worst as f64 / TIMEOUT as f64
    );
    assert!(resigned > 0 && moved > 0 && led > 0 && led < runs);
}

fn pairs(members: usize) -> Vec<(usize, usize)> {
    (0..members).flat_map(|a| (a + 1..members).map(move |b| (a, b))).collect()
}

#[test]
fn every_graph_of_three_ends_with_one_leader() {
    all(3, &pairs(3), false);
}

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn every_graph_of_five_ends_with_one_leader() {
    all(5, &pairs(5), false);
}

#[test]
fn every_directed_graph_of_three_ends_with_one_leader() {
    let both: Vec<_> = (0..3).flat_map(|a| (0..3).filter(move |b| *b != a).map(move |b| (a, b))).collect();
    all(3, &both, true);
}

/// Runs five members, four of which are linked only to the third one, with every first leader.
pub(crate) fn hub(mutant: Mutant) -> Result<(), String> {
    let graph = of_edges(5, &[(0, 2), (1, 2), (3, 2), (4, 2)]);
    for leader in 0..5 {
        let came = ends(&graph, Some(leader), mutant)?;
        ensure(came.leader == Some(2), || format!("{:?} leads", came.leader))?;
        ensure(came.resigned == (leader != 2), || "nobody resigned, or the hub did".into())?;
    }
    Ok(())
}

/// Runs a ring of five, in which every member is connected to a majority, so the leader stays.
pub(crate) fn ring(mutant: Mutant) -> Result<(), String> {
    let graph = of_edges(5, &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]);
    for leader in 0..5 {
        let came = ends(&graph, Some(leader), mutant)?;
        ensure(came.leader == Some(leader) && !came.resigned, || format!("{:?} leads", came.leader))?;
    }
    Ok(())
}

/// Runs chains of three and of five members.
pub(crate) fn chain(mutant: Mutant) -> Result<(), String> {
    for members in [3, 5] {
        let edges: Vec<_> = (1..members).map(|n| (n - 1, n)).collect();
        let graph = of_edges(members, &edges);
        for leader in 0..members {
            ends(&graph, Some(leader), mutant)?;
        }
    }
    Ok(())
}

/// Two of five are cut off and the others form a chain. The member in the middle sees the leader at the end of the
/// chain, so it does not doubt that leader by itself. It can become leader only because that leader resigns.
pub(crate) fn end_of_a_chain(mutant: Mutant) -> Result<(), String> {
    let graph = of_edges(5, &[(0, 1), (1, 2)]);
    for leader in [0, 2] {
        let came = ends(&graph, Some(leader), mutant)?;
        ensure(came.leader == Some(1) && came.resigned, || format!("{:?} leads", came.leader))?;
    }
    Ok(())
}

/// The leader reads every member and no member reads it, or the reverse. In the last graph it reads a majority, one
/// member of which does not read it.
pub(crate) fn one_way(mutant: Mutant) -> Result<(), String> {
    for members in [3, 5] {
        for hears in [true, false] {
            let mut graph = complete_graph(members);
            graph[0].fill(hears);
            graph.iter_mut().skip(1).for_each(|row| row[0] = !hears);
            let came = ends(&graph, Some(0), mutant)?;
            ensure(came.leader != Some(0) && came.resigned, || format!("{:?} leads", came.leader))?;
        }
    }
    let mut graph = of_edges(5, &[(0, 1), (1, 2)]);
    graph[0][2] = true;
    let came = ends(&graph, Some(0), mutant)?;
    ensure(came.leader == Some(1), || format!("{:?} leads", came.leader))
}

/// In a ring of five, the two members that do not reach the leader report that they are cut off until the links
/// recover. The others do not.
pub(crate) fn left_out(mutant: Mutant) -> Result<(), String> {
    let mut world = led_by(5, 1, mutant)?;
    let cut_off = |world: &mut World| -> Vec<usize> {
        (0..5).filter(|n| world.heartbeat(*n).is_some_and(|heartbeat| heartbeat.is_cut_off())).collect()
    };
    cut_to(&mut world, &of_edges(5, &[(0, 1), (1, 2), (2, 3), (3, 4), (4, 0)]));
    for (steps, expected) in [(4 * TIMEOUT, &[3, 4][..]), (20 * TIMEOUT, &[3, 4])] {
        world.run(steps);
        let cut = cut_off(&mut world);
        ensure(cut == expected, || format!("{cut:?} are cut off"))?;
    }
    cut_to(&mut world, &complete_graph(5));
    world.run(TIMEOUT);
    let cut = cut_off(&mut world);
    ensure(cut.is_empty(), || format!("{cut:?} are cut off from nobody"))
}

/// One of three members has crashed, and the link between the others works and fails in turns of up to 24 s, for hours,
/// with a longest timeout of 2 s. The leader continues when it reaches the other member again, except at most eight
/// times an hour.
pub(crate) fn flapping_link(mutant: Mutant) -> Result<(), String> {
    const HOURS: u64 = 40;
    const HOUR: u64 = 1800 * TIMEOUT;
    let mut random = 0x2545_f491_4f6c_dd1d_u64;
    let (mut worst, mut turns, mut returns) = (0, 0_u64, 0);
    for _ in 0..HOURS {
        let mut world = led_by(3, 0, mutant)?;
        world.crash(2);
        let begin = world.now;
        while world.now - begin < HOUR {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let works = turns % 2 == 1;
            world.link(0, 1, works);
            world.link(1, 0, works);
            world.run(1 + (random >> 33) % (12 * TIMEOUT));
            turns += 1;
        }
        world.check_rules()?;
        let mut changes = world.changes_since(begin);
        changes.sort_by_key(|(_, at, _)| *at);
        let leads = |(n, _, change): &(usize, u64, Change)| {
            matches!(change, Change::Leader { process, .. } if usize::from(process.0) == *n).then_some(*n)
        };
        let reigns: Vec<usize> = std::iter::once(0).chain(changes.iter().filter_map(leads)).collect();
        let moves = reigns.windows(2).filter(|pair| pair[0] != pair[1]).count();
        worst = worst.max(moves);
        returns += reigns.len() - 1 - moves;
    }
    println!(
        "{turns} turns in {HOURS} hours: the leader went on {returns} times and moved {worst} times in an hour at most"
    );
    ensure(returns > 1000, || format!("it went on {returns} times only"))?;
    ensure(worst <= 8, || format!("the leader moved {worst} times in an hour"))
}

/// The only candidate reads all beats, but its links to the others break whenever it leads. Each time it resigns. From
/// the third time on it pauses, at first for longer each time.
pub(crate) fn broken_streams(mutant: Mutant) -> Result<(), String> {
    let mut world = led_by(3, 0, mutant)?;
    // The others are not willing to lead, so process 0 is the only candidate.
    for other in 1..3 {
        world.heartbeat(other).into_iter().for_each(|heartbeat| heartbeat.stand(false));
    }
    world.run(4 * TIMEOUT);
    let begin = world.now;
    let reigns = world.reigns();
    // The links of process 0 recover whenever process 0 does not lead, and break when it leads.
    for _ in 0..400 * TIMEOUT {
        let leads = leaders(&world, 3) == [0];
        for other in 1..3 {
            world.heartbeat(0).into_iter().for_each(|heartbeat| heartbeat.link(ProcessId(other), !leads));
        }
        world.step();
    }
    let reigns = world.reigns() - reigns;
    println!("{reigns} reigns in {} longest timeouts", (world.now - begin) / TIMEOUT);
    ensure(reigns >= 3, || format!("{reigns} reigns only"))?;
    ensure(reigns <= 60, || format!("{reigns} reigns in 400 longest timeouts"))?;
    world.check_rules()
}
