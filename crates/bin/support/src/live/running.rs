//! Processes on this host: members that others miss, and second processes with the same name.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use stentor::runtime::{ClusterRuntime, as_pid, find, told_running};
use stentor_fabric::ProcessId;
use stentor_host::{About, Source};

use crate::Failure;

/// Returns the failure of a process that cannot start because a process of the same name is running. `source` is the
/// configuration from which it was to start.
pub fn already(name: &str, cluster: &str, pid: i32, about: Option<&About>, source: &Source) -> Failure {
    let address = about.and_then(|about| source.addresses.get(about.me.index()));
    let (what, remedy) = told_running(name, cluster, pid, about, address.map(String::as_str));
    Failure::usage(what, source.file.display(), remedy)
}

/// Returns whether a process of this host is stopped, by a signal or a debugger.
pub fn is_stopped(pid: i32) -> bool {
    // The state follows the program's name, which may contain any character.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next());
    pid > 0 && matches!(state, Some('T' | 't'))
}

/// Returns the missing members that run on this host. `directory` is where the other processes look for the sockets of
/// the members; `None` if they do not meet in a directory.
pub fn missed(plan: &ClusterRuntime, members: &[ProcessId], directory: Option<&Path>) -> Vec<Missed> {
    let missed = |process: &ProcessId| {
        let found = find(plan, *process).into_iter().find(|found| found.is_same)?;
        let elsewhere = directory.and_then(|directory| found.elsewhere(directory)).map(Path::to_owned);
        Some(Missed { name: plan.name(*process).to_owned(), pid: found.pid(), elsewhere })
    };
    members.iter().filter_map(missed).collect()
}

/// A member that runs on this host although other members cannot reach it.
pub struct Missed {
    /// Name of the member.
    pub name: String,
    pid: i32,
    /// The directory of the member's sockets, if other members do not search there.
    elsewhere: Option<PathBuf>,
}

impl Missed {
    /// Returns a clause that describes the member's process.
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

    /// Returns the remedies for these members. The list is empty if only their logs can help.
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
