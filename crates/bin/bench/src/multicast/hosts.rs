//! `stentor bench bound`: the bounds of a cluster on several hosts, without the cluster.
//!
//! The processes are the members of a group and one client, in network namespaces of one host. They send the datagrams
//! of [`Chain`] and the records of [`Stream`] between the given addresses. As in every bench, they share memory, but
//! use it only for the phases, the times and the counts of received packets. A message is done when the client knows
//! that a majority has delivered it, as in `stentor bench cluster`.

use std::io;

use stentor_fabric::memory::Ordering;
use stentor_support::Failure;
use stentor_support::args::{Network, name_of};
use stentor_wire::PATH_MTUS;

use super::super::datagrams::{AROUND, Datagrams, Ring, Sockets};
use super::super::environment::Environment;
use super::super::packets::{self, Packets};
use super::super::pause::mode;
use super::super::report::{Report, Row};
use super::super::samples::Samples;
use super::super::shared_area::{Command, NS, Shape};
use super::super::worker_spec::{Cluster, Hosts, Part, Setting, Task, Worker, broken};
use super::super::workers::Workers;
use super::Kind;
use super::chain::{Chain, Until, steps};
use super::stream::Stream;
use crate::args::{BenchBound, Pinning, Protocol};

/// Length of the headers that [`AROUND`] does not contain, in bytes: IPv4, UDP, and the immediate in the longest RoCEv2
/// headers of a WRITE.
const BELOW: usize = 20 + 8 + 4;
/// Outstanding payload in the smaller of two windows, in bytes.
const IN_CACHES: u32 = 1 << 20;
/// Ratio of measured messages to warm-up messages.
const WARM_UP: u64 = 4;

/// Measures one row.
pub(in super::super) fn run(args: &BenchBound) -> Result<Report, Failure> {
    let cluster = cluster(args)?;
    let Some(mtu) = path_mtu(args.mtu as usize) else {
        return Err(Failure::usage(
            format!("an MTU of {}", args.mtu),
            "--mtu",
            "choose one that is large enough for RoCEv2",
        ));
    };
    let hosts = Hosts { cluster, addresses: args.at.iter().map(|at| at.address).collect(), mtu };
    let pinning = format!("{} processes at the addresses of --at, not pinned", cluster.processes());
    let environment = Environment::new("roce", name_of(&args.wait), pinning);
    let before = args.iterations / WARM_UP;
    let processes = cluster.processes();
    let shape = Shape { processes, lines: packets::lines(processes), samples: (args.iterations + before) as usize };
    let namespace = |process: usize| args.at[process].namespace.as_deref();
    let (places, traffic) = (vec![None; processes], |_| Network::default());
    let mut workers = Workers::start_in(Part::Hosts(hosts), shape, &places, traffic, namespace)?;
    let (bytes, client) = (args.size as usize, cluster.members());
    let command = |kind: Kind, window: u32, warmup, iterations| Command {
        kind: kind.number(),
        bytes: bytes as u64,
        warmup,
        iterations,
        window: window.into(),
        extra: 0,
    };
    if args.window == 1 {
        workers.run(command(Kind::Chain, 1, before, args.iterations))?;
        let mut samples = Samples::plain();
        let measured = &workers.area.samples(client)[before as usize..(before + args.iterations) as usize];
        samples.round(measured.iter().map(|latency| latency.load(Ordering::Relaxed)));
        let row = Row::alone("bound, one outstanding", bytes, 1).with_samples(&samples);
        return Ok(Report::of(environment, vec![row.with_rate(1e6 / samples.summary().avg)]));
    }
    let mut rate: f64 = 0.0;
    for window in windows(args.window, args.size) {
        workers.run(command(Kind::Stream, window, 0, before))?;
        workers.run(command(Kind::Stream, window, 0, args.iterations))?;
        let ns = workers.area.results(client)[NS].load(Ordering::Relaxed);
        rate = rate.max(args.iterations as f64 * 1e9 / ns.max(1) as f64);
    }
    let row = Row::alone(format!("bound, {} outstanding", args.window), bytes, 1).with_rates(&[rate]);
    Ok(Report::of(environment, vec![Row { iterations: args.iterations, ..row }]))
}

/// Returns the windows to measure; the better result counts. Long messages are faster with a smaller window, because
/// fewer of them occupy the caches.
fn windows(window: u32, bytes: u32) -> impl Iterator<Item = u32> {
    let fewer = (IN_CACHES / bytes).max(2);
    [Some(window), (fewer < window).then_some(fewer)].into_iter().flatten()
}

/// Returns a cluster of one group and its client.
fn cluster(args: &BenchBound) -> Result<Cluster, Failure> {
    let (replicas, remedy) = (args.at.len() - 1, "name 1 to 15 members, and then their client");
    if !(1..16).contains(&replicas) {
        return Err(Failure::usage(format!("{replicas} members"), "--at", remedy));
    }
    let replicas = replicas as u16;
    let BenchBound { window, size, wait, .. } = *args;
    let setting = Setting { window, bytes: size, wait, pin: Pinning::None, network: None };
    Ok(Cluster { groups: 1, replicas, dest: 1, clients: 1, variant: Protocol::V2, setting })
}

/// Returns the largest payload of a RoCEv2 packet over links with this MTU, computed as in the fabric `roce`.
fn path_mtu(mtu: usize) -> Option<usize> {
    PATH_MTUS.iter().map(|payload| usize::from(*payload)).filter(|payload| payload + AROUND + BELOW <= mtu).max()
}

/// Runs one of the processes.
pub(in super::super) fn process(worker: Worker<'_>, hosts: &Hosts) -> Result<(), Failure> {
    let Hosts { cluster, addresses, mtu } = hosts;
    let mode = mode(cluster.setting.wait);
    let ring = Ring { addresses: addresses.clone(), mtu: *mtu, steps: steps(cluster), mode };
    let mut sockets = Sockets::open(ring, worker.spec.process)?;
    worker.serve(|task| perform(task, cluster, &mut sockets).map_err(broken("wait")))
}

fn perform(task: &Task<'_>, cluster: &Cluster, sockets: &mut Sockets) -> io::Result<()> {
    let (task, until) = (*task, Until::Known);
    if Kind::of(task.command.kind) == Kind::Chain {
        return Chain { task, cluster, until, way: Datagrams::new(sockets) }.run();
    }
    let (end, mode) = ((task.me, task.base()), mode(cluster.setting.wait));
    let lane = Packets::new(task.area, sockets, end, (steps(cluster), 1), mode);
    Stream { task, cluster, until, lane }.run()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_messages_have_a_smaller_window_too() {
        let of = |window, bytes| windows(window, bytes).collect::<Vec<_>>();
        assert_eq!((of(1024, 64), of(1024, 1024)), (vec![1024], vec![1024]));
        assert_eq!((of(1024, 65_536), of(8, 1 << 20)), (vec![1024, 16], vec![8, 2]));
    }

    #[test]
    fn packets_are_as_long_as_those_of_roce() {
        let links = [(1500, 1024), (4160, 4096), (4159, 2048), (9000, 4096), (576, 512), (575, 256)];
        for (mtu, payload) in links {
            assert_eq!(path_mtu(mtu), Some(payload), "{mtu}");
        }
        assert_eq!(path_mtu(300), None);
    }
}
