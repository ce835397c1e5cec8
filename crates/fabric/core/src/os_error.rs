//! Errors of the operating system and their remedies.

use std::error::Error;
use std::fmt;
use std::io;

/// An error number of the operating system, as a type that can be copied and compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OsError(pub i32);

// Error numbers of Linux, which are equal on all processors that this project supports.
const EAGAIN: i32 = 11;
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const EFBIG: i32 = 27;
const ENOSPC: i32 = 28;
const EROFS: i32 = 30;
const EDQUOT: i32 = 122;

impl OsError {
    /// Returns the remedy if a limit or a device was exhausted, or a file system is read-only. `EAGAIN` counts as the
    /// limit of processes and threads: callers that wait for a socket do not ask for a remedy.
    #[must_use]
    pub fn remedy(self) -> Option<&'static str> {
        Some(match self.0 {
            EAGAIN => {
                "allow this user more processes and threads (ulimit -u; TasksMax= of a service; pids.max of the cgroup)"
            }
            ENOMEM => {
                "allow this process more memory (ulimit -v; MemoryMax= of a service; memory.max of the cgroup), or lower [limits]"
            }
            ENFILE => "raise the system's limit of open files (sysctl fs.file-max)",
            EMFILE => "raise the limit of open files (`ulimit -n 256` or more; LimitNOFILE= of a service)",
            EFBIG => {
                "raise the limit of file sizes, which also applies to shared memory (ulimit -f; LimitFSIZE= of a service)"
            }
            ENOSPC => "make room on that file system (df -h, df -i), or choose a path on another one",
            EROFS => "mount that file system writable, or choose a path on another one",
            EDQUOT => "make room in this user's quota of that file system, or choose a path on another one",
            _ => return None,
        })
    }

    /// Returns whether the error means that this process, its user or the system has run out of open files or memory.
    #[must_use]
    pub fn is_limit(self) -> bool {
        [ENOMEM, ENFILE, EMFILE].contains(&self.0)
    }

    /// Returns the message of the operating system, with the remedy if there is one.
    #[must_use]
    pub fn with_remedy(self) -> String {
        self.remedy().map_or_else(|| self.to_string(), |remedy| format!("{self}; {remedy}"))
    }

    /// Returns the [`remedy`](Self::remedy) for an I/O error.
    #[must_use]
    pub fn remedy_for(error: &io::Error) -> Option<&'static str> {
        Self::of(error).and_then(Self::remedy)
    }

    /// Returns the first [`remedy`](Self::remedy) for an operating-system error among an error and its causes.
    #[must_use]
    pub fn remedy_in(error: &(dyn Error + 'static)) -> Option<&'static str> {
        let causes = std::iter::successors(Some(error), |error| (*error).source());
        let number = |error: &(dyn Error + 'static)| {
            error.downcast_ref().copied().or_else(|| error.downcast_ref().and_then(OsError::of))
        };
        causes.filter_map(number).find_map(Self::remedy)
    }

    fn of(error: &io::Error) -> Option<Self> {
        error.raw_os_error().map(OsError)
    }
}

impl fmt::Display for OsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl Error for OsError {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RegisterError;

    #[test]
    fn remedy_names_the_exhausted_limit() {
        for (number, part) in [(EMFILE, "ulimit -n"), (EFBIG, "ulimit -f"), (EAGAIN, "ulimit -u"), (ENOSPC, "df -h")] {
            let remedy = OsError::remedy_for(&io::Error::from_raw_os_error(number)).unwrap();
            assert!(remedy.contains(part), "{remedy}");
        }
        // The constants equal the numbers of the operating system.
        assert_eq!(io::Error::from_raw_os_error(ENOSPC).kind(), io::ErrorKind::StorageFull);
        assert_eq!(io::Error::from_raw_os_error(EFBIG).kind(), io::ErrorKind::FileTooLarge);
        assert_eq!(io::Error::from_raw_os_error(EROFS).kind(), io::ErrorKind::ReadOnlyFilesystem);
        assert_eq!(io::Error::from_raw_os_error(EDQUOT).kind(), io::ErrorKind::QuotaExceeded);
        assert_eq!(io::Error::from_raw_os_error(ENOMEM).kind(), io::ErrorKind::OutOfMemory);
        assert_eq!(OsError::remedy_for(&io::Error::from_raw_os_error(2)), None);
        assert_eq!(OsError::remedy_for(&io::ErrorKind::StorageFull.into()), None);
    }

    #[test]
    fn remedy_is_found_among_causes() {
        let error = RegisterError::Refused { bytes: 64, source: OsError(EMFILE) };
        assert!(OsError::remedy_in(&error).unwrap().contains("ulimit -n"));
        let error = io::Error::from_raw_os_error(EROFS);
        assert!(OsError::remedy_in(&error).unwrap().contains("writable"));
        let error = RegisterError::Size { bytes: 1 };
        assert_eq!(OsError::remedy_in(&error), None);
    }
}
