//! Measures the cost of a reply: `client_latency FABRIC WAIT [ROUNDS]`, where the fabric is `shm` or `roce`, and the
//! wait mode is `poll`, `adaptive` or `block`.
//!
//! Three processes of this program run the nodes, whose machines have their own threads. This process sends one command
//! at a time. It uses three clients: the protocol's client, which gets no reply and waits until a majority of the group
//! has delivered the command, and a [`LocalClient`] and a [`Client`], which wait for the reply. It also passes a value
//! to another thread and back, which takes two hand-overs. These four take turns, so all are measured on a machine that
//! is equally busy. The last lines show the medians. They also compare the latency of each of the last two clients with
//! the latency without a reply plus the necessary hand-overs: two for a `LocalClient`, to the apply thread and back, and
//! four for a `Client`.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stentor::runtime::{
    self, BindConfig, ClientId, ClusterFabric, ClusterRuntime, FabricDiagnostics, GroupId, Housekeeper, client_round,
};
use stentor::{Client, Cluster, ClusterConfig, FabricKind, Group, LocalClient, Outcome, Turn, WaitMode, with_fabric};
use stentor_fabric::Backoff;
use stentor_testutil::TempDir;

#[path = "common/hand_overs.rs"]
mod hand_overs;
#[path = "common/nodes.rs"]
mod nodes;

use hand_overs::HandOvers;
use nodes::{Nodes, Result, configuration, wait_mode};

/// Number of commands of each client in a round.
const COMMANDS: usize = 500;
const COMMAND: [u8; 64] = [7; 64];

/// A way to send one command at a time.
trait Sender {
    /// Sends a command and waits for its completion.
    fn send(&mut self) -> Result<()>;
}

/// The protocol's client, which gets no replies.
struct Plain<F: FabricDiagnostics> {
    client: runtime::Client<F>,
    backoff: Backoff,
    housekeeper: Housekeeper,
}

impl<F: ClusterFabric> Plain<F> {
    fn join(path: &Path, sockets: &Path, wait: WaitMode) -> Result<Box<dyn Sender>>
    where
        F: 'static,
    {
        let plan = ClusterRuntime::new(ClusterConfig::load(path)?)?.with_file(path);
        let bind = BindConfig { sockets: sockets.to_owned(), ..BindConfig::beside(path) };
        // The last client id, because the other clients use the first ones.
        let place = ClientId(plan.topology().clients() as u16 - 1);
        let (backoff, housekeeper) = (Backoff::new(wait), Housekeeper::default());
        let mut plain = Plain { client: plan.start_client::<F>(place, &bind)?, backoff, housekeeper };
        while !plain.client.reaches_all(&[GroupId(0)]) {
            client_round(&mut plain.client, &mut plain.backoff, &mut plain.housekeeper, false)?;
        }
        Ok(Box::new(plain))
    }
}

impl<F: FabricDiagnostics> Sender for Plain<F> {
    fn send(&mut self) -> Result<()> {
        let Plain { client, backoff, housekeeper } = self;
        while client.submit(&[GroupId(0)], &COMMAND, true).is_err() {
            client_round(client, backoff, housekeeper, false)?;
        }
        let mut submitted = true;
        while client.outstanding() > 0 {
            client_round(client, backoff, housekeeper, std::mem::take(&mut submitted))?;
        }
        Ok(())
    }
}

struct Local {
    client: LocalClient,
    group: Group,
}

impl Sender for Local {
    fn send(&mut self) -> Result<()> {
        while self.client.submit(self.group, &COMMAND).is_err() {
            let _ = self.client.turn(|_, _| ())?;
        }
        let mut done = false;
        while !done {
            let turn = self.client.turn(|_, outcome| done = matches!(outcome, Outcome::Applied(_)))?;
            if let (Turn::Idle(until), false) = (turn, done) {
                let longest = Timespec::try_from(until.saturating_duration_since(Instant::now()))?;
                poll(&mut [PollFd::new(&self.client, PollFlags::IN)], Some(&longest))?;
            }
        }
        Ok(())
    }
}

struct Threaded {
    client: Client,
    group: Group,
}

impl Sender for Threaded {
    fn send(&mut self) -> Result<()> {
        self.client.call(self.group, &COMMAND).wait()?;
        Ok(())
    }
}

impl Sender for HandOvers {
    fn send(&mut self) -> Result<()> {
        self.two()
    }
}

fn measure(fabric: &str, mode: &str, rounds: usize) -> Result<()> {
    let wait = wait_mode(mode)?;
    let directory = TempDir::new();
    let path = configuration(fabric, &directory)?;
    let nodes = Nodes::start(&path, mode)?;
    let cluster = Cluster::load(&path)?.in_directory(&*directory);
    let group = cluster.group("g1")?;
    let local = Local { client: cluster.client().wait(wait).connect_local()?, group };
    let plain = with_fabric!(cluster_fabric(&path)?, F => Plain::<F>::join(&path, &directory, wait))?;
    let threaded = Threaded { client: cluster.client().wait(wait).connect()?, group };
    let mut senders: [(&str, Box<dyn Sender>); 4] = [
        ("without a reply", plain),
        ("two hand-overs", Box::new(HandOvers::start(wait))),
        ("LocalClient", Box::new(local)),
        ("Client", Box::new(threaded)),
    ];
    let mut all: [Vec<Duration>; 4] = Default::default();
    for turn in 0..(rounds + 1) * COMMANDS {
        for ((_, sender), times) in senders.iter_mut().zip(&mut all) {
            let since = Instant::now();
            sender.send()?;
            // The first round is a warm-up.
            if turn >= COMMANDS {
                times.push(since.elapsed());
            }
        }
    }
    let mut medians = [0.0; 4];
    for (((name, _), times), median) in senders.iter().zip(&mut all).zip(&mut medians) {
        times.sort_unstable();
        let at = |part: usize| times[times.len() * part / 100].as_secs_f64() * 1e6;
        *median = at(50);
        println!("{fabric} {mode} {name:<16} p50 {:>7.2} us, p99 {:>8.2} us, {} times", at(50), at(99), times.len());
    }
    drop(nodes);
    let [plain, two, local, threaded] = medians;
    println!("{fabric} {mode} LocalClient / (without a reply + two hand-overs): {:.2}", local / (plain + two));
    println!("{fabric} {mode} Client / (without a reply + four hand-overs): {:.2}", threaded / (plain + 2.0 * two));
    Ok(())
}

fn cluster_fabric(path: &Path) -> Result<FabricKind> {
    Ok(ClusterConfig::load(path)?.fabric())
}

fn main() -> Result<()> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let words: Vec<_> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["node", path, name, mode] => Nodes::run(path, name, mode),
        [fabric, mode] => measure(fabric, mode, 20),
        [fabric, mode, rounds] => measure(fabric, mode, rounds.parse()?),
        _ => Err("usage: client_latency shm|roce poll|adaptive|block [ROUNDS]".into()),
    }
}
