//! Files that get their names only when they are complete.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use crate::live::lock;
use crate::unique;

/// Incomplete files of this process, which are removed even if the process exits without running destructors.
static UNFINISHED: Mutex<Vec<PathBuf>> = Mutex::new(Vec::new());

/// A file that is being written under a temporary name next to its target. Dropping this value removes the file.
#[derive(Debug)]
pub struct Partial {
    part: PathBuf,
    target: PathBuf,
}

impl Partial {
    /// Creates a file that will get the name `target`, which must not exist yet.
    ///
    /// # Errors
    /// Returns [`ErrorKind::AlreadyExists`] if the target exists, or an error of the system.
    pub fn create(target: &Path) -> io::Result<(Self, File)> {
        if fs::symlink_metadata(target).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        Self::beside(target, PLAIN)
    }

    fn beside(target: &Path, mode: u32) -> io::Result<(Self, File)> {
        let mut name = OsString::from(".");
        name.push(target.file_name().ok_or(ErrorKind::InvalidInput)?);
        name.push(format!(".{:016x}.part", unique::number()));
        let part = target.with_file_name(name);
        let file = File::options().write(true).create_new(true).mode(mode).open(&part)?;
        lock(&UNFINISHED).push(part.clone());
        Ok((Partial { part, target: target.to_owned() }, file))
    }

    /// Gives the complete file its name.
    ///
    /// # Errors
    /// Returns [`ErrorKind::AlreadyExists`] if a file of that name exists by now, or an error of the system.
    pub fn keep(self) -> io::Result<()> {
        match renameat_with(CWD, &self.part, CWD, &self.target, RenameFlags::NOREPLACE) {
            // This file system or kernel cannot check and rename in one step.
            Err(Errno::INVAL | Errno::NOSYS) if fs::symlink_metadata(&self.target).is_err() => {
                fs::rename(&self.part, &self.target)
            }
            renamed => Ok(renamed?),
        }
    }
}

/// Handling of an existing file with the name of the new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Existing {
    /// The existing file is kept, and nothing is written.
    Stays,
    /// The existing file is replaced once the new file is complete.
    Goes,
}

/// Permissions of a file that everybody may read, subject to the user's umask.
pub const PLAIN: u32 = 0o666;
/// Permissions of a file that only its owner may read.
pub const SECRET: u32 = 0o600;

/// Writes a file completely or not at all: after a failure, an earlier file is unchanged. Pipes and devices are written
/// directly.
///
/// # Errors
/// Returns [`ErrorKind::AlreadyExists`] if the file exists and is to be kept, or an error of the system.
pub fn write_whole(target: &Path, bytes: &[u8], existing: Existing, mode: u32) -> io::Result<()> {
    if existing == Existing::Stays {
        if fs::symlink_metadata(target).is_ok() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let (partial, mut file) = Partial::beside(target, mode)?;
        file.write_all(bytes)?;
        return partial.keep();
    }
    match fs::metadata(target) {
        Ok(there) if there.is_file() => {
            // A symbolic link is kept, and its target is replaced.
            replace(&fs::canonicalize(target)?, mode, bytes, Some(there.permissions()))
        }
        Ok(_) => File::options().write(true).open(target)?.write_all(bytes),
        Err(_) => replace(target, mode, bytes, None),
    }
}

fn replace(target: &Path, mode: u32, bytes: &[u8], permissions: Option<fs::Permissions>) -> io::Result<()> {
    let (partial, mut file) = Partial::beside(target, mode)?;
    permissions.map_or(Ok(()), |permissions| file.set_permissions(permissions))?;
    file.write_all(bytes)?;
    fs::rename(&partial.part, target)
}

impl Drop for Partial {
    fn drop(&mut self) {
        // The part does not exist any more if it was renamed.
        let _ = fs::remove_file(&self.part);
        lock(&UNFINISHED).retain(|path| *path != self.part);
    }
}

/// Removes the incomplete files of a process that exits without running destructors.
pub fn remove_partial_files() {
    for path in lock(&UNFINISHED).drain(..) {
        let _ = fs::remove_file(path);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn file_is_written_whole_or_stays_as_it_was() {
        let directory = std::env::temp_dir().join(format!("stentor-whole-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let target = directory.join("file");
        write_whole(&target, b"one", Existing::Stays, SECRET).unwrap();
        let refused = write_whole(&target, b"two", Existing::Stays, PLAIN).unwrap_err();
        assert_eq!((refused.kind(), fs::read(&target).unwrap().as_slice()), (ErrorKind::AlreadyExists, &b"one"[..]));
        let link = directory.join("link");
        std::os::unix::fs::symlink(&target, &link).unwrap();
        write_whole(&link, b"three", Existing::Goes, PLAIN).unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"three");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&target).unwrap().permissions());
        assert_eq!(mode & 0o777, SECRET, "it keeps its permissions");
        let full = write_whole(Path::new("/dev/full"), b"x", Existing::Goes, PLAIN).unwrap_err();
        assert_eq!(full.kind(), ErrorKind::StorageFull);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 2);
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn file_gets_its_name_only_when_it_is_complete() {
        let directory = std::env::temp_dir().join(format!("stentor-partial-{}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let target = directory.join("copy");
        let entries = || fs::read_dir(&directory).unwrap().count();
        let (given_up, _file) = Partial::create(&target).unwrap();
        assert!(!target.exists() && entries() == 1);
        drop(given_up);
        assert_eq!(entries(), 0);
        let (partial, mut file) = Partial::create(&target).unwrap();
        file.write_all(b"all").unwrap();
        partial.keep().unwrap();
        assert_eq!((fs::read(&target).unwrap().as_slice(), entries()), (&b"all"[..], 1));
        assert_eq!(Partial::create(&target).unwrap_err().kind(), ErrorKind::AlreadyExists);
        fs::remove_file(&target).unwrap();
        let (late, _file) = Partial::create(&target).unwrap();
        fs::write(&target, "another's").unwrap();
        assert_eq!(late.keep().unwrap_err().kind(), ErrorKind::AlreadyExists);
        assert_eq!(fs::read_to_string(&target).unwrap(), "another's");
        fs::remove_dir_all(&directory).unwrap();
    }
}
