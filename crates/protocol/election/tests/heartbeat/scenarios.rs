//! Scenarios that pass without a mutant, and fail with the mutant that each is written for.

use stentor_election::{Change, Election, Mutant};
use stentor_fabric::ProcessId;

use crate::world::{Setup, World};

pub(crate) type Scenario = fn(Mutant) -> Result<(), String>;

pub(crate) fn ensure(good: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if good { Ok(()) } else { Err(what()) }
}

/// Checks that no view has changed since `step`.
fn quiet_since(world: &World, step: u64) -> Result<(), String> {
    let changes = world.changes_since(step);
    ensure(changes.is_empty(), || format!("{} changes, first {:?}", changes.len(), &changes[..changes.len().min(4)]))?;
    world.check_rules()
}

/// Returns the number of steps in which a replacement must finish: the last beat is read, the silence passes, a poll
/// detects it, the doubts are read, the claim is read.
pub(crate) fn bound(setup: &Setup, timeout: u64) -> u64 {
    timeout + 4 * setup.interval + 3 * setup.latency as u64
}

pub(crate) fn cold_start(mutant: Mutant) -> Result<(), String> {
    let mut world = World::empty(Setup::new(3, mutant));
    world.start(1);
    world.start(2);
    world.run(20);
    world.start(0);
    world.run(200);
    let leader = world.agreed();
    ensure(leader == Some((1, ProcessId(0))), || format!("the first leader is {leader:?}"))?;
    ensure(world.reigns() == 1, || format!("{} reigns", world.reigns()))?;
    world.check_rules()
}

pub(crate) fn own_stall(mutant: Mutant) -> Result<(), String> {
    let mut world = World::settled(Setup::new(3, mutant));
    let begin = world.now;
    world.stop_for(2, 3_000_000);
    world.run(100);
    world.jump_clock(2, 3_000_000);
    world.stop_for(2, 0);
    world.run(100);
    // All clocks jump at once, as on one host that was suspended.
    (0..3).for_each(|n| world.jump_clock(n, 5_000_000));
    world.run(200);
    quiet_since(&world, begin)
}

pub(crate) fn restarted_counters(mutant: Mutant) -> Result<(), String> {
    let mut world = World::settled(Setup::new(3, mutant));
    world.crash(2);
    world.run(5);
    world.start(2);
    world.run(20);
    // p2's counter is far below its earlier value, and p1 needs p2 alive for a majority.
    world.crash(0);
    world.until_agreed(200)?;
    world.check_rules()
}

pub(crate) fn returning_beats(mutant: Mutant) -> Result<(), String> {
    let mut world = World::settled(Setup::new(5, mutant));
    world.stop_for(0, u64::MAX / 2);
    world.run(200);
    ensure(world.leader(4).map(|l| l.1) == Some(ProcessId(1)), || format!("{:?}", world.leader(4)))?;
    // p1 crashes. p0 publishes a single beat just before that crash is detected.
    world.crash(1);
    world.run(2);
    world.stop_for(0, 0);
    world.step();
    world.stop_for(0, u64::MAX / 2);
    let begin = world.now;
    while world.leader(2).map(|l| l.1) != Some(ProcessId(2)) {
        world.step();
        ensure(world.now - begin < 8, || "p0 is waited for after a single beat".into())?;
    }
    world.check_rules()
}

pub(crate) fn jitter(mutant: Mutant) -> Result<(), String> {
    let mut world = World::settled(Setup::new(3, mutant));
    let begin = world.now;
    let reigns = world.reigns();
    // Intervals are up to 12, and the shortest timeout is 4. First each interval is longer than the one before, then
    // they vary.
    for round in 0..2000_u64 {
        world.pace(0, if round < 300 { 1 + round / 25 } else { 1 + (round * round + 3 * round) % 12 });
        world.run(6);
    }
    ensure(world.reigns() == reigns, || format!("{} reigns since step {begin}", world.reigns()))?;
    world.check_rules()
}

pub(crate) fn pausing_leaders(mutant: Mutant) -> Result<(), String> {
    let mut world = World::settled(Setup::new(3, mutant));
    for _ in 0..60 {
        if let Some((_, leader)) = world.agreed() {
            world.stop_for(leader.0.into(), 24);
        }
        world.run(150);
    }
    // Each wrong suspicion of a member doubles its timeout. The timeouts 4, 8 and 16 are shorter than a pause of 24
    // steps, and 32 is longer, so each member may be suspected three times.
    ensure(world.reigns() <= 10, || format!("{} reigns", world.reigns()))?;
    world.check_rules()
}

