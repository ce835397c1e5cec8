//! Compares the two threads on which a node can apply commands: `apply_threads [ROUNDS]`. Three nodes and a client run
//! in this process, on shared memory. Each round measures both threads, one after the other: the rate of commands with
//! a full window, and the latency of single commands until a majority has delivered them. The last lines show the
//! medians.

use std::io::{self, Read};
use std::path::Path;
use std::time::{Duration, Instant};

use stentor::runtime::{Client, ClientId, ClusterRuntime, GroupId, Housekeeper, ShmFabric, client_round};
use stentor::{ApplyThread, Cluster, ClusterConfig, Context, NodeHandle, Reply, StateMachine, Stateless, WaitMode};
use stentor_fabric::Backoff;
use stentor_testutil::TempDir;

const CONFIG: &str = "cluster = \"applythreads\"\nfabric = \"shm\"\n[election]\nkind = \"heartbeat\"\n[[group]]\nid = \"g\"\n\
    process = [ { id = \"a\", address = \"127.0.0.1:7101\" }, { id = \"b\", address = \"127.0.0.1:7102\" }, \
    { id = \"c\", address = \"127.0.0.1:7103\" } ]\n";
const FLOOD: u64 = 100_000;
const SINGLE: usize = 2000;

/// A cheap machine: it replies with a hash of all commands so far.
#[derive(Default)]
struct Sum(u64);

impl StateMachine for Sum {
    type Frozen = Stateless;

    fn apply(&mut self, _: &Context<'_>, command: &[u8], reply: &mut Reply) {
        self.0 = command.iter().fold(self.0, |sum, byte| sum.wrapping_mul(31).wrapping_add(u64::from(*byte)));
        reply.extend(&self.0.to_le_bytes());
    }

    fn freeze(&self) -> Stateless {
        Stateless
    }

    fn restore(&mut self, _: &mut dyn Read) -> io::Result<()> {
        Ok(())
    }
}

struct Bed {
    nodes: Vec<NodeHandle<Sum>>,
    client: Client<ShmFabric>,
    backoff: Backoff,
    housekeeper: Housekeeper,
}

impl Bed {
    fn start(directory: &Path, on: ApplyThread) -> Result<Bed, Box<dyn std::error::Error>> {
        let members = ["a", "b", "c"].into_iter().zip(["127.0.0.1:7101", "127.0.0.1:7102", "127.0.0.1:7103"]);
        let cluster = Cluster::builder("applythreads").group("g", members).directory(directory).build()?;
        let spawn = |name| cluster.node(name, Sum::default()).apply_on(on).spawn();
        let nodes = ["a", "b", "c"].map(spawn).into_iter().collect::<Result<Vec<_>, _>>()?;
        let plan = ClusterRuntime::new(ClusterConfig::parse(Path::new("same.toml"), CONFIG)?)?;
        let client = plan.client(ClientId(0), directory.to_owned())?;
        let mut bed =
            Bed { nodes, client, backoff: Backoff::new(WaitMode::ADAPTIVE), housekeeper: Housekeeper::default() };
        while !bed.client.reaches_all(&[GroupId(0)]) {
            bed.round(false)?;
        }
        Ok(bed)
    }

    fn round(&mut self, submitted: bool) -> Result<(), Box<dyn std::error::Error>> {
        client_round(&mut self.client, &mut self.backoff, &mut self.housekeeper, submitted)?;
        Ok(())
    }

    /// Returns the rate of commands per second, measured until all members have applied them.
    fn flood(&mut self) -> Result<f64, Box<dyn std::error::Error>> {
        let before = self.applied()?;
        let (since, mut sent) = (Instant::now(), 0);
        while sent < FLOOD || self.client.outstanding() > 0 {
            let mut any = false;
            while sent < FLOOD && self.client.submit(&[GroupId(0)], &[7; 64], false).is_ok() {
                (sent, any) = (sent + 1, true);
            }
            self.round(any)?;
        }
        while self.applied()? < before + FLOOD {}
        Ok(FLOOD as f64 / since.elapsed().as_secs_f64())
    }

    fn applied(&self) -> Result<u64, Box<dyn std::error::Error>> {
        let counts = self.nodes.iter().map(|node| node.status().map(|status| status.commands));
        Ok(counts.collect::<Result<Vec<_>, _>>()?.into_iter().min().unwrap_or(0))
    }

    /// Returns the median time until a majority has delivered a command.
    fn single(&mut self) -> Result<Duration, Box<dyn std::error::Error>> {
        let mut times = Vec::with_capacity(SINGLE);
        for _ in 0..SINGLE {
            let since = Instant::now();
            self.client.submit(&[GroupId(0)], &[7; 64], true)?;
            while self.client.outstanding() > 0 {
                self.round(false)?;
            }
            times.push(since.elapsed());
        }
        times.sort_unstable();
        Ok(times[SINGLE / 2])
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(5), |rounds| rounds.parse())?;
    let mut all = [ApplyThread::Own, ApplyThread::Protocol].map(|on| (on, Vec::new(), Vec::new()));
    for _ in 0..rounds {
        for (on, rates, latencies) in &mut all {
            let directory = TempDir::new();
            let mut bed = Bed::start(&directory, *on)?;
            bed.flood()?;
            let (rate, latency) = (bed.flood()?, bed.single()?);
            println!("{on:?}: {rate:.0} commands/s, {latency:?} each");
            rates.push(rate as u64);
            latencies.push(latency);
            for node in bed.nodes {
                node.stop()?;
            }
        }
    }
    for (on, mut rates, mut latencies) in all {
        rates.sort_unstable();
        latencies.sort_unstable();
        println!("median {on:?}: {} commands/s, {:?} each", rates[rates.len() / 2], latencies[latencies.len() / 2]);
    }
    Ok(())
}
