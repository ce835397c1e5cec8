//! The directory of a demonstration, with its configuration and histories.

use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Deref;
use std::path::{Path, PathBuf};

use stentor::ClusterConfig;
use stentor::config::{Limits, Problem, Template};
use stentor::runtime::ClusterRuntime;
use stentor_fabric::{ProcessId, SetSpec};
use stentor_support::Failure;
use stentor_support::args::{DemoFabric, device_address};
use stentor_support::live::{Captures, RunDirectory};

use crate::args;

/// Largest number of processes. Each is a process of the system, and a thousand of them would not find each other in
/// time.
const MOST_PROCESSES: usize = 100;
/// One client, and as little memory as the demonstration needs.
const LIMITS: Limits =
    Limits { message_bytes: 65_536, window: 256, clients: 1, ring_kib: 64, body_ring_kib: 512, ..Limits::DEFAULT };

/// Name of the cluster.
pub(super) const CLUSTER: &str = "demo";

/// Number of distinct address ranges. Concurrent demonstrations use different ones if their process ids differ by less
/// than this.
const NETWORKS: u32 = 128;
/// Port on which the switch accepts requests for sets.
const SWITCH_PORT: u16 = 7480;

/// Returns the second number of this demonstration's loopback addresses.
pub(super) fn network_number() -> u8 {
    64 + (std::process::id() % NETWORKS) as u8
}

/// Returns the addresses of this demonstration's switch: for senders, for receivers, and for requests of sets.
pub(super) fn switch_places() -> (Ipv4Addr, Ipv4Addr, SocketAddr) {
    let at = |last| Ipv4Addr::new(127, network_number(), 254, last);
    (at(1), at(2), SocketAddr::from((at(1), SWITCH_PORT)))
}

/// Returns the text of the configuration.
fn rendered(args: &args::Demo) -> Result<String, Failure> {
    let mut text = template(args)?.render();
    if args.switch {
        let (.., control) = switch_places();
        text += &format!("\n[switch]\ncontrol = \"{control}\"\n");
    }
    Ok(text)
}

fn template(args: &args::Demo) -> Result<Template, Failure> {
    let ground = args.fabric.ground(network_number(), &args.ofi, || device_address("stentor demo"))?;
    Ok(Template { cluster: CLUSTER.to_owned(), groups: args.groups, replicas: args.replicas, limits: LIMITS, ground })
}

/// Returns the configuration. Its errors are reported as errors of the arguments.
pub(super) fn config(args: &args::Demo) -> Result<ClusterConfig, Failure> {
    let place = "the arguments of `stentor demo`";
    let refuse = |problem: &Problem| Failure::usage(problem, place, "choose other values for --groups and --replicas");
    let template = template(args)?;
    template.check_counts().map_err(|problem| refuse(&problem))?;
    let processes = args.groups * args.replicas;
    if processes > MOST_PROCESSES {
        let what = format_args!("{processes} processes: a demonstration starts at most {MOST_PROCESSES}");
        let remedy = "lower --groups or --replicas; `stentor sim multicast` simulates clusters without processes";
        return Err(Failure::usage(what, place, remedy));
    }
    if args.switch && processes >= SetSpec::MOST {
        let most = SetSpec::MOST;
        let what = format_args!("{processes} processes and a client: a switch makes copies among {most} at most");
        return Err(Failure::usage(what, place, "lower --groups or --replicas, or leave out --switch"));
    }
    ClusterConfig::parse(Path::new("cluster.toml"), &rendered(args)?).map_err(|error| refuse(&error.problem))
}

#[cfg(feature = "zookeeper")]
fn election(args: &args::Demo) -> Vec<String> {
    if args.zookeeper.is_empty() { Vec::new() } else { vec!["--zookeeper".to_owned(), args.zookeeper.join(",")] }
}

#[cfg(not(feature = "zookeeper"))]
fn election(_: &args::Demo) -> Vec<String> {
    Vec::new()
}

/// The directory, and further arguments of the processes.
pub(super) struct Stage {
    directory: RunDirectory,
    /// Arguments of the members about the election.
    election: Vec<String>,
    pub(super) captures: Captures,
    fabric: DemoFabric,
}

impl Stage {
    /// Creates the directory.
    pub(super) fn bare(args: &args::Demo) -> Result<Self, Failure> {
        let directory = RunDirectory::new("demo", args.keep.as_deref())?;
        Ok(Stage { directory, election: election(args), captures: Captures::from(&args.network), fabric: args.fabric })
    }

    /// Creates the directory and writes the configuration.
    pub(super) fn set(args: &args::Demo, plan: &ClusterRuntime) -> Result<Self, Failure> {
        let stage = Stage::bare(args)?;
        stage.write_config(&rendered(args)?)?;
        if args.fabric != DemoFabric::Shm {
            stage.write_key()?;
        }
        debug_assert_eq!(plan.topology().groups(), args.groups);
        Ok(stage)
    }

    /// Returns the arguments of a member about the election and the network.
    pub(super) fn arguments(&self, name: &str, life: u32) -> Vec<String> {
        let network = (self.fabric == DemoFabric::Roce).then(|| self.captures.arguments(name, life));
        self.election.iter().cloned().chain(network.into_iter().flatten()).collect()
    }

    /// Returns the path of the history of a process in one of its lives.
    pub(super) fn history(&self, plan: &ClusterRuntime, process: ProcessId, life: u32) -> PathBuf {
        let life = if life > 1 { format!(".{life}") } else { String::new() };
        self.path().join(format!("{}{life}.jsonl", plan.name(process)))
    }

    /// Returns the paths of the histories of all processes. If a process was killed, the history of its second life is
    /// among them.
    pub(super) fn histories(&self, plan: &ClusterRuntime, killed: Option<ProcessId>) -> Vec<PathBuf> {
        let first = (0..plan.topology().processes() as u16).map(|process| self.history(plan, ProcessId(process), 1));
        first.chain(killed.map(|process| self.history(plan, process, 2))).collect()
    }
}

impl Deref for Stage {
    type Target = RunDirectory;

    fn deref(&self) -> &RunDirectory {
        &self.directory
    }
}
