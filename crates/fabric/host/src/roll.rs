//! Which processes of a user's cluster run on this host, whatever directory and addresses they were told.
//!
//! The sockets of a process are in a directory, and their names follow from the configuration. Whoever names another
//! directory, or edits the configuration while the process runs, does not find them. So each process with a [`Source`] is
//! on a roll that depends on neither: an abstract Unix socket `@stentor/UID/CLUSTER/NAME/HASH`, where the hash is that of the
//! configuration's path. It is a lock, too: one process of a name runs from one file. What the process was told stands in
//! a memfd that others read in `/proc/PID/fd`, also while the process is stopped.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::io::{Errno, pwrite};
use rustix::process::geteuid;
use stentor_fabric::ProcessId;

use crate::config::{SeatConfig, StartError};
use crate::directory::{absolute, system};
use crate::lock::{self, Lock, Taken};
use crate::memfd;

/// The name of the memfd.
const ABOUT: &str = "stentor-about";
/// Longest text in it that is read, bytes.
const LONGEST: u64 = 1 << 20;
/// Its first field, with the number of its format.
const FORMAT: &[u8] = b"stentor about 1";

/// From what a process was started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// The cluster's name in the configuration.
    pub cluster: String,
    /// The configuration's file.
    pub file: PathBuf,
    /// Where the members are, as the file says; empty where nobody has an address.
    pub addresses: Vec<String>,
}

/// What a running process was told at its start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct About {
    /// Its configuration's file, absolute and without links.
    pub file: PathBuf,
    /// The directory with its sockets.
    pub directory: PathBuf,
    /// The directory in it.
    pub meeting: String,
    /// Its number in the cluster.
    pub me: ProcessId,
    /// [`Source::addresses`].
    pub addresses: Vec<String>,
}

/// A running process of a cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Running {
    /// The process; 0 if it is in a PID namespace that this process cannot see.
    pub pid: i32,
    /// What it was told, if that can be read.
    pub about: Option<About>,
}

/// This process is on the roll until this is dropped.
#[derive(Debug)]
pub(crate) struct Enrolled {
    lock: Lock,
    _about: OwnedFd,
}

impl Enrolled {
    /// As [`Lock::hang_up`].
    pub(crate) fn hang_up(&self) {
        self.lock.hang_up();
    }
}

/// What came of enrolling.
pub(crate) enum Enrolment {
    /// Done; `None`: there is nothing to enrol.
    Done(Option<Enrolled>),
    /// A process of this name runs from the same file; 0 if its pid cannot be told.
    Theirs(i32),
}

/// A path by which a file is known, however it is named.
fn identity(file: &Path) -> PathBuf {
    file.canonicalize().unwrap_or_else(|_| absolute(file))
}

fn prefix(cluster: &str, name: &str) -> String {
    format!("stentor/{}/{cluster}/{name}/", geteuid().as_raw())
}

/// FNV-1a: a name that is too long for a socket becomes a short one. Two that are equal refuse each other, nothing worse.
pub(crate) fn hash(text: &OsStr) -> u64 {
    let fold = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    text.as_bytes().iter().fold(0xcbf2_9ce4_8422_2325, fold)
}

/// Puts this process on the roll.
pub(crate) fn enrol(config: &SeatConfig) -> Result<Enrolment, StartError> {
    let Some(source) = &config.source else { return Ok(Enrolment::Done(None)) };
    let file = identity(&source.file);
    let name = format!("{}{:016x}", prefix(&source.cluster, &config.name), hash(file.as_os_str()));
    let lock = match Lock::take(&name).map_err(system(format!("take the lock @{name}")))? {
        Taken::Ours(lock) => lock,
        Taken::Theirs(Some(holder)) if holder.uid != geteuid().as_raw() => {
            let name_of = config.name.clone();
            return Err(StartError::ForeignLock { name: name_of, lock: name, pid: holder.pid, uid: holder.uid });
        }
        Taken::Theirs(holder) => return Ok(Enrolment::Theirs(holder.map_or(0, |holder| holder.pid))),
    };
    let about = About {
        file,
        directory: config.directory.clone(),
        meeting: config.cluster.clone(),
        me: config.me,
        addresses: source.addresses.clone(),
    };
    let about = about.publish().map_err(system("write down what this process was told"))?;
    Ok(Enrolment::Done(Some(Enrolled { lock, _about: about })))
}

