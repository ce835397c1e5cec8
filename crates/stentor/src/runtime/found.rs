//! Finds processes of a cluster that run on this host with another configuration or directory: the configuration was
//! edited since they started, or they were started with another directory.

use std::path::{Path, PathBuf};

use stentor_fabric::ProcessId;
use stentor_host::{About, Running, Source, StartError as SeatError};

use super::cluster::{ClusterRuntime, StartError};
use super::twin::{as_pid, told};

/// A process with the name of a member, found by its lock.
#[derive(Clone, Debug)]
pub struct Found {
    running: Running,
    /// `true` if the process is that member, as far as is known, and not a member of another cluster with the same
    /// name.
    pub is_same: bool,
    /// Address of the member in the current configuration.
    address: Option<String>,
}

/// Finds the processes of this user on this host that have a member's name in a cluster of this name.
#[must_use]
pub fn find(plan: &ClusterRuntime, process: ProcessId) -> Vec<Found> {
    plan.source().map_or_else(Vec::new, |source| named(&source, plan.name(process), process))
}

fn named(source: &Source, name: &str, process: ProcessId) -> Vec<Found> {
    let address = source.addresses.get(process.index());
    let judge = |running: Running| {
        // A process without a description is known by its names only, and those match.
        let unknown = running.about.is_none();
        let shares = |about: &About| about.addresses.iter().any(|address| source.addresses.contains(address));
        let is_same = unknown || running.is_from(&source.file) || running.about.as_ref().is_some_and(shares);
        Found { running, is_same, address: address.cloned() }
    };
    Running::find(&source.cluster, name).into_iter().map(judge).collect()
}

/// Returns an error if a process with this name in a cluster of this name was started on this host from another file
/// that has one of this configuration's addresses. The lock refuses a second start from the same file. `note` receives
/// a message about any other such process from another file.
///
/// # Errors
/// Returns [`StartError::Fabric`], which describes that process.
pub fn refuse_twin(source: &Source, name: &str, me: ProcessId, note: impl Fn(&str)) -> Result<(), StartError> {
    for found in named(source, name, me) {
        if found.running.is_from(&source.file) {
            continue;
        }
        if found.is_same && found.running.about.is_some() {
            let Running { pid, about } = found.running;
            let (name, cluster) = (name.to_owned(), source.cluster.clone());
            return Err(SeatError::AlreadyRunning { name, me, cluster, pid, about: about.map(Box::new) }.into());
        }
        note(&described(&found, name, &source.cluster));
    }
    Ok(())
}

/// Describes a process with this name that does not prevent a start. It belongs to a cluster with the same name.
fn described(found: &Found, name: &str, cluster: &str) -> String {
    let place = found.where_it_is();
    match found.running.about {
        Some(_) => {
            format!("a process `{name}` of another cluster with the same name, `{cluster}`, runs on this host, {place}")
        }
        None => format!(
            "a process `{name}` of this cluster, or of another one with the name `{cluster}`, runs on this host, {place}"
        ),
    }
}

/// Returns a text with the directories that are searched for processes.
#[must_use]
pub fn looked_in(directory: &Path) -> String {
    let all = stentor_host::meeting_directories(directory);
    all.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
}

impl Found {
    /// Returns the process id; 0 if the process has none in this PID namespace.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.running.pid
    }

    /// Returns whether the member still runs. Returns `false` if its start parameters were not readable.
    #[must_use]
    pub fn still_runs(&self) -> bool {
        self.running.is_enrolled()
    }

    /// Returns the directory of the process's sockets, if processes that use `directory` do not search there.
    #[must_use]
    pub fn elsewhere(&self, directory: &Path) -> Option<&Path> {
        let about = self.running.about.as_ref()?;
        let looked_in = stentor_host::meeting_directories(directory);
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let is_there = looked_in.iter().any(|path| real(path) == real(&about.directory));
        (!is_there).then_some(about.directory.as_path())
    }

    /// Returns why processes that use this directory, and this name of the cluster's meeting directory, cannot find the
    /// process, with the remedy. Returns `None` if they find it.
    #[must_use]
    pub fn missed_by(&self, directory: &Path, meeting: &str) -> Option<String> {
        if let Some(there) = self.elsewhere(directory) {
            let asked = looked_in(directory);
            return Some(format!("this command looks in {asked}; ask with `--directory {}`", there.display()));
        }
        let edited = self.running.about.as_ref().is_some_and(|about| about.meeting != meeting);
        edited
            .then(|| "the configuration was edited since it started; start it again with that of the others".to_owned())
    }

    /// Describes the process and the settings that it was started with.
    #[must_use]
    pub fn where_it_is(&self) -> String {
        let pid = as_pid(self.running.pid);
        self.running
            .about
            .as_ref()
            .map_or(pid.clone(), |about| format!("{pid}, {}", told(about, self.address.as_deref())))
    }

    /// Returns the sockets on which the process listens for operators.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        let Some(about) = &self.running.about else { return Vec::new() };
        stentor_host::all_beside(&about.directory, &about.meeting, about.me).unwrap_or_default()
    }

    /// Returns a text that explains how to end the process with a signal.
    #[must_use]
    pub fn kill(&self) -> String {
        match self.running.pid {
            pid if pid > 0 => format!("`kill {pid}` ends it"),
            _ => "stop it in its container".to_owned(),
        }
    }

    /// Returns a text with the command that ends the process.
    #[must_use]
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

#[cfg(test)]
mod tests {
    use super::*;

    fn described_with(about: Option<About>) -> String {
        let running = Running { pid: 7, about };
        described(&Found { running, is_same: false, address: None }, "g1.1", "c")
    }

    #[test]
    fn other_cluster_is_said_to_have_the_same_name_and_only_if_it_is_known_to_be_another() {
        let (file, directory) = ("/a/cluster.toml".into(), "/run".into());
        let (cluster, name, meeting) = ("c".to_owned(), "g1.1".to_owned(), "m".to_owned());
        let about = About { cluster, name, file, directory, meeting, me: ProcessId(0), addresses: Vec::new() };
        let expected = "a process `g1.1` of another cluster with the same name, `c`, runs on this host, as pid 7, with \
                        configuration /a/cluster.toml and sockets in /run";
        assert_eq!(described_with(Some(about)), expected);
        let expected =
            "a process `g1.1` of this cluster, or of another one with the name `c`, runs on this host, as pid 7";
        assert_eq!(described_with(None), expected);
    }
}
