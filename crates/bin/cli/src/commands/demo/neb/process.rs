//! One process of the broadcast on shared memory, RoCEv2, an RDMA device or libfabric, as a demonstration starts it:
//! correct, or a liar.

use std::io::{BufRead, BufReader, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use stentor::config::{AsEfa, KeySource};
use stentor::runtime::{FabricDiagnostics, OfiFabric, RoceFabric, ShmFabric, Stop, VerbsFabric, now_ns};
use stentor_checker::Cluster;
use stentor_fabric::{Backoff, Fabric, ProcessId, WaitMode};
use stentor_fabric_ofi::OfiConfig;
use stentor_fabric_roce::{NetConfig, RoceConfig, SwitchConfig};
use stentor_fabric_shm::ShmConfig;
use stentor_fabric_verbs::VerbsConfig;
use stentor_neb::{Authority, Config, Counts, FaultModel, Liar, Lies, Mode, Node, Notice, ProcessSet, Value};
use stentor_support::args::Network;
use stentor_support::live::stop_at_end_of_input;
use stentor_support::{Failure, Verdict, hex};

use super::{LIAR, PAYLOAD_BYTES, PROCESSES, VICTIMS, WINDOW};
use crate::commands::neb::NebHistory;

/// Name of a demonstration's cluster.
pub(crate) const CLUSTER: &str = "demo-neb";
/// Port on which the processes listen for each other, on fabrics other than shared memory. On an RDMA device, the
/// process id is added.
const PORT: u16 = 7101;

/// Salt of the demonstration's cluster.
const SALT: u64 = 0x5354_454e_544f_5221;
/// Time that a process waits for the switch before it broadcasts without it.
const COPYING: Duration = Duration::from_secs(10);

/// The specification of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct WorkerSpec {
    pub(crate) me: u16,

    pub(crate) sockets: PathBuf,
    pub(crate) history: PathBuf,
    /// File with the lines to broadcast, one per broadcast.
    pub(crate) input: PathBuf,

    /// Number of broadcasts of each correct process, by process.
    pub(crate) shares: Vec<u64>,

    /// The lies of the liar, by [`Lies::NAMES`].
    pub(crate) lies: Vec<String>,
    /// Time that a sender waits for a process that lags by a window, in milliseconds.
    pub(crate) patience_ms: u64,
    pub(crate) carrier: Carrier,
}

/// The fabric of processes on one host. The key is in a file whose name is given here, because every user can see the
/// arguments of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Carrier {
    /// Shared memory.
    Shm,
    /// RoCEv2.
    Roce {
        /// Addresses are 127.network.0.1 and so on, by process.
        network: u8,
        key: PathBuf,
        /// The capture of packets, and the faults of the network.
        traffic: Network,
        /// Address of the switch at which fan-out sets are requested.
        switch: Option<SocketAddr>,
    },
    /// The RDMA device of the host.
    Verbs {
        /// Address of all processes.
        address: IpAddr,
        key: PathBuf,
    },
    /// A provider of libfabric.
    Ofi {
        /// Addresses are 127.network.0.1 and so on, by process.
        network: u8,
        key: PathBuf,
        /// The providers to try; no others are tried.
        providers: Vec<String>,
        /// Kind of device whose restrictions are imposed.
        as_efa: Option<String>,
    },
}

/// A report of a process, one JSON document per line.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "said", rename_all = "lowercase")]
pub(crate) enum Said {
    /// The provider that carries this process's data.
    Carried { by: String },
    /// An equivocation.
    Evidence { sender: u16, index: u64, ours: String, other: String, witness: u16, proven: bool },
    /// The process has delivered all broadcasts of correct processes.
    Done,
    /// The last report.
    Summary {
        broadcasts: u64,
        deliveries: u64,
        fast: u64,
        reads: u64,
        skipped: u64,
        equivocated: u64,
        suspicions: u64,
        refused: u64,
        /// Number of records that the network was asked to copy, counted once for each receiver.
        copies: u64,
    },
}

impl Said {
    fn summary(counts: &Counts, broadcasts: u64, equivocated: u64) -> Self {
        let Counts { deliveries, fast, reads, skipped, suspicions, denials: refused, copies, .. } = *counts;
        Said::Summary { broadcasts, deliveries, fast, reads, skipped, equivocated, suspicions, refused, copies }
    }
}

/// Returns a different loopback address for each process.
fn addresses(network: u8, processes: usize) -> Vec<Option<SocketAddr>> {
    let address = |n| Some(SocketAddr::new(Ipv4Addr::new(127, network, 0, n).into(), PORT));
    (1..=processes as u8).map(address).collect()
}

/// Returns the parameters with which a process connects to the others. `key` is the file of the key.
fn net(me: ProcessId, addresses: Vec<Option<SocketAddr>>, key: &Path) -> Result<NetConfig, Failure> {
    let key = KeySource::File(key.to_owned()).read(Path::new("")).map_err(failed)?;
    Ok(NetConfig::new(CLUSTER, me, addresses).key(key))
}

