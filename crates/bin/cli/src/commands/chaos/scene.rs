//! The directory of a run, with the configuration, the histories and the output of all processes.

use std::fs;
use std::io;
use std::net::UdpSocket;
use std::ops::Deref;
use std::path::Path;

use stentor::ClusterConfig;
use stentor::config::{Limits, Problem, Template};
use stentor::runtime::ClusterRuntime;
use stentor_fabric::ProcessId;
use stentor_support::Failure;
use stentor_support::args::{DemoFabric, device_address};
use stentor_support::live::{self, RunDirectory, unstarted};

use super::PLACE;
use crate::args;

/// The most members of a cluster, all of which share this host.
const MOST_PROCESSES: usize = 100;
/// The number of distinct address ranges. Concurrent runs use different ranges if their process ids differ by less than
/// this number.
const NETWORKS: u32 = 60;
/// The directory of one run, with the configuration that the user named or that was made for the run.
pub(super) struct Scene {
    directory: RunDirectory,
    pub(super) plan: ClusterRuntime,
}

fn template(args: &args::Chaos) -> Result<Template, Failure> {
    let network = 192 + (std::process::id() % NETWORKS) as u8;
    let ground = args.fabric.ground(network, &args.ofi, || device_address(PLACE))?;
    let limits = Limits {
        message_bytes: 16_384,
        window: 256,
        // The client id of a killed client may stay in use for a moment.
        clients: if args.service { 2 * args.clients } else { args.clients },
        ring_kib: 256,
        body_ring_kib: 1024,
        ..Limits::DEFAULT
    };
    Ok(Template { cluster: "chaos".to_owned(), groups: args.groups, replicas: args.replicas, limits, ground })
}

/// Returns the text of a configuration made for this run. Its election timeouts are shorter than the defaults, so that
/// a leader is replaced even during a stop.
fn rendered(args: &args::Chaos) -> Result<String, Failure> {
    let refuse = |problem: &Problem| Failure::usage(problem, PLACE, "choose other values for --groups and --replicas");
    let template = template(args)?;
    template.check_counts().map_err(|problem| refuse(&problem))?;
    let text = template.render();
    let text = text.replacen("[election]\n", "[election]\ntimeout_min_ms = 500\ntimeout_max_ms = 1000\n", 1);
    ClusterConfig::parse(Path::new("cluster.toml"), &text).map_err(|error| refuse(&error.problem))?;
    Ok(text)
}

fn check_size(processes: usize) -> Result<(), Failure> {
    if processes > MOST_PROCESSES {
        let what = format_args!("{processes} members: the command starts at most {MOST_PROCESSES} on one host");
        return Err(Failure::usage(what, PLACE, "lower --groups or --replicas, or name a smaller --config"));
    }
    Ok(())
}

/// Refuses a cluster that is not on this host alone, or that has too few client ids.
fn check_config(plan: &ClusterRuntime, path: &Path, clients: u16) -> Result<(), Failure> {
    let most = plan.config().limits().clients;
    if clients > most {
        let what = format_args!("{clients} clients: the cluster has only {most} client ids");
        return Err(Failure::usage(what, path.display(), "lower --clients, or raise `clients` in [limits]"));
    }
    if !plan.config().fabric().is_between_hosts() {
        return Ok(());
    }
    for process in (0..plan.topology().all_members() as u16).map(ProcessId) {
        let address = plan.address(process).map_err(|error| unstarted(error.into(), path))?;
        if let Err(error) = UdpSocket::bind((address, 0)) {
            let name = plan.name(process);
            let what = format_args!("`{name}` is at {address}, which is no address of this host: {error}");
            let remedy = "the command starts and kills all members itself: name a configuration whose addresses are all of this host";
            return Err(Failure::usage(what, path.display(), remedy));
        }
    }
    Ok(())
}

impl Scene {
    /// Checks the arguments, creates the directory and writes the configuration.
    pub(super) fn set(args: &args::Chaos) -> Result<Self, Failure> {
        let given = match &args.config {
            Some(path) => {
                let plan = live::plan(path)?;
                check_config(&plan, path, args.clients)?;
                check_size(plan.topology().all_members())?;
                let path = fs::canonicalize(path).map_err(|error| Failure::cannot_write(path, &error))?;
                Ok((path, plan))
            }
            None => {
                args.ofi.refuse_unless(args.fabric == DemoFabric::Ofi, PLACE)?;
                check_size(args.groups.saturating_mul(args.replicas))?;
                Err(rendered(args)?)
            }
        };
        let mut directory = RunDirectory::new("chaos", args.directory.as_deref())?;
        let plan = match given {
            Ok((config, plan)) => {
                directory.use_config(config);
                plan
            }
            Err(text) => {
                directory.write_key()?;
                live::plan(&directory.write_config(&text)?)?
            }
        };
        Ok(Scene { directory, plan })
    }

    pub(super) fn history_bytes(&self) -> Result<u64, Failure> {
        Ok(self.histories()?.iter().filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum())
    }

    /// Changes the hash of a message that the first member delivered, in its first history.
    pub(super) fn spoil(&self) -> Result<(), Failure> {
        let path = self.history(self.plan.name(ProcessId(0)), 1);
        let spoil = || -> io::Result<()> {
            let text = fs::read_to_string(&path)?;
            let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
            let line = lines.iter_mut().find(|line| line.contains("\"deliver\""));
            let line = line.ok_or_else(|| io::Error::other("it delivered nothing"))?;
            let at = line.find("\"hash\":\"").map(|at| at + 8).ok_or_else(|| io::Error::other("no hash"))?;
            let other = if line.as_bytes()[at] == b'0' { "1" } else { "0" };
            line.replace_range(at..=at, other);
            fs::write(&path, lines.join("\n") + "\n")
        };
        spoil().map_err(|error| Failure::cannot_write(&path, &error))
    }
}

impl Deref for Scene {
    type Target = RunDirectory;

    fn deref(&self) -> &RunDirectory {
        &self.directory
    }
}