impl About {
    fn publish(&self) -> Result<OwnedFd, Errno> {
        let number = self.me.0.to_string();
        let fields =
            [self.file.as_os_str(), self.directory.as_os_str(), OsStr::new(&self.meeting), OsStr::new(&number)];
        let addresses = self.addresses.iter().map(|address| address.as_bytes());
        let all: Vec<_> = [FORMAT].into_iter().chain(fields.map(OsStr::as_bytes)).chain(addresses).collect();
        let text = all.join(&0);
        let about = memfd::create(ABOUT, text.len() as u64)?;
        let mut done = 0;
        while done < text.len() {
            done += pwrite(&about, &text[done..], done as u64)?;
        }
        memfd::finish(&about)?;
        Ok(about)
    }

    fn read(text: &[u8]) -> Option<About> {
        let mut fields = text.split(|byte| *byte == 0);
        if fields.next()? != FORMAT {
            return None;
        }
        let mut path = || Some(PathBuf::from(OsStr::from_bytes(fields.next()?)));
        let (file, directory) = (path()?, path()?);
        let mut text = fields.map(|field| String::from_utf8_lossy(field).into_owned());
        let (meeting, me) = (text.next()?, ProcessId(text.next()?.parse().ok()?));
        Some(About { file, directory, meeting, me, addresses: text.collect() })
    }

    /// What a process of this user says of itself.
    pub(crate) fn of(pid: i32) -> Option<About> {
        if pid <= 0 {
            return None;
        }
        let name = format!("/memfd:{ABOUT}");
        let is_about = |path: &PathBuf| {
            fs::read_link(path).is_ok_and(|target| target.as_os_str().as_bytes().starts_with(name.as_bytes()))
        };
        let open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        let path = open.filter_map(|entry| Some(entry.ok()?.path())).find(is_about)?;
        if fs::metadata(&path).ok()?.len() > LONGEST {
            return None;
        }
        About::read(&fs::read(path).ok()?)
    }
}

impl Running {
    /// Finds the processes of this user that run on this host under this name in a cluster of this name.
    #[must_use]
    pub fn find(cluster: &str, name: &str) -> Vec<Running> {
        let prefix = format!("@{}", prefix(cluster, name));
        let listed = fs::read_to_string("/proc/net/unix").unwrap_or_default();
        // Each connection that waits at a socket is listed with its name, too.
        let names: BTreeSet<_> = listed
            .lines()
            .filter_map(|line| line.rsplit(' ').next().filter(|name| name.starts_with(&prefix)))
            .collect();
        let found = names.into_iter().filter_map(|name| lock::holder(&name[1..]));
        let mut pids: Vec<_> = found.filter(|who| who.uid == geteuid().as_raw()).map(|who| who.pid).collect();
        pids.sort_unstable();
        pids.dedup();
        pids.into_iter().map(|pid| Running { pid, about: About::of(pid) }).collect()
    }

    /// Whether it runs from this file.
    #[must_use]
    pub fn is_from(&self, file: &Path) -> bool {
        self.about.as_ref().is_some_and(|about| about.file == identity(file))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_was_told_is_read_as_it_was_written() {
        let about = About {
            file: "/etc/c l.toml".into(),
            directory: PathBuf::from(OsStr::from_bytes(b"/run/\xff")),
            meeting: "roce-7".to_owned(),
            me: ProcessId(3),
            addresses: vec!["h:1".to_owned(), "h:2".to_owned()],
        };
        let _kept = about.publish().unwrap();
        assert_eq!(About::of(std::process::id() as i32), Some(about));
        assert_eq!(About::of(0), None);
        assert_eq!(About::read(b"stentor about 2\0/a\0/b\0c\x001"), None);
    }
}
