//! The file of a history. Once writing has ended, it contains whole lines, or does not exist.
//!
//! Space is reserved before lines are written. On a full disk the reservation fails, so no line is written in part. On
//! a file system that cannot reserve space, a line that was written in part is removed. `LAST_WORD_BYTES` are kept back
//! for the final event, which records that the history ends there.

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

/// Bytes kept back for the final event.
const LAST_WORD_BYTES: u64 = 512;
/// Size of the read buffer, in bytes.
const READ_BYTES: usize = 256 << 10;
/// Number of bytes that are reserved at a time, if the disk has room for them.
const AHEAD_BYTES: u64 = 256 << 10;

/// A history that is being written. Each write consists of whole lines. After a failed write, only the final event may
/// be written.
#[derive(Debug)]
pub struct HistoryFile {
    file: File,
    path: PathBuf,
    /// Bytes of the whole lines that were written.
    bytes: u64,
    /// End of the reserved space, as an offset. `u64::MAX` on file systems that cannot reserve space.
    reserved: u64,
    /// Limit of the size of files (`RLIMIT_FSIZE`), in bytes.
    most: u64,
    failed: bool,
}

impl HistoryFile {
    /// Creates the file. An existing file is never overwritten.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let file = File::options().append(true).create_new(true).open(path);
        let file = file.map_err(|error| Failure::cannot_create("history", path, &error))?;
        let most = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        Ok(HistoryFile { file, path: path.to_owned(), bytes: 0, reserved: 0, most, failed: false })
    }

    /// Creates a file and begins the history of a process in it.
    ///
    /// # Errors
    /// Returns an error if the file exists or cannot be written.
    pub fn record(plan: &ClusterRuntime, process: ProcessId, path: &Path) -> Result<Recorder<Self>, Failure> {
        Recorder::new(plan, process, Self::create(path)?).map_err(|error| Failure::cannot_write(path, &error))
    }

    /// Reserves space for the file up to the offset `end`.
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
                // This file system cannot reserve space. A write that fails half-way is truncated instead.
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
                // If truncating fails too, readers of the history skip the incomplete line.
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
        // A history without lines is removed. Otherwise the space that was reserved and not used is released.
        let _ = if self.bytes == 0 { fs::remove_file(&self.path) } else { self.file.set_len(self.bytes) };
    }
}

/// Opens a history that a process of this program wrote.
///
/// # Errors
/// Returns an error if it cannot be read.
pub fn read_history(path: &Path) -> Result<(Reader<BufReader<File>>, Cluster), Failure> {
    let file = File::open(path).map_err(|error| Failure::run(error, path.display(), "report this as a bug"))?;
    Ok(Reader::open(path.display().to_string(), BufReader::with_capacity(READ_BYTES, file))?)
}

/// Returns the failure of a process that can no longer write its history. The caller has tried to write the final event
/// before.
pub fn unwritten(path: &Path, error: &io::Error) -> Failure {
    let Failure { remedy, .. } = Failure::cannot_write(path, error);
    let what = format_args!("cannot write the history: {error}; it ends before this point, with a whole line");
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
        // The file has room for this line, but not for the final event after it.
        assert_eq!(file.write(&line).unwrap_err().kind(), ErrorKind::FileTooLarge);
        file.write_all(b"over\n").unwrap();
        drop(file);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!((text.len(), text.ends_with("\nover\n")), (2005, true));
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn history_without_a_line_is_removed() {
        let path = place("none");
        drop(HistoryFile::create(&path).unwrap());
        assert!(!path.exists());
    }

    #[test]
    fn existing_file_is_not_overwritten() {
        let path = place("there");
        fs::write(&path, "x").unwrap();
        assert!(HistoryFile::create(&path).unwrap_err().what.contains("exists already"));
        assert_eq!(fs::read_to_string(&path).unwrap(), "x");
        fs::remove_file(&path).unwrap();
    }
}