impl WorkerSpec {
    pub(crate) fn config(&self) -> Config {
        let mode = Mode::Quorum(FaultModel::LyingHosts);
        let sized = Config::new(PROCESSES, mode, 1);
        let patience_ns = self.patience_ms * 1_000_000;
        Config { window: WINDOW, payload_bytes: PAYLOAD_BYTES, signed: true, patience_ns, ..sized }
    }

    fn lies(&self) -> Result<Lies, Failure> {
        let add = |lies: Lies, name: &String| {
            let unknown =
                || Failure::usage(format_args!("no lie is called `{name}`"), "neb process", "use `stentor demo`");
            lies.with(name).ok_or_else(unknown)
        };
        self.lies.iter().try_fold(Lies::default(), add)
    }
}

fn failed(what: impl std::fmt::Display) -> Failure {
    Failure::run(what, "neb process", "`stentor doctor` says what this machine can do")
}

/// Returns the signing keys of a process. They are fixed and protect nothing, but show how evidence is made.
fn authority(me: ProcessId) -> Result<Authority, Failure> {
    let secret = |process: u16| [process as u8 + 1; 32];
    let public: Vec<_> = (0..PROCESSES as u16).map(|process| Authority::public_of(&secret(process))).collect();
    Authority::new(SALT, me, &secret(me.0), &public).map_err(failed)
}

fn say(said: &Said) -> Result<(), Failure> {
    let text = serde_json::to_string(said).expect("string keys");
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}").and_then(|()| out.flush()).map_err(failed)
}

pub(in crate::commands) fn process(spec: &str) -> Result<Verdict, Failure> {
    let spec: WorkerSpec =
        serde_json::from_str(spec).map_err(|error| Failure::usage(error, "neb process", "use `stentor demo --neb`"))?;
    let me = ProcessId(spec.me);
    let n = PROCESSES;

    match &spec.carrier {
        Carrier::Shm => {
            let shm =
                ShmConfig { directory: spec.sockets.clone(), ..ShmConfig::new(CLUSTER, me, &me.to_string(), n as u16) };
            take_part(ShmFabric::start(shm).map_err(failed)?, spec)
        }
        Carrier::Roce { network, key, traffic, switch } => {
            let config = RoceConfig {
                pcap: traffic.pcap.clone(),
                chances: traffic.bad.chances(),
                seed: traffic.seed.wrapping_add(u64::from(me.0)),
                switch: switch.map(SwitchConfig::new),
                ..RoceConfig::default()
            };
            take_part(RoceFabric::start(net(me, addresses(*network, n), key)?, config).map_err(failed)?, spec)
        }
        Carrier::Verbs { address, key } => {
            let address = |process| Some(SocketAddr::new(*address, PORT + process));
            let net = net(me, (0..n as u16).map(address).collect(), key)?;
            take_part(VerbsFabric::start(net, VerbsConfig::default()).map_err(failed)?, spec)
        }
        Carrier::Ofi { network, key, providers, as_efa } => {
            let as_efa = as_efa.as_deref().map(AsEfa::named).transpose().map_err(failed)?;
            let mask = as_efa.map(AsEfa::mask).unwrap_or_default();
            let config = OfiConfig { providers: providers.clone(), mask, ..OfiConfig::default() };
            let fabric = OfiFabric::start(net(me, addresses(*network, n), key)?, config).map_err(failed)?;
            if let Some(by) = fabric.carrier() {
                say(&Said::Carried { by })?;
            }
            take_part(fabric, spec)
        }
    }
}

fn take_part<F: Fabric>(fabric: F, spec: WorkerSpec) -> Result<Verdict, Failure> {
    let (config, me) = (spec.config(), ProcessId(spec.me));
    let authority = authority(me)?;
    let stop = Arc::new(Stop::default());
    stop_at_end_of_input(Arc::clone(&stop))?;
    if spec.me == LIAR {
        let lies = spec.lies()?;
        let victims: ProcessSet = VICTIMS.iter().map(|victim| ProcessId(*victim)).collect();
        let liar = Liar::new(fabric, config, SALT, Some(authority), lies, 30, victims).map_err(failed)?;
        lie(liar.equivocating_every(5), &stop)
    } else {
        let node = Node::new(fabric, config, SALT, Some(authority)).map_err(failed)?;
        Correct::new(node, spec)?.run(&stop)
    }
}

fn lie<F: Fabric>(mut liar: Liar<F>, stop: &Stop) -> Result<Verdict, Failure> {
    let mut backoff = Backoff::new(WaitMode::ADAPTIVE);
    // The liar's choices come from a xorshift generator of George Marsaglia with a fixed seed.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut chance = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    while !stop.is_stopped() {
        let worked = liar.step(&mut chance, &mut |_| {});
        backoff.pause(liar.node_mut().fabric_mut(), worked, Duration::from_millis(1)).map_err(failed)?;
    }
    say(&Said::summary(liar.node().counts(), 0, liar.equivocated()))?;
    Ok(Verdict::Good)
}

