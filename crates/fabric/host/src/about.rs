//! The start parameters of a process, published in a memfd that other processes read through `/proc/PID/fd`.

use std::ffi::OsStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use rustix::io::{Errno, pwrite};
use stentor_fabric::ProcessId;

use crate::memfd;

/// Name of the memfd.
const ABOUT: &str = "stentor-about";
/// Maximum length of the text that a reader accepts, in bytes.
const LONGEST: u64 = 1 << 20;
/// First field of the text: the name and the number of the format.
const FORMAT: &[u8] = b"stentor about 2";

/// The configuration from which a process was started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Name of the cluster in the configuration.
    pub cluster: String,
    /// Path of the configuration file.
    pub file: PathBuf,
    /// Addresses of the members in the file; empty on fabrics without addresses.
    pub addresses: Vec<String>,
}

/// The start parameters of a running process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct About {
    /// Name of the cluster in the configuration.
    pub cluster: String,
    /// Name of the process in the configuration.
    pub name: String,
    /// Path of the configuration file, absolute and without symbolic links.
    pub file: PathBuf,
    /// The directory with the cluster directories.
    pub directory: PathBuf,
    /// Name of the process's cluster directory in `directory`.
    pub meeting: String,
    /// Id of the process in the cluster.
    pub me: ProcessId,
    /// The addresses of the members; see [`Source::addresses`].
    pub addresses: Vec<String>,
}

impl About {
    pub(crate) fn publish(&self) -> Result<OwnedFd, Errno> {
        let number = self.me.0.to_string();
        let (cluster, name) = (OsStr::new(&self.cluster), OsStr::new(&self.name));
        let (file, directory) = (self.file.as_os_str(), self.directory.as_os_str());
        let fields = [cluster, name, file, directory, OsStr::new(&self.meeting), OsStr::new(&number)];
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
        let mut field = || Some(OsStr::from_bytes(fields.next()?));
        let (cluster, name, file, directory) = (field()?, field()?, field()?.into(), field()?.into());
        let [cluster, name] = [cluster, name].map(|text| text.to_string_lossy().into_owned());
        let mut text = fields.map(|field| String::from_utf8_lossy(field).into_owned());
        let (meeting, me) = (text.next()?, ProcessId(text.next()?.parse().ok()?));
        Some(About { cluster, name, file, directory, meeting, me, addresses: text.collect() })
    }

    /// Returns the first start parameters of process `pid` for which `is_it` returns true. A process that runs several
    /// members publishes several sets of parameters. Only processes of this user are readable.
    pub(crate) fn of(pid: i32, is_it: impl Fn(&About) -> bool) -> Option<About> {
        if pid <= 0 {
            return None;
        }
        let name = format!("/memfd:{ABOUT}");
        let is_about = |path: &PathBuf| {
            fs::read_link(path).is_ok_and(|target| target.as_os_str().as_bytes().starts_with(name.as_bytes()))
        };
        let read = |path: PathBuf| {
            let is_short = fs::metadata(&path).ok()?.len() <= LONGEST;
            About::read(&fs::read(path).ok().filter(|_| is_short)?)
        };
        let open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?;
        open.filter_map(|entry| Some(entry.ok()?.path())).filter(is_about).filter_map(read).find(is_it)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_start_parameters_are_read_back() {
        let about = About {
            cluster: "c".to_owned(),
            name: "g.3".to_owned(),
            file: "/etc/c l.toml".into(),
            directory: PathBuf::from(OsStr::from_bytes(b"/run/\xff")),
            meeting: "roce-7".to_owned(),
            me: ProcessId(3),
            addresses: vec!["h:1".to_owned(), "h:2".to_owned()],
        };
        let pid = std::process::id() as i32;
        let other = About { name: "g.4".to_owned(), me: ProcessId(4), ..about.clone() };
        let of_another_cluster = About { cluster: "d".to_owned(), ..about.clone() };
        let all = [of_another_cluster, other, about];
        let _kept = all.each_ref().map(|about| about.publish().unwrap());
        for about in &all {
            let found = About::of(pid, |found| (&found.cluster, &found.name) == (&about.cluster, &about.name));
            assert_eq!(found.as_ref(), Some(about));
        }
        assert_eq!(About::of(pid, |found| found.name == "g.5"), None);
        assert_eq!(About::of(0, |_| true), None);
        assert_eq!(About::read(b"stentor about 1\0c\0g.1\0/a\0/b\0m\x001"), None);
    }
}
