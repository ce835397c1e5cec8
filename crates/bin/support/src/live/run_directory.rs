//! The directory of a run of several processes. It has the configuration, the key, and the histories and output of all
//! processes.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::ValueEnum;

use super::{this_program, write_key};
use crate::args::name_of;
use crate::{Failure, Janitor, unique};

/// Longest path of the socket directory, in bytes. A socket path has at most 107 bytes, and this leaves room for the
/// names in it.
const LONGEST_SOCKETS: usize = 60;
/// Name of the directory of control sockets, inside the directory of the run.
const SOCKETS: &str = "sockets";
/// Longest line of a history, in bytes.
const LONGEST_LINE: u64 = 256 << 10;

/// The directory of one run. It is removed at the end, even if this process is killed, unless [`keep`](Self::keep) was
/// called. A directory that the user named is never removed.
pub struct RunDirectory {
    path: PathBuf,
    config: PathBuf,
    what: &'static str,
    keep: AtomicBool,
    janitor: Option<Janitor>,
}

impl RunDirectory {
    /// Name of the file with the cluster's key, in the directory.
    pub const KEY: &str = "cluster.key";

    /// Creates the directory: the one that the user named, which must be empty or absent, or a new temporary one whose
    /// name contains `what`.
    ///
    /// # Errors
    /// Returns an error if it cannot be created or is not empty, or if the process that removes it cannot be started.
    pub fn new(what: &'static str, named: Option<&Path>) -> Result<Self, Failure> {
        let path = named.map_or_else(|| unique::directory(what), empty)?;
        let keep = named.is_some();
        let config = path.join("cluster.toml");
        let mut directory = RunDirectory { path, config, what, keep: AtomicBool::new(keep), janitor: None };
        if !keep {
            directory.janitor = Some(Janitor::start(&directory.path)?);
        }
        Ok(directory)
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of the configuration file.
    pub fn config(&self) -> PathBuf {
        self.config.clone()
    }

    /// Uses a configuration file outside the directory.
    pub fn use_config(&mut self, config: PathBuf) {
        self.config = config;
    }

    /// Returns a command that runs `stentor node` for a member. The node ends with its standard input. The caller may
    /// add arguments.
    ///
    /// # Errors
    /// Returns an error if the path of this program is unknown.
    pub fn node(&self, name: &str, life: u32, wait: &impl ValueEnum, history: &Path) -> io::Result<Command> {
        let mut command = this_program()?;
        command.args(["node", "--json", "--until-eof", "--id", name, "--wait", &name_of(wait)]);
        command.arg("--config").arg(&self.config).arg("--directory").arg(self.sockets());
        command.arg("--history").arg(history).arg("--life").arg(life.to_string());
        Ok(command)
    }

    /// Writes the configuration. Returns its path.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub fn write_config(&self, text: &str) -> Result<PathBuf, Failure> {
        self.write("cluster.toml", text)
    }

