//! The roll: a list of the processes of a user's clusters that run on this host.
//!
//! The sockets of a process are in a directory, and their names follow from the configuration. A process with another
//! directory, or with a configuration that was edited meanwhile, does not find them. Therefore each process with a
//! [`Source`] is on a roll that depends on neither: an abstract Unix socket `@stentor/UID/CLUSTER/NAME/HASH`, where
//! HASH is the hash of the configuration's path. The socket is also a lock: only one process with a given name runs
//! from one file. The start parameters of the process are in a memfd, which other processes read through `/proc/PID/fd`
//! even while the process is stopped.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;

use crate::about::{About, Source};
use crate::config::{SeatConfig, StartError, absolute, system};
use crate::lock::{self, Lock, Taken};

/// A running process of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Running {
    /// Pid of the process; 0 if it is in a PID namespace that this process cannot see.
    pub pid: i32,
    /// Start parameters of the process, if they are readable.
    pub about: Option<About>,
}

/// The entry of this process on the roll, which is removed on drop.
#[derive(Debug)]
pub(crate) struct Enrolled {
    lock: Lock,
    _about: OwnedFd,
}

impl Enrolled {
    /// Closes pending connections; see [`Lock::hang_up`].
    pub(crate) fn hang_up(&self) {
        self.lock.hang_up();
    }
}

/// The result of an enrolment.
pub(crate) enum Enrolment {
    /// The process is enrolled; `None` if it has no [`Source`] and needs no entry.
    Done(Option<Enrolled>),
    /// Pid of a process with this name that runs from the same file; 0 if its pid is unknown.
    Theirs(i32),
}

/// Returns a path that identifies an existing file. It is the same for all paths to one hard link of the file.
fn identity(file: &Path) -> PathBuf {
    file.canonicalize().unwrap_or_else(|_| absolute(file))
}

/// Returns the name under which a process that runs from `file` is on the roll.
fn name_on_roll(cluster: &str, name: &str, file: &Path) -> String {
    format!("{}{:016x}", prefix(cluster, name), hash(file.as_os_str()))
}

/// Returns whether a process was started from this source under this name.
pub(crate) fn is_from(about: &About, source: &Source, name: &str) -> bool {
    (&*about.cluster, &*about.name, &about.file) == (&*source.cluster, name, &identity(&source.file))
}

fn prefix(cluster: &str, name: &str) -> String {
    format!("stentor/{}/{cluster}/{name}/", geteuid().as_raw())
}

/// Hashes a path with FNV-1a. The names of sockets contain the hash, because a path may be too long for them. If the
/// hashes of two paths collide, a process at one path does not start while a process with the same name or id runs at
/// the other path. A collision has no other effect.
pub(crate) fn hash(text: &OsStr) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    text.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

/// Enrols this process.
pub(crate) fn enrol(config: &SeatConfig) -> Result<Enrolment, StartError> {
    let Some(source) = &config.source else { return Ok(Enrolment::Done(None)) };
    let file = identity(&source.file);
    let name = name_on_roll(&source.cluster, &config.name, &file);
    let lock = match Lock::take(&name).map_err(system(format!("take the lock @{name}")))? {
        Taken::Ours(lock) => lock,
        Taken::Theirs(Some(holder)) if holder.uid != geteuid().as_raw() => {
            let name_of = config.name.clone();
            return Err(StartError::ForeignLock { name: name_of, lock: name, pid: holder.pid, uid: holder.uid });
        }
        Taken::Theirs(holder) => return Ok(Enrolment::Theirs(holder.map_or(0, |holder| holder.pid))),
    };
    let about = About {
        cluster: source.cluster.clone(),
        name: config.name.clone(),
        file,
        directory: config.directory.clone(),
        meeting: config.cluster.clone(),
        me: config.me,
        addresses: source.addresses.clone(),
    };
    let about = about.publish().map_err(system("publish the start parameters of this process"))?;
    Ok(Enrolment::Done(Some(Enrolled { lock, _about: about })))
}

impl Running {
    /// Returns the running processes named `name` that belong to clusters named `cluster`, among the processes of this
    /// user in this network namespace.
    #[must_use]
    pub fn find(cluster: &str, name: &str) -> Vec<Running> {
        let prefix = format!("@{}", prefix(cluster, name));
        let listed = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        // `/proc/net/unix` also lists each connection that waits at a socket, under the same name.
        let names: BTreeSet<_> = listed
            .lines()
            .filter_map(|line| line.rsplit(' ').next().filter(|name| name.starts_with(&prefix)))
            .collect();
        let found = names.into_iter().filter_map(|listed| Some((&listed[1..], lock::holder(&listed[1..])?)));
        let found = found.filter(|(_, who)| who.uid == geteuid().as_raw()).map(|(listed, who)| {
            let is_it = |about: &About| name_on_roll(&about.cluster, &about.name, &about.file) == listed;
            Running { pid: who.pid, about: About::of(who.pid, is_it) }
        });
        let mut found: Vec<_> = found.collect();
        found.sort_by_key(|running| running.pid);
        found
    }

    /// Returns whether the process still has its place on the roll. Returns `false` if its start parameters were not
    /// readable.
    ///
    /// The check connects to nothing, so it can be repeated: each connection would take room in the lock's queue, which
    /// a process that is ending does not empty.
    #[must_use]
    pub fn is_enrolled(&self) -> bool {
        self.about.as_ref().is_some_and(|about| About::of(self.pid, |found| found == about).is_some())
    }

    /// Returns whether this process runs from `file`.
    #[must_use]
    pub fn is_from(&self, file: &Path) -> bool {
        self.about.as_ref().is_some_and(|about| about.file == identity(file))
    }
}

#[cfg(test)]
mod tests {
    use stentor_fabric::ProcessId;

    use super::*;

    #[test]
    fn process_is_enrolled_until_it_frees_its_name() {
        let cluster = format!("stentor-test-{}-enrolled", std::process::id());
        let source = Source { cluster: cluster.clone(), file: "/etc/cluster.toml".into(), addresses: [].into() };
        let config = SeatConfig {
            directory: "/tmp".into(),
            cluster: "m".to_owned(),
            me: ProcessId(0),
            name: "g1.1".to_owned(),
            janitor: false,
            source: Some(source),
        };
        let Ok(Enrolment::Done(Some(enrolled))) = enrol(&config) else { panic!("the name was free") };
        let found = Running::find(&cluster, "g1.1");
        // More checks than the lock's queue has room for.
        assert!(found.len() == 1 && (0..200).all(|_| found[0].is_enrolled()), "{found:?}");
        drop(enrolled);
        assert!(!found[0].is_enrolled());
    }
}
