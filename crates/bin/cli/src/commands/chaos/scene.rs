//! The directory of a run, with the configuration, the histories and the output of all processes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use stentor::ClusterConfig;
use stentor::config::{Ground, Limits, Problem, Template};
use stentor::runtime::ClusterRuntime;
use stentor_fabric::ProcessId;
use stentor_support::args::DemoFabric;
use stentor_support::live::{self, unstarted, write_key};
use stentor_support::{Failure, Janitor, unique};

use super::PLACE;
use crate::args;

/// The longest path of the directory for sockets, bytes. A socket's path has at most 107 bytes, and its name takes the
/// rest.
const LONGEST_SOCKETS: usize = 60;
/// The most processes of a cluster, all of which share this host.
const MOST_PROCESSES: usize = 100;
/// The number of distinct address ranges. Concurrent runs use different ones if their process ids differ by less than
/// this.
const NETWORKS: u32 = 60;
/// The longest line of a history, bytes.
const LONGEST_LINE: u64 = 256 << 10;
/// The file name of the cluster's key.
const KEY: &str = "cluster.key";

/// The directory of one run. It is removed at the end, even if this process is killed, unless it is to be kept; one
/// that the user named is never removed.
pub(super) struct Scene {
    path: PathBuf,
    config: PathBuf,
    plan: ClusterRuntime,
    keep: AtomicBool,
    janitor: Option<Janitor>,
}

fn template(args: &args::Chaos) -> Result<Template, Failure> {
    let (network, key) = (192 + (std::process::id() % NETWORKS) as u8, format!("file:{KEY}"));
    let ground = match args.fabric {
        DemoFabric::Shm => Ground::Shm,
        DemoFabric::Roce => Ground::Roce { network, key },
        DemoFabric::Ofi => Ground::Ofi { network, key, provider: args.ofi.provider.clone(), as_efa: args.ofi.as_efa },
        DemoFabric::Verbs => {
            let remedy = "`stentor doctor` says what this machine can do; `--fabric roce` needs no device";
            let address = stentor_support::rdma_address().map_err(|error| Failure::run(error, PLACE, remedy))?;
            Ground::Verbs { address, key }
        }
    };
    let limits =
        Limits { message_bytes: 16_384, window: 256, clients: args.clients, ring_kib: 256, body_ring_kib: 1024 };
    Ok(Template { cluster: "chaos".to_owned(), groups: args.groups, replicas: args.replicas, limits, ground })
}

/// Returns the text of a configuration made for this run. Leaders are replaced sooner than by default, so that stops do
/// it, too.
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
        let what = format_args!("{processes} members: this starts at most {MOST_PROCESSES} on one host");
        return Err(Failure::usage(what, PLACE, "lower --groups or --replicas, or name a smaller --config"));
    }
    Ok(())
}

/// Refuses a cluster that is not on this host alone, or that has no room for the clients.
fn check_config(plan: &ClusterRuntime, path: &Path, clients: u16) -> Result<(), Failure> {
    let most = plan.config().limits().clients;
    if clients > most {
        let what = format_args!("{clients} clients: the cluster has places for {most}");
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
            let remedy =
                "this starts and kills all members itself: name a configuration whose addresses are all of this host";
            return Err(Failure::usage(what, path.display(), remedy));
        }
    }
    Ok(())
}