    /// Writes a file with this name. Returns its path.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub fn write(&self, name: &str, text: impl AsRef<[u8]>) -> Result<PathBuf, Failure> {
        let path = self.path.join(name);
        fs::write(&path, text).map_err(|error| Failure::cannot_write(&path, &error))?;
        Ok(path)
    }

    /// Writes a new key for the cluster. Returns its path.
    ///
    /// # Errors
    /// Returns an error if it cannot be written.
    pub fn write_key(&self) -> Result<PathBuf, Failure> {
        let path = self.path.join(Self::KEY);
        write_key(&path).map_err(|error| Failure::cannot_write(&path, &error))?;
        Ok(path)
    }

    /// Returns the directory of the control sockets. The fabric creates it, and the last process that ends in order
    /// removes it.
    pub fn sockets(&self) -> PathBuf {
        let inside = self.path.join(SOCKETS);
        let name = format!("{}-sockets", unique::name(self.what));
        let elsewhere = [inside, std::env::temp_dir().join(&name)];
        let short = elsewhere.into_iter().find(|path| path.as_os_str().len() <= LONGEST_SOCKETS);
        short.unwrap_or_else(|| Path::new("/tmp").join(name))
    }

    /// Returns the path of the history of a process in one of its lives.
    pub fn history(&self, name: &str, life: u32) -> PathBuf {
        self.file(name, life, "jsonl")
    }

    /// Returns the path of a file of a process in one of its lives.
    pub fn file(&self, name: &str, life: u32, extension: &str) -> PathBuf {
        self.path.join(format!("{name}.{life}.{extension}"))
    }

    /// Returns the paths of all histories, sorted.
    ///
    /// # Errors
    /// Returns an error if the directory cannot be read.
    pub fn histories(&self) -> Result<Vec<PathBuf>, Failure> {
        let unreadable = |error| Failure::run(error, self.path.display(), "let no other program change that directory");
        let entries = fs::read_dir(&self.path).map_err(unreadable)?;
        let paths = entries.map(|entry| Ok(entry?.path())).collect::<io::Result<Vec<_>>>();
        let mut paths = paths.map_err(unreadable)?;
        paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
        paths.sort();
        Ok(paths)
    }

    /// Keeps the directory after the run.
    pub fn keep(&self) {
        self.keep.store(true, Ordering::Relaxed);
    }

    /// Returns the path of the directory if it is kept.
    pub fn kept(&self) -> Option<PathBuf> {
        self.keep.load(Ordering::Relaxed).then(|| self.path.clone())
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        let kept = self.keep.load(Ordering::Relaxed);
        // Sockets of killed processes are not worth keeping. Files that cannot be removed are left to the system's
        // cleaning of temporary files.
        let _ = fs::remove_dir_all(if kept { self.path.join(SOCKETS) } else { self.path.clone() });
        if let Some(janitor) = self.janitor.take() {
            janitor.dismiss();
        }
    }
}

/// Creates a directory that a user named, or accepts an existing empty one.
fn empty(path: &Path) -> Result<PathBuf, Failure> {
    fs::create_dir_all(path).map_err(|error| Failure::cannot_write(path, &error))?;
    let mut entries = fs::read_dir(path).map_err(|error| Failure::cannot_write(path, &error))?;
    if entries.next().is_some() {
        let remedy = "name a directory that is empty or does not exist";
        return Err(Failure::usage("the directory is not empty; nothing was changed", path.display(), remedy));
    }
    fs::canonicalize(path).map_err(|error| Failure::cannot_write(path, &error))
}

/// Removes the incomplete last line from the history of a process that was killed. A history without a complete line is
/// removed. A missing history is no error: the process was killed before it wrote an event.
///
/// # Errors
/// Returns an error if the file cannot be changed.
pub fn trim_history(path: &Path) -> Result<(), Failure> {
    let trim = || -> io::Result<()> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        let from = file.metadata()?.len().saturating_sub(LONGEST_LINE);
        file.seek(SeekFrom::Start(from))?;
        let mut end = Vec::new();
        File::read_to_end(&mut file, &mut end)?;
        match end.iter().rposition(|byte| *byte == b'\n') {
            Some(at) => file.set_len(from + at as u64 + 1),
            None => fs::remove_file(path),
        }
    };
    match trim() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(|error| Failure::cannot_write(path, &error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_kept_has_no_sockets_left() {
        let outer = unique::directory("run").expect("the outer directory can be made");
        let named = outer.join("kept");
        let directory = RunDirectory::new("run", Some(&named)).expect("the run's directory can be made");
        fs::create_dir(named.join(SOCKETS)).expect("the directory of sockets can be made");
        fs::write(named.join(SOCKETS).join("of a process that was killed"), "")
            .expect("the old socket's file can be written");
        let history = directory.history("a", 1);
        fs::write(&history, "").expect("the history can be written");
        drop(directory);
        assert!(history.exists() && !named.join(SOCKETS).exists());
        fs::remove_dir_all(outer).expect("the outer directory can be removed");
    }
}
