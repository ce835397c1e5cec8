//! What a process was told at its start: it stands in a memfd that others read in `/proc/PID/fd`.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::io::{Errno, pwrite};
use stentor_fabric::ProcessId;

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

impl About {
    pub(crate) fn publish(&self) -> Result<OwnedFd, Errno> {
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