impl Scene {
    /// Checks the arguments, makes the directory and writes the configuration.
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
                if args.fabric != DemoFabric::Ofi {
                    args.ofi.refuse(PLACE)?;
                }
                check_size(args.groups.saturating_mul(args.replicas))?;
                Err(rendered(args)?)
            }
        };
        let (path, keep) = match &args.directory {
            Some(path) => (named(path)?, true),
            None => (unique::directory("chaos")?, false),
        };
        let janitor = if keep { None } else { Some(Janitor::start(&path)?) };
        let (config, plan) = match given {
            Ok(given) => given,
            Err(text) => {
                let (config, key) = (path.join("cluster.toml"), path.join(KEY));
                fs::write(&config, text).map_err(|error| Failure::cannot_write(&config, &error))?;
                write_key(&key).map_err(|error| Failure::cannot_write(&key, &error))?;
                let plan = live::plan(&config)?;
                (config, plan)
            }
        };
        Ok(Scene { path, config, plan, keep: AtomicBool::new(keep), janitor })
    }

    pub(super) fn plan(&self) -> &ClusterRuntime {
        &self.plan
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn config(&self) -> PathBuf {
        self.config.clone()
    }

    /// Returns the directory of the control sockets; the fabric makes and removes it.
    pub(super) fn sockets(&self) -> PathBuf {
        let inside = self.path.join("sockets");
        if inside.as_os_str().len() <= LONGEST_SOCKETS {
            return inside;
        }
        Path::new("/tmp").join(format!("{}-sockets", unique::name("chaos")))
    }

    /// Returns the path of the history of a process in one of its lives.
    pub(super) fn history(&self, name: &str, life: u32) -> PathBuf {
        self.path.join(format!("{name}.{life}.jsonl"))
    }

    /// Returns the path of a file for one output stream of a process.
    pub(super) fn says(&self, name: &str, life: u32, what: &str) -> PathBuf {
        self.path.join(format!("{name}.{life}.{what}"))
    }

    /// Returns the paths of all histories.
    pub(super) fn histories(&self) -> Result<Vec<PathBuf>, Failure> {
        let unreadable = |error| Failure::run(error, self.path.display(), "let nobody else change that directory");
        let entries = fs::read_dir(&self.path).map_err(unreadable)?;
        let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
        let mut paths = paths.map_err(unreadable)?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        paths.sort();
        Ok(paths)
    }

    pub(super) fn history_bytes(&self) -> Result<u64, Failure> {
        Ok(self.histories()?.iter().filter_map(|path| Some(fs::metadata(path).ok()?.len())).sum())
    }

    /// Changes the bytes of a message that the first member delivered, in its first history.
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

    /// Keeps the directory after the run.
    pub(super) fn keep(&self) {
        self.keep.store(true, Ordering::Relaxed);
    }

    /// Returns the directory if it is kept.
    pub(super) fn kept(&self) -> Option<PathBuf> {
        self.keep.load(Ordering::Relaxed).then(|| self.path.clone())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        if !self.keep.load(Ordering::Relaxed) {
            // What cannot be removed is left to the system's own cleaning.
            let _ = fs::remove_dir_all(&self.path);
        }
        if let Some(janitor) = self.janitor.take() {
            janitor.dismiss();
        }
    }
}

/// Removes an incomplete last line from a history.
pub(super) fn cut(path: &Path) -> Result<(), Failure> {
    let cut = || -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let from = file.metadata()?.len().saturating_sub(LONGEST_LINE);
        file.seek(SeekFrom::Start(from))?;
        let mut end = Vec::new();
        file.read_to_end(&mut end)?;
        match end.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => file.set_len(from + at as u64 + 1),
            // It was killed before it wrote anything: there is no history.
            None => fs::remove_file(path),
        }
    };
    match cut() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|error| Failure::cannot_write(path, &error)),
    }
}

/// Writes a file with an error that names it.
pub(super) fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let written = File::create(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| Failure::cannot_write(path, &error))
}

fn named(path: &Path) -> Result<PathBuf, Failure> {
    fs::create_dir_all(path).map_err(|error| Failure::cannot_write(path, &error))?;
    let mut entries = fs::read_dir(path).map_err(|error| Failure::cannot_write(path, &error))?;
    if entries.next().is_some() {
        let remedy = "name a directory that is empty or does not exist";
        return Err(Failure::usage("the directory is not empty; nothing was changed", path.display(), remedy));
    }
    fs::canonicalize(path).map_err(|error| Failure::cannot_write(path, &error))
}
