//! Space for the files in `/dev/shm` that providers map.
//!
//! Shared-memory providers create a file there for each endpoint and map it without allocating its pages. If there is
//! no space for a page, the kernel kills the process that touches it by SIGBUS. A container's `/dev/shm` has only 64
//! MiB by default.
//!
//! Therefore the free space is checked before an endpoint is created. Processes that use this crate create their
//! endpoints one after another, so that none of them uses up the space between the check and the creation of another. A
//! process that has waited for [`PATIENCE`] does not wait any longer.
//!
//! Later, an endpoint touches few pages beyond those that its creation touched. If other programs fill `/dev/shm`
//! completely, the space for these pages can still be missing.

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, statvfs};

use crate::domain::MakeError;
use crate::errno::Errno;
use crate::info::{Info, has_segments};

/// Directory in which providers create the files.
pub const DIRECTORY: &str = "/dev/shm";

/// Space that an endpoint may use, in bytes. The `shm` provider of libfabric 1.17 touches 3.8 MiB when an endpoint is
/// created. It touches at most 2.3 MiB more for the endpoint's only peer, if it must copy data to that peer piece by
/// piece. An endpoint's file is 16 MiB long.
pub const SEGMENT_BYTES: u64 = 8 << 20;

/// Length of an endpoint's file, in bytes. libfabric does not offer `shm` if there is less space than for one such file
/// per processor.
const FILE_BYTES: u64 = 16 << 20;

/// Maximum time to wait for another process's lock. It limits the delay if that process is stopped while it creates an
/// endpoint.
const PATIENCE: Duration = Duration::from_secs(1);

/// Advice for a user who has too little space in [`DIRECTORY`].
pub(crate) const REMEDY: &str = "enlarge it (docker run --shm-size=1g, or mount -o remount,size=1g /dev/shm), remove the files of dead \
                      processes there, or name another provider, for instance \"tcp;ofi_rxm\"";

/// Space of a file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Number of free bytes.
    pub left: u64,
    /// Total number of bytes.
    pub total: u64,
}

impl Space {
    /// Reads the space of a directory's file system. Returns `None` if the file system has no limit or cannot be read.
    #[must_use]
    pub fn of(directory: &Path) -> Option<Space> {
        let found = statvfs(directory).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        // A tmpfs without a limit reports 0 blocks.
        (found.f_blocks != 0).then(|| Space { left: bytes(found.f_bavail), total: bytes(found.f_blocks) })
    }

    /// Returns a description of the problem if there is too little space for another endpoint.
    fn lack(self) -> Option<String> {
        let needed = Mib(SEGMENT_BYTES);
        (self.left < SEGMENT_BYTES).then(|| format!("an endpoint, which needs {needed} in {DIRECTORY}, where {self}"))
    }
}

impl fmt::Display for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} are left", Mib(self.left), Mib(self.total))
    }
}

struct Mib(u64);

impl fmt::Display for Mib {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.1} MiB", self.0 as f64 / f64::from(1 << 20))
    }
}

/// A lack of space because of which libfabric does not offer a provider.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// Free space that libfabric requires before it offers the provider, in bytes.
    needed: u64,
    space: Space,
}

impl Shortage {
    /// Checks the space in [`DIRECTORY`]. Returns `None` if lack of space is not the reason why libfabric does not
    /// offer the provider.
    pub(crate) fn of(provider: &str) -> Option<Shortage> {
        let processors = thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let (needed, space) = (processors * FILE_BYTES, Space::of(Path::new(DIRECTORY))?);
        (has_segments(provider) && space.left < needed).then_some(Shortage { needed, space })
    }

    /// Returns whether the shortage is temporary: the space would suffice if other programs released theirs. Otherwise
    /// libfabric offers the provider to no process of this host.
    pub(crate) fn passes(self) -> bool {
        self.space.total >= self.needed
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "libfabric requires {} in {DIRECTORY}, where {}", Mib(self.needed), self.space)
    }
}

/// A guard that is held while an endpoint is created. If it has the lock, other processes that use this crate wait
/// meanwhile.
#[derive(Debug)]
pub(crate) struct Making {
    _turn: Option<File>,
}

impl Making {
    /// Waits for the lock, then checks the free space. Does nothing for a provider without files in [`DIRECTORY`].
    ///
    /// # Errors
    /// Returns an error if there is too little space. The error names the free space, the required space and a remedy.
    pub(crate) fn begin(info: &Info) -> Result<Making, MakeError> {
        if !has_segments(info.provider()) {
            return Ok(Making { _turn: None });
        }
        let directory = Path::new(DIRECTORY);
        let _turn = turn(directory, PATIENCE);
        match Space::of(directory).and_then(Space::lack) {
            None => Ok(Making { _turn }),
            Some(what) => Err(MakeError { remedy: REMEDY, ..MakeError::new(info, what, Errno::NO_SPACE) }),
        }
    }
}

/// Opens and locks the directory. Returns `None` if this is impossible or takes longer than `patience`. The endpoint is
/// then created without the lock.
fn turn(directory: &Path, patience: Duration) -> Option<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = open(directory, flags, Mode::empty()).ok()?;
    let since = Instant::now();
    while flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
        if since.elapsed() >= patience {
            return None;
        }
        thread::sleep(Duration::from_millis(1));
    }
    Some(File::from(directory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_for_one_endpoint_suffices_and_one_byte_less_does_not() {
        let space = |left| Space { left, total: 64 << 20 };
        assert_eq!(space(SEGMENT_BYTES).lack(), None);
        let why = space(SEGMENT_BYTES - 1).lack().expect("one byte is missing");
        for part in ["needs 8.0 MiB in /dev/shm", "8.0 MiB of 64.0 MiB are left"] {
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn lack_of_space_is_distinguished_from_a_missing_provider() {
        assert_eq!(Shortage::of("tcp;ofi_rxm"), None);
        let shortage = |total| Shortage { needed: 32 << 20, space: Space { left: 8 << 20, total } };
        assert!(shortage(64 << 20).passes() && !shortage(16 << 20).passes());
        let text = shortage(64 << 20).to_string();
        assert_eq!(text, "libfabric requires 32.0 MiB in /dev/shm, where 8.0 MiB of 64.0 MiB are left");
    }

    #[test]
    fn directory_has_space_or_no_limit() {
        assert_eq!(Space::of(Path::new("/nonexistent")), None);
        let space = Space::of(&std::env::temp_dir());
        assert!(space.is_none_or(|space| space.left <= space.total), "{space:?}");
    }

    /// An endpoint that does not obtain the lock in time is created without it.
    #[test]
    fn only_one_process_creates_an_endpoint_at_a_time() {
        let directory = std::env::temp_dir().join(format!("stentor-turn-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let first = turn(&directory, Duration::ZERO);
        assert!(first.is_some() && turn(&directory, Duration::from_millis(20)).is_none());
        drop(first);
        assert!(turn(&directory, Duration::ZERO).is_some());
        std::fs::remove_dir(&directory).unwrap();
    }
}
