//! Processes of a cluster that run on this host, and are not where the configuration and `--directory` say: the configuration
//! was edited since they started, or they were told another directory.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use stentor::runtime::ClusterRuntime;
use stentor_fabric::ProcessId;
use stentor_host::{About, Running, Source};

use super::as_pid;
use crate::Failure;

/// A process with the name of a member, found by its lock.
pub struct Found {
    running: Running,
    /// It is that member, not one of another cluster with the same name.
    pub is_same: bool,
    /// Where the member is now, by the configuration.
    address: Option<String>,
}

/// Finds the processes of this user on this host that have a member's name in a cluster of this name.
pub fn find(plan: &ClusterRuntime, process: ProcessId) -> Vec<Found> {
    plan.source().map_or_else(Vec::new, |source| named(&source, plan.name(process), process))
}

fn named(source: &Source, name: &str, process: ProcessId) -> Vec<Found> {
    let address = source.addresses.get(process.index());
    let judge = |running: Running| {
        // Of one that says nothing about itself only the names are known, and those agree.
        let unknown = running.about.is_none();
        let shares = |about: &About| about.addresses.iter().any(|address| source.addresses.contains(address));
        let is_same = unknown || running.is_from(&source.file) || running.about.as_ref().is_some_and(shares);
        Found { running, is_same, address: address.cloned() }
    };
    Running::find(&source.cluster, name).into_iter().map(judge).collect()
}

/// Refuses to start a process whose cluster has one of its name on this host already, under other addresses or from a copy
/// of its configuration. A start from the same file is refused by the lock. `note` hears of one in a cluster that has the
/// same name only.
pub fn refuse_twin(source: &Source, name: &str, me: ProcessId, note: impl Fn(&str)) -> Result<(), Failure> {
    for found in named(source, name, me) {
        if found.running.is_from(&source.file) {
            continue;
        }
        if found.is_same && found.running.about.is_some() {
            return Err(already(name, &source.cluster, found.running.pid, found.running.about.as_ref(), source));
        }
        note(&format!(
            "a process `{name}` of another cluster `{}` runs on this host, {}",
            source.cluster,
            found.where_it_is()
        ));
    }
    Ok(())
}

/// A second process of a name is refused. `source`: from what it was to start.
pub fn already(name: &str, cluster: &str, pid: i32, about: Option<&About>, source: &Source) -> Failure {
    let what = format!("`{name}` of cluster `{cluster}` is running already, {}", as_pid(pid));
    let place = source.file.display();
    let Some(about) = about else {
        return Failure::usage(what, place, "stop that process, or start another one");
    };
    let told = told(about, source.addresses.get(about.me.index()).map(String::as_str));
    let stop = format!(
        "stop that process (`stentor stop --config {} --directory {} --id {name}`, or `kill {pid}`), or start another one",
        about.file.display(),
        about.directory.display()
    );
    Failure::usage(format_args!("{what}, {told}"), place, stop)
}

/// What a process was told, and where the configuration has another address for it now.
fn told(about: &About, now: Option<&str>) -> String {
    let mut text = format!("with configuration {} and sockets in {}", about.file.display(), about.directory.display());
    let then = about.addresses.get(about.me.index());
    if let (Some(then), Some(now)) = (then, now)
        && then != now
    {
        text += &format!(", at {then}, which is {now} in this configuration");
    }
    text
}

/// Whether a process of this host is stopped, by a signal or a debugger.
pub fn is_stopped(pid: i32) -> bool {
    // The state follows the name of the program, which may hold anything.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    pid > 0 && matches!(state, Some('T' | 't'))
}

/// The processes of members that others miss and that run on this host. `directory`: where the others look for their sockets,
/// where that matters.
pub fn missed(plan: &ClusterRuntime, members: &[ProcessId], directory: Option<&Path>) -> Vec<Missed> {
    let missed = |process: &ProcessId| {
        let found = find(plan, *process).into_iter().find(|found| found.is_same)?;
        let elsewhere = directory.and_then(|directory| found.elsewhere(directory)).map(Path::to_owned);
        Some(Missed { name: plan.name(*process).to_owned(), pid: found.pid(), elsewhere })
    };
    members.iter().filter_map(missed).collect()
}