pub(crate) fn broken_link(mutant: Mutant) -> Result<(), String> {
    let mut world = World::settled(Setup::new(3, mutant));
    let begin = world.now;
    world.link(0, 1, false);
    world.link(1, 0, false);
    world.run(2000);
    quiet_since(&world, begin)
}

pub(crate) fn leader_restarts(mutant: Mutant) -> Result<(), String> {
    let mut world = World::settled(Setup::new(3, mutant));
    world.crash(0);
    world.step();
    world.start(0);
    world.run(100);
    let leader = world.agreed();
    ensure(leader.is_some_and(|(epoch, _)| epoch > 1), || format!("{leader:?} after its restart"))?;
    world.check_rules()
}

pub(crate) fn blind_candidate(mutant: Mutant) -> Result<(), String> {
    let mut world = World::settled(Setup::new(5, mutant));
    world.crash(0);
    for n in 3..5 {
        world.link(n, 1, false);
    }
    // p1 reads every member, and two of them do not read p1. It publishes that it sees a majority, which it does not
    // reach, so it does not claim leadership. p2 waits for p1, and p3 and p4 wait for p2.
    world.run(300);
    for n in 2..5 {
        let leader = world.leader(n);
        ensure(leader.is_some_and(|(_, leader)| leader.0 >= 2), || format!("p{n} sees {leader:?}"))?;
    }
    world.check_rules()
}

pub(crate) fn lowest_returns(mutant: Mutant) -> Result<(), String> {
    let mut world = World::settled(Setup::new(3, mutant));
    world.crash(0);
    world.run(100);
    let (begin, reigns) = (world.now, world.reigns());
    world.start(0);
    world.run(500);
    ensure(world.reigns() == reigns, || format!("{:?}", world.changes_since(begin)))?;
    let leader = world.agreed();
    ensure(leader == Some((2, ProcessId(1))), || format!("{leader:?}"))?;
    world.check_rules()
}

pub(crate) fn lonely_island(mutant: Mutant) -> Result<(), String> {
    let mut world = World::settled(Setup::new(3, mutant));
    let reigns = world.reigns();
    world.isolate(2, false);
    world.run(1000);
    world.isolate(2, true);
    world.run(200);
    ensure(world.reigns() == reigns, || "a process without a majority came forward".into())?;
    let leader = world.agreed();
    ensure(leader == Some((1, ProcessId(0))), || format!("{leader:?}"))?;
    world.check_rules()
}

pub(crate) fn nominee_leads_under_its_own_epoch(mutant: Mutant) -> Result<(), String> {
    let mut world = World::settled(Setup::new(3, mutant));
    let handed = world.heartbeat(0).map(|heartbeat| heartbeat.hand_over(ProcessId(1)));
    ensure(handed == Some(Ok(())), || format!("{handed:?}"))?;
    world.step();
    let took = 1 + world.until_agreed(20)?;
    ensure(took <= 6, || format!("{took} steps: as if by timeout"))?;
    let last = world.log(1).last().map(|(_, change)| *change);
    ensure(last == Some(Change::Leader { epoch: 3, process: ProcessId(1) }), || format!("{last:?}"))?;
    world.check_rules()
}

pub(crate) fn wrong_suspicion_then_death(mutant: Mutant) -> Result<(), String> {
    for pause in [0, 24] {
        let mut setup = Setup::new(3, mutant);
        (setup.timeout_min, setup.timeout_max) = (200, 400);
        let mut world = World::settled(setup);
        let break_links = |world: &mut World| {
            for n in 1..3 {
                world.heartbeat(n).into_iter().for_each(|heartbeat| heartbeat.unreachable(ProcessId(0)));
            }
        };
        // The leader's connections break although it is alive, or it pauses for longer than a timeout.
        if pause == 0 {
            break_links(&mut world);
        } else {
            world.stop_for(0, 1200);
            world.run(1200);
        }
        world.run(600);
        // The present leader hands leadership back to p0, and p0 crashes.
        let leader = world.agreed().ok_or("nobody leads")?.1;
        if leader != ProcessId(0) {
            let back = world.heartbeat(leader.index()).map(|heartbeat| heartbeat.hand_over(ProcessId(0)));
            ensure(back == Some(Ok(())), || format!("{back:?}"))?;
            world.run(20);
        }
        ensure(world.agreed().is_some_and(|(_, leader)| leader.0 == 0), || "p0 does not lead again".into())?;
        world.crash(0);
        break_links(&mut world);
        let took = world.until_agreed(1000)?;
        // A few intervals of silence suffice; the timeout does not have to pass.
        ensure(took <= 48, || format!("{took} steps, as if by timeout"))?;
        world.check_rules()?;
    }
    Ok(())
}
