//! Temporary directories.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::ops::Deref;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A fresh, empty directory, which is removed with its content on drop.
///
/// Only the current user may enter it. Its name has at most 31 bytes, because a Unix socket's path has at most 107.
#[derive(Debug)]
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates a directory that no other test uses.
    ///
    /// # Panics
    /// Panics if the system's directory for temporary files is not writable.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        loop {
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            let path = std::env::temp_dir().join(format!("stentor-test-{}-{number}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return TempDir(path),
                // A killed process with the same process id has left this directory.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => panic!("{}: {error}", path.display()),
            }
        }
    }

    /// Creates a directory with `files`, each a path and one line of text, as in the kernel's description of devices in
    /// sysfs. Creates parent directories as needed.
    ///
    /// # Panics
    /// Panics if the system's directory for temporary files is not writable.
    #[must_use]
    pub fn with_lines(files: &[(&str, &str)]) -> Self {
        let directory = Self::new();
        for (path, text) in files {
            directory.file(path, format!("{text}\n"));
        }
        directory
    }

    /// Writes a file in the directory, and creates its parent directories. Returns the file's path.
    ///
    /// # Panics
    /// Panics if the file cannot be written.
    pub fn file(&self, path: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.join(path);
        let made = path.parent().map_or(Ok(()), fs::create_dir_all).and_then(|()| fs::write(&path, text));
        made.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        path
    }
}

impl Default for TempDir {
    fn default() -> Self {
        Self::new()
    }
}

impl Deref for TempDir {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<Path> for TempDir {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<OsStr> for TempDir {
    fn as_ref(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_distinct_and_removed_with_their_content() {
        let (one, other) = (TempDir::new(), TempDir::with_lines(&[("a/b", "text")]));
        assert_ne!(*one, *other);
        assert_eq!(fs::read_dir(&one).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(other.join("a/b")).unwrap(), "text\n");
        let path = other.to_path_buf();
        drop(other);
        assert!(!path.exists());
    }
}