/// A member that others miss, and that runs on this host.
pub struct Missed {
    /// Its name.
    pub name: String,
    pid: i32,
    /// The directory with its sockets, if the others do not look there.
    elsewhere: Option<PathBuf>,
}

impl Missed {
    /// How it runs, in one clause.
    pub fn text(&self) -> String {
        let Missed { name, pid, elsewhere } = self;
        let mut text = format!("{name} runs on this host, {}", as_pid(*pid));
        if is_stopped(*pid) {
            text += ", and is stopped";
        }
        if let Some(directory) = elsewhere {
            text += &format!(", with sockets in {}", directory.display());
        }
        text
    }

    /// What to do about these members; empty if there is nothing to do but to look at what they say.
    pub fn remedies(all: &[Missed]) -> Vec<String> {
        let stopped: Vec<_> =
            all.iter().map(|missed| missed.pid).filter(|pid| is_stopped(*pid)).map(|pid| pid.to_string()).collect();
        let directories: BTreeSet<_> = all.iter().filter_map(|missed| missed.elsewhere.as_ref()).collect();
        let go_on = (!stopped.is_empty()).then(|| format!("`kill -CONT {}` lets the stopped go on", stopped.join(" ")));
        let named = directories.iter().map(|directory| {
            format!("--directory {} is where {} meet", directory.display(), Self::those_in(all, directory))
        });
        go_on.into_iter().chain(named).collect()
    }

    fn those_in(all: &[Missed], directory: &Path) -> String {
        let there = all.iter().filter(|missed| missed.elsewhere.as_deref() == Some(directory));
        there.map(|missed| missed.name.as_str()).collect::<Vec<_>>().join(", ")
    }
}

impl Found {
    pub fn pid(&self) -> i32 {
        self.running.pid
    }

    /// The directory with its sockets, if those who were told another one do not look there.
    pub fn elsewhere(&self, directory: &Path) -> Option<&Path> {
        let about = self.running.about.as_ref()?;
        let looked_in = stentor_host::meeting_directories(directory);
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let is_there = looked_in.iter().any(|path| real(path) == real(&about.directory));
        (!is_there).then_some(about.directory.as_path())
    }

    /// Why those who were told this directory, and have this name for where the cluster meets, do not find it, and what they do
    /// then; `None`: they find it.
    pub fn missed_by(&self, directory: &Path, meeting: &str) -> Option<String> {
        if let Some(there) = self.elsewhere(directory) {
            let asked = super::looked_in(directory);
            return Some(format!("this command looks in {asked}; ask with `--directory {}`", there.display()));
        }
        let edited = self.running.about.as_ref().is_some_and(|about| about.meeting != meeting);
        edited
            .then(|| "the configuration was edited since it started; start it again with that of the others".to_owned())
    }

    /// Which process it is, and what it was told.
    pub fn where_it_is(&self) -> String {
        let pid = as_pid(self.running.pid);
        self.running
            .about
            .as_ref()
            .map_or(pid.clone(), |about| format!("{pid}, {}", told(about, self.address.as_deref())))
    }

    /// Where it listens for operators.
    pub fn paths(&self) -> Vec<PathBuf> {
        let Some(about) = &self.running.about else { return Vec::new() };
        stentor_host::all_beside(&about.directory, &about.meeting, about.me).unwrap_or_default()
    }

    /// How to end it without asking it.
    pub fn kill(&self) -> String {
        match self.running.pid {
            pid if pid > 0 => format!("`kill {pid}` ends it"),
            _ => "stop it in its container".to_owned(),
        }
    }

    /// How to end it, and nothing else.
    pub fn remedy(&self, name: &str) -> String {
        match &self.running.about {
            Some(about) => format!(
                "`stentor stop --config {} --directory {} --id {name}` ends it",
                about.file.display(),
                about.directory.display()
            ),
            None => self.kill(),
        }
    }
}
