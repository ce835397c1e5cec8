//! Processes of a cluster that run on this host, and are not where the configuration and `--directory` say: the configuration
//! was edited since they started, or they were told another directory.

use std::path::PathBuf;

use stentor::runtime::{Plan, ShmFabric};
use stentor_fabric::ProcessId;
use stentor_fabric_shm::{About, Running, Source};

use super::as_pid;
use crate::failure::Failure;

/// A process with the name of a member, found by its lock.
pub(crate) struct Found {
    running: Running,
    /// It is that member, not one of another cluster with the same name.
    pub(crate) is_same: bool,
    /// Where the member is now, by the configuration.
    address: Option<String>,
}

/// Finds the processes of this user on this host that have a member's name in a cluster of this name.
pub(crate) fn find(plan: &Plan, process: ProcessId) -> Vec<Found> {
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
pub(crate) fn refuse_twin(source: &Source, name: &str, me: ProcessId, note: impl Fn(&str)) -> Result<(), Failure> {
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
pub(crate) fn already(name: &str, cluster: &str, pid: i32, about: Option<&About>, source: &Source) -> Failure {
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

impl Found {
    pub(crate) fn pid(&self) -> i32 {
        self.running.pid
    }

    /// Which process it is, and what it was told.
    pub(crate) fn where_it_is(&self) -> String {
        let pid = as_pid(self.running.pid);
        self.running
            .about
            .as_ref()
            .map_or(pid.clone(), |about| format!("{pid}, {}", told(about, self.address.as_deref())))
    }

    /// Where it listens for operators.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let Some(about) = &self.running.about else { return Vec::new() };
        ShmFabric::all_beside(&about.directory, &about.meeting, about.me).unwrap_or_default()
    }

    /// How to end it without asking it.
    pub(crate) fn kill(&self) -> String {
        match self.running.pid {
            pid if pid > 0 => format!("`kill {pid}` ends it"),
            _ => "stop it in its container".to_owned(),
        }
    }

    /// How to end it, and nothing else.
    pub(crate) fn remedy(&self, name: &str) -> String {
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
