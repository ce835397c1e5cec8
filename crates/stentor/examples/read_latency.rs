//! Measures the cost of reads: `read_latency FABRIC WAIT [ROUNDS]`, where the fabric is `shm` or `roce`, and the wait
//! mode is `poll`, `adaptive` or `block`.
//!
//! Three processes of this program run the nodes, whose machines have their own threads. In each round, this process
//! reads one value at a time with a [`LocalClient`]: ordered, at the leader, and at any member. It also measures the
//! parts of a read at the leader: two hand-overs of a value between threads, a write to a fourth process and a write
//! back on the bare fabric, and a write with its completion. These six take turns, so all are measured on a machine that
//! is equally busy. Then this process runs ordered reads, and reads at the leader, with 256 reads in flight. The last
//! lines show the medians.

use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stentor::runtime::{ClusterFabric, RoceFabric, ShmFabric};
use stentor::{Cluster, Consistency, Group, LocalClient, Outcome, Turn};
use stentor_testutil::TempDir;

#[path = "common/bare_writes.rs"]
mod bare_writes;
#[path = "common/hand_overs.rs"]
mod hand_overs;
#[path = "common/nodes.rs"]
mod nodes;

use bare_writes::BareWrites;
use hand_overs::HandOvers;
use nodes::{Nodes, Result, configuration, wait_mode};

/// Number of reads of each kind in a round, one at a time.
const READS: usize = 500;
/// Number of reads of each kind in a round, with many in flight.
const MANY: usize = 20_000;
/// Number of reads in flight while [`MANY`] reads are measured.
const UNDER_WAY: usize = 256;
const QUERY: [u8; 16] = [7; 16];
const USAGE: &str = "usage: read_latency shm|roce poll|adaptive|block [ROUNDS]";

struct Reads {
    client: LocalClient,
    group: Group,
}

impl Reads {
    /// Makes `times` reads with up to `under_way` in flight, and waits for all answers.
    fn read(&mut self, how: Consistency, times: usize, under_way: usize) -> Result<()> {
        let (mut begun, mut done) = (0, 0);
        while done < times {
            while begun < times && begun - done < under_way {
                match self.client.submit_read(self.group, &QUERY, how) {
                    Ok(_) => begun += 1,
                    Err(_) => break,
                }
            }
            let mut failed = None;
            let turn = self.client.turn(|_, outcome| match outcome {
                Outcome::Applied(_) => done += 1,
                other => failed = Some(format!("{other:?}")),
            })?;
            if let Some(failed) = failed {
                return Err(failed.into());
            }
            if let (Turn::Idle(until), true) = (turn, done < times) {
                let longest = Timespec::try_from(until.saturating_duration_since(Instant::now()))?;
                poll(&mut [PollFd::new(&self.client, PollFlags::IN)], Some(&longest))?;
            }
        }
        Ok(())
    }
}

fn measure<F: ClusterFabric>(fabric: &str, mode: &str, rounds: usize) -> Result<()> {
    let wait = wait_mode(mode)?;
    let (directory, bare) = (TempDir::new(), TempDir::new());
    let path = configuration(fabric, &directory)?;
    let nodes = Nodes::start(&path, mode)?;
    let cluster = Cluster::load(&path)?.in_directory(&*directory);
    let group = cluster.group("g1")?;
    let mut reads = Reads { client: cluster.client().wait(wait).connect_local()?, group };
    let mut hand_overs = HandOvers::start(wait);
    let mut bare = BareWrites::<F>::start(fabric, &bare, mode)?;
    let kinds = [("Ordered", Consistency::Ordered), ("Leader", Consistency::Leader), ("Local", Consistency::Local)];
    let mut singles: [Vec<Duration>; 6] = Default::default();
    let mut rates: [Vec<f64>; 2] = Default::default();
    for round in 0..=rounds {
        for _ in 0..READS {
            let mut since = Instant::now();
            let mut lap = || std::mem::replace(&mut since, Instant::now()).elapsed();
            // Reads separate the two writes, so the other process is as idle before the second one as before the first.
            reads.read(Consistency::Ordered, 1, 1)?;
            let ordered = lap();
            bare.completed()?;
            let completed = lap();
            reads.read(Consistency::Leader, 1, 1)?;
            let leader = lap();
            hand_overs.two()?;
            let handed = lap();
            reads.read(Consistency::Local, 1, 1)?;
            let local = lap();
            bare.there_and_back()?;
            let taken = [ordered, leader, local, handed, lap(), completed];
            // The first round is a warm-up.
            if round > 0 {
                singles.iter_mut().zip(taken).for_each(|(times, taken)| times.push(taken));
            }
        }
        for ((_, how), rates) in kinds.iter().zip(&mut rates) {
            let since = Instant::now();
            reads.read(*how, MANY, UNDER_WAY)?;
            rates.extend((round > 0).then(|| MANY as f64 / since.elapsed().as_secs_f64()));
        }
    }
    let names = kinds.iter().map(|(name, _)| *name).chain(["two hand-overs", "there and back", "completion"]);
    let mut medians = Vec::new();
    for (name, times) in names.zip(&mut singles) {
        times.sort_unstable();
        let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e6;
        println!("{fabric} {mode} {name:<16} p50 {:>7.2} us, p99 {:>8.2} us, {} times", at(50), at(99), times.len());
        medians.push(at(50));
    }
    let parts: f64 = medians[3..].iter().sum();
    println!("{fabric} {mode} at the leader: {:.2} of its parts, which take {parts:.2} us", medians[1] / parts);
    let [ordered, leader] = rates.map(|mut rates| {
        rates.sort_unstable_by(f64::total_cmp);
        rates[rates.len() / 2]
    });
    println!(
        "{fabric} {mode} {UNDER_WAY} under way: {ordered:.0} ordered reads/s, {leader:.0} at the leader: {:.2}",
        leader / ordered
    );
    drop(nodes);
    Ok(())
}

/// Parses the number of rounds.
fn count(words: &[&str]) -> Result<usize> {
    match words {
        [] => Ok(20),
        [rounds] => Ok(rounds.parse()?),
        _ => Err(USAGE.into()),
    }
}

fn main() -> Result<()> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["node", path, name, mode] => Nodes::run(path, name, mode),
        ["echo", "shm", directory, mode] => bare_writes::echo::<ShmFabric>("shm", directory, mode),
        ["echo", "roce", directory, mode] => bare_writes::echo::<RoceFabric>("roce", directory, mode),
        ["shm", mode, ref rounds @ ..] => measure::<ShmFabric>("shm", mode, count(rounds)?),
        ["roce", mode, ref rounds @ ..] => measure::<RoceFabric>("roce", mode, count(rounds)?),
        _ => Err(USAGE.into()),
    }
}