/// A process that follows the protocol.
struct Correct<F: Fabric> {
    node: Node<F>,
    spec: WorkerSpec,
    lines: Vec<Vec<u8>>,
    sent: usize,
    heads: Vec<u64>,
    history: NebHistory,
    /// Time until which the first broadcast waits for the network to make copies.
    copied_by: Option<Instant>,
}

/// Returns the cluster of a demonstration's histories.
fn cluster() -> Cluster {
    let names = (0..PROCESSES as u16).map(|process| ProcessId(process).to_string());
    let builder = Cluster::builder().global_clock().group("n", names);
    let builder = builder.faulty([ProcessId(LIAR).to_string()]).window(u64::from(WINDOW));
    builder.build().expect("names are made unique here")
}

impl<F: Fabric> Correct<F> {
    fn new(node: Node<F>, spec: WorkerSpec) -> Result<Self, Failure> {
        let history = NebHistory::new(&spec.history, cluster(), node.me(), node.config())?;
        let lines = read(&spec.input)?;
        let heads = vec![0; PROCESSES];
        let is_switched = matches!(spec.carrier, Carrier::Roce { switch: Some(_), .. });
        let copied_by = is_switched.then(|| Instant::now() + COPYING);
        Ok(Correct { node, spec, lines, sent: 0, heads, history, copied_by })
    }

    fn run(mut self, stop: &Stop) -> Result<Verdict, Failure> {
        let mut backoff = Backoff::new(WaitMode::ADAPTIVE);
        let (mut done, mut round) = (false, 0_u64);
        while !stop.is_stopped() {
            round += 1;
            let mut worked = (round.is_multiple_of(64) || !self.node.is_connected()) && self.node.housekeep();
            worked |= self.step()?;
            worked |= self.broadcast()?;
            let all = |(head, share): (&u64, &u64)| head >= share;
            if !done && self.heads.iter().zip(&self.spec.shares).all(all) {
                done = true;
                say(&Said::Done)?;
            }
            if !worked {
                self.node.housekeep();
            }
            backoff.pause(self.node.fabric_mut(), worked, Duration::from_millis(5)).map_err(failed)?;
        }
        self.finish()
    }

    fn step(&mut self) -> Result<bool, Failure> {
        let mut evidences = Vec::new();
        let Correct { node, heads, history, .. } = self;
        let worked = node.step(&mut |notice| {
            history.notice(&notice);
            match notice {
                Notice::Deliver(sender, _) | Notice::Skip(sender, _) => heads[sender.index()] += 1,
                Notice::Equivocation(evidence) => {
                    let payload = |words: &[u64]| {
                        let value = Value::new(words, words.len() * 8, true, PAYLOAD_BYTES);
                        value.map(|value| value.payload().to_vec()).unwrap_or_default()
                    };
                    let (ours, other) = (payload(&evidence.ours), payload(&evidence.other));

                    evidences.push(Said::Evidence {
                        sender: evidence.sender.0,
                        index: evidence.index,
                        ours: hex(&ours),
                        other: hex(&other),
                        witness: evidence.witness.0,
                        proven: evidence.proven,
                    });
                }
                Notice::Refused(..) | Notice::Removed(..) => {}
            }
        });
        self.history.check()?;
        evidences.iter().try_for_each(say)?;
        Ok(worked)
    }

    fn broadcast(&mut self) -> Result<bool, Failure> {
        if !self.node.is_connected() || self.sent == self.lines.len() {
            return Ok(false);
        }
        if self.copied_by.is_some_and(|until| Instant::now() < until && !self.node.is_copied()) {
            return Ok(false);
        }
        self.copied_by = None;
        let payload = self.lines[self.sent].clone();
        let now = now_ns();
        let Ok(index) = self.node.broadcast(now, 1_000_000 + self.sent as u64, &payload) else { return Ok(false) };
        self.sent += 1;
        self.history.broadcast(now, index, &payload);
        self.history.check()?;
        Ok(true)
    }

    fn finish(mut self) -> Result<Verdict, Failure> {
        self.history.memory(&self.node);
        self.history.flush();
        self.history.check()?;
        let counts = self.node.counts();
        say(&Said::summary(counts, counts.broadcasts, 0))?;
        Ok(Verdict::Good)
    }
}

fn read(path: &Path) -> Result<Vec<Vec<u8>>, Failure> {
    let refuse = |error: std::io::Error| Failure::usage(error, path.display(), "name a text that can be read");
    let file = std::fs::File::open(path).map_err(refuse)?;
    BufReader::new(file).split(b'\n').collect::<Result<_, _>>().map_err(refuse)
}
