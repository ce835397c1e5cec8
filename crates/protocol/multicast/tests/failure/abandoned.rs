//! A client dies while it writes, and a successor may use its client id. Half-written messages are delivered everywhere
//! or nowhere, and no process waits for them for ever.

use stentor_multicast::{ClientId, Mutant, Variant};

use super::cluster::Cluster;
use super::net::Wire;
use super::walk::Run;

/// The client that dies.
const DEAD: u16 = 0;
const ALIVE: u16 = 1;

/// Runs one simulation. The error is the violated property.
fn run(sizes: &[usize], mutant: Mutant, seed: u64) -> Result<(), String> {
    let mut run = Run::new(sizes, Variant::V2, mutant, seed);
    let members = run.cluster.members.len() as u16;
    let groups: Vec<u16> = (0..sizes.len() as u16).collect();
    for _ in 0..1 + run.random.below(run.window.min(3)) {
        let (to, reached) = (if run.random.one_in(2) { &groups } else { &groups[..1] }, run.random.below(1 << members));
        run.cluster.write_some(DEAD, to, |member| reached >> member & 1 == 1);
    }
    // Members give the client up one by one, or receive the hello of a successor, or do the first and then the second.
    let unsucceeded = run.random.one_in(2);
    let mut ungreeted: Vec<u16> = (0..members).collect();
    let (mut campaigns, mut cuts, mut messages) = (2, 2, 2);
    for _ in 0..400 {
        match run.random.below(160) {
            0..=7 if !ungreeted.is_empty() => {
                let process = ungreeted.swap_remove(run.random.below(ungreeted.len() as u64) as usize);
                let left = run.random.below(4) as usize;
                leave(&mut run, process, left, unsucceeded)?;
            }
            8..=9 if messages > 0 => messages -= u32::from(run.cluster.submit(ALIVE, &groups, None)),
            10 if campaigns > 0 => {
                campaigns -= 1;
                let process = run.any();
                run.cluster.campaign(process, None)?;
            }
            11 if cuts > 0 => {
                cuts -= 1;
                let (a, b) = (run.any(), run.any());
                if a != b {
                    run.cluster.reconnect(a, b)?;
                }
            }
            12..=50 => {
                let process = run.any();
                run.cluster.tick(process)?;
            }
            _ => drop(run.take(None)?),
        }
        run.check()?;
    }
    for process in ungreeted {
        leave(&mut run, process, 0, unsucceeded)?;
    }
    run.cluster.submit(ALIVE, &groups, None);
    run.cure()
}

fn leave(run: &mut Run, process: u16, left: usize, unsucceeded: bool) -> Result<(), String> {
    if unsucceeded || run.random.one_in(4) {
        run.cluster.give_up(DEAD, process, left)?;
    }
    if unsucceeded { Ok(()) } else { run.cluster.succeed(DEAD, process, left) }
}

const CLUSTERS: [&[usize]; 3] = [&[3], &[1, 3], &[3, 3]];

#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn half_written_messages_of_a_dead_client_block_nobody() {
    for sizes in CLUSTERS {
        for seed in 0..2000 {
            run(sizes, Mutant::None, seed).unwrap_or_else(|flaw| panic!("{sizes:?} seed {seed}: {flaw}"));
        }
    }
}

/// Processes all messages that can be received from the channels for which `open` returns true.
fn rest(cluster: &mut Cluster, open: impl Fn(Wire) -> bool) {
    let mut any = true;
    while std::mem::take(&mut any) {
        for wire in cluster.net.filled().into_iter().filter(|wire| open(*wire)) {
            any |= cluster.is_up(wire.receiver()) && cluster.take(wire, None).expect("the processes accept the input");
        }
    }
}

/// A message is held by a majority, so it was reported to its client as synced. One member of that majority loses its
/// memory. The other one is partitioned for as long as the leader looks for the message. The partitioned member had
/// promised the ballot that admitted the member without memory, and sent the message with its promise. So the leader
/// has the message.
#[test]
fn synced_message_is_delivered_although_one_holder_forgets_and_one_is_partitioned() {
    let (leader, forgets, cut_off) = (0, 1, 2);
    let mut cluster = Cluster::new(&[3], 2, (Variant::V2, 4, Mutant::None));
    cluster.write_some(DEAD, &[0], |member| member != leader);
    cluster.write_some(DEAD, &[0], |member| member == leader);
    rest(&mut cluster, |_| true);
    cluster.crash(forgets);
    cluster.restart(forgets).expect("the processes accept the input");
    rest(&mut cluster, |_| true);
    for greeted in [leader, forgets] {
        cluster.succeed(DEAD, greeted, 0).expect("the processes accept the input");
    }
    for _ in 0..40 {
        cluster.tick(leader).expect("the processes accept the input");
        rest(&mut cluster, |wire| !wire.touches(cut_off));
    }
    cluster.succeed(DEAD, cut_off, 0).expect("the processes accept the input");
    for _ in 0..40 {
        (0..3).for_each(|member| cluster.tick(member).expect("the processes accept the input"));
        rest(&mut cluster, |_| true);
    }
    for member in &cluster.members {
        let replica = member.replica.as_ref().expect("the member is up");
        assert_eq!((replica.first_held(ClientId(DEAD)), replica.delivered()), (2, 2), "no message became a no-op");
    }
}

/// The mutant is a leader that considers a no-op settled before any other member has processed it.
#[cfg(feature = "plants")]
#[test]
fn mutant_of_no_ops_that_count_unsettled_is_found() {
    let found = (0..30_000).find_map(|seed| run(&[3], Mutant::VoidAtOnce, seed).err().map(|flaw| (seed, flaw)));
    let Some((seed, flaw)) = found else { panic!("the mutant is not found") };
    eprintln!("walk {:?}: found with seed {seed}: {flaw}", Mutant::VoidAtOnce);
}
