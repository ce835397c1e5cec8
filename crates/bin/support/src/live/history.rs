//! The file of a history: whole lines, or none.
//!
//! Space is reserved before lines are written, so that a disk that fills refuses the reservation and never half a line. A
//! little is kept back for the last word, the event that says that nothing more is recorded.

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::{Errno, retry_on_intr};
use rustix::process::{Resource, getrlimit};
use stentor::runtime::{ClusterRuntime, Recorder};
use stentor_checker::Cluster;
use stentor_checker::history::Reader;
use stentor_fabric::ProcessId;

use crate::Failure;

/// Bytes kept back for the last word.
const LAST_WORD_BYTES: u64 = 512;
/// Bytes read at once.
const READ_BYTES: usize = 256 << 10;
/// Bytes reserved at once, where there is room for so much.
const AHEAD_BYTES: u64 = 256 << 10;

/// A history that is being written, by whole lines: each write is all of some lines. Once a write has failed only one more
/// is tried, the last word.
#[derive(Debug)]
pub struct HistoryFile {
    file: File,
    path: PathBuf,
    /// Bytes of whole lines.
    bytes: u64,
    /// Up to here there is room. All of it, where the file system reserves nothing.
    reserved: u64,
    /// The limit of the size of files.
    most: u64,
    failed: bool,
}

impl HistoryFile {
    /// Makes the file; one that exists is never overwritten.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::options().append(true).create_new(true).open(path);
        let file = file.map_err(|error| Failure::cannot_create("history", path, &error))?;
        let most = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        Ok(HistoryFile { file, path: path.to_owned(), bytes: 0, reserved: 0, most, failed: false })
    }

    /// Begins the history of a process in a file of its own.
    ///
    /// # Errors
    /// When the file exists, or cannot be written.
    pub fn record(plan: &ClusterRuntime, process: ProcessId, path: &Path) -> Result<Recorder<Self>, Failure> {
        Recorder::new(plan, process, Self::create(path)?).map_err(|error| Failure::cannot_write(path, &error))
    }

    /// Sees to it that the file may become so long.
    fn reserve(&mut self, end: u64) -> io::Result<()> {
        if end > self.most {
            return Err(Errno::FBIG.into());
        }
        let mut refused = None;
        for wanted in [end + AHEAD_BYTES, end] {
            if end <= self.reserved {
                return Ok(());
            }
            let (from, bytes) = (self.reserved, wanted - self.reserved);
            match retry_on_intr(|| fallocate(&self.file, FallocateFlags::KEEP_SIZE, from, bytes)) {
                Ok(()) => self.reserved = wanted,
                Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::FBIG)) => refused = Some(error),
                // Not on this file system: a write that fails half-way is cut off again.
                Err(_) => self.reserved = u64::MAX,
            }
        }
        refused.filter(|_| end > self.reserved).map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Write for HistoryFile {
    fn write(&mut self, lines: &[u8]) -> io::Result<usize> {
        let end = self.bytes + lines.len() as u64;
        let room = if self.failed { Ok(()) } else { self.reserve(end + LAST_WORD_BYTES) };
        let written = room.and_then(|()| {
            self.file.write_all(lines).inspect_err(|_| {
                // If not even that is possible, whoever reads leaves out the line that is cut off.
                let _ = self.file.set_len(self.bytes);
            })
        });
        self.failed |= written.is_err();
        written?;
        self.bytes = end;
        Ok(lines.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for HistoryFile {
    fn drop(&mut self) {
        // Nothing was recorded: then there is no history. Otherwise what was reserved is given back.
        let _ = if self.bytes == 0 { fs::remove_file(&self.path) } else { self.file.set_len(self.bytes) };
    }
}

/// Begins to read a history that a process of this program wrote.
///
/// # Errors
/// When it cannot be read.
pub fn read_history(path: &Path) -> Result<(Reader<BufReader<File>>, Cluster), Failure> {
    let file = File::open(path).map_err(|error| Failure::run(error, path.display(), "report this as a bug"))?;
    Ok(Reader::open(path.display().to_string(), BufReader::with_capacity(READ_BYTES, file))?)
}

/// A history that cannot be written any more: what it means, and what to do. It was given its last word.
pub fn unwritten(path: &Path, error: &io::Error) -> Failure {
    let Failure { remedy, .. } = Failure::cannot_write(path, error);
    let what = format_args!("cannot write the history: {error}; what it has is whole, and it ends there");
    Failure::run(what, path.display(), remedy)
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;

    use super::*;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("stentor-history-{name}-{}", std::process::id()))
    }

    #[test]
    fn file_has_whole_lines_and_the_last_word() {
        let path = place("limit");
        let mut file = HistoryFile::create(&path).unwrap();
        file.most = 3000;
        let line = [b'x'; 999].into_iter().chain([b'\n']).collect::<Vec<_>>();
        file.write_all(&line).unwrap();
        file.write_all(&line).unwrap();
        // There would be room for this one, but not for the last word behind it.
        assert_eq!(file.write(&line).unwrap_err().kind(), ErrorKind::FileTooLarge);
        file.write_all(b"over\n").unwrap();
        drop(file);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!((text.len(), text.ends_with("\nover\n")), (2005, true));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn history_without_a_line_is_none() {
        let path = place("none");
        drop(HistoryFile::create(&path).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn what_is_there_is_not_overwritten() {
        let path = place("there");
        fs::write(&path, "x").unwrap();
        assert!(HistoryFile::create(&path).unwrap_err().what.contains("exists already"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "x");
        fs::remove_file(&path).unwrap();
    }
}
