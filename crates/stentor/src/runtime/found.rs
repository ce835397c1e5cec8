//! Processes of a cluster that run on this host, and are not where the configuration and the directory say: the configuration was edited
//! since they started, or they were told another directory.

use std::path::{Path, PathBuf};

use stentor_fabric::ProcessId;
use stentor_host::{About, Running, Source, StartError as SeatError};

use super::cluster::{ClusterRuntime, StartError};
use super::twin::{as_pid, told};

/// A process with the name of a member, found by its lock.
#[derive(Clone, Debug)]
pub struct Found {
    running: Running,
    /// It is that member, not one of another cluster with the same name.
    pub is_same: bool,
    /// Where the member is now, by the configuration.
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
///
/// # Errors
/// [`StartError::Fabric`], with that process.
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
        note(&format!(
            "a process `{name}` of another cluster `{}` runs on this host, {}",
            source.cluster,
            found.where_it_is()
        ));
    }
    Ok(())
}

/// The directories in which processes are looked for, in words.
#[must_use]
pub fn looked_in(directory: &Path) -> String {
    let all = stentor_host::meeting_directories(directory);
    all.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
}

impl Found {
    /// Its pid; 0 if it has none here.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.running.pid
    }

    /// The directory with its sockets, if those who were told another one do not look there.
    #[must_use]
    pub fn elsewhere(&self, directory: &Path) -> Option<&Path> {
        let about = self.running.about.as_ref()?;
        let looked_in = stentor_host::meeting_directories(directory);
        let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
        let is_there = looked_in.iter().any(|path| real(path) == real(&about.directory));
        (!is_there).then_some(about.directory.as_path())
    }

    /// Why those who were told this directory, and have this name for where the cluster meets, do not find it, and what they do
    /// then; `None`: they find it.
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

    /// Which process it is, and what it was told.
    #[must_use]
    pub fn where_it_is(&self) -> String {
        let pid = as_pid(self.running.pid);
        self.running
            .about
            .as_ref()
            .map_or(pid.clone(), |about| format!("{pid}, {}", told(about, self.address.as_deref())))
    }

    /// Where it listens for operators.
    #[must_use]
    pub fn paths(&self) -> Vec<PathBuf> {
        let Some(about) = &self.running.about else { return Vec::new() };
        stentor_host::all_beside(&about.directory, &about.meeting, about.me).unwrap_or_default()
    }

    /// How to end it without asking it.
    #[must_use]
    pub fn kill(&self) -> String {
        match self.running.pid {
            pid if pid > 0 => format!("`kill {pid}` ends it"),
            _ => "stop it in its container".to_owned(),
        }
    }

    /// How to end it, and nothing else.
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
