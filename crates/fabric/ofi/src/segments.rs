//! Room for the files in `/dev/shm` that providers map.
//!
//! Providers on shared memory make a file there for each endpoint and map it without allocating it. A page for which there is no
//! room kills whoever touches it with SIGBUS, and `/dev/shm` of a container has 64 MiB unless somebody says otherwise. So the room
//! is looked at before an endpoint is made. Processes of this library make theirs one after the other: what one of them has
//! seen is not taken by the next one meanwhile.
//!
//! An endpoint that is there goes on to touch little more than what it touched when it was made. If other programs fill
//! `/dev/shm` completely, that can still be too much.

use std::fmt;
use std::fs::File;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, open, statvfs};

use crate::domain::MakeError;
use crate::errno::Errno;
use crate::info::{Info, has_segments};

/// Where providers make them.
pub const DIRECTORY: &str = "/dev/shm";

/// Bytes that an endpoint may take: one of libfabric 1.17's `shm` touches 3.8 MiB when it is made, and 2.3 MiB more at most for
/// its one peer, if that can only be written to piece by piece. The file is 16 MiB long.
pub const SEGMENT_BYTES: u64 = 8 << 20;

/// Bytes of the file of an endpoint. libfabric's `shm` looks whether there is room for one of them per processor, and is not there
/// at all where there is not.
const FILE_BYTES: u64 = 16 << 20;

/// A process that is stopped while it makes an endpoint holds up the others no longer than that.
const PATIENCE: Duration = Duration::from_secs(1);

/// What to do.
pub(crate) const REMEDY: &str = "enlarge it (docker run --shm-size=1g, or mount -o remount,size=1g /dev/shm), remove what dead processes left in \
                      it, or name another provider, as \"tcp;ofi_rxm\"";

/// The room in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Space {
    /// Bytes that are left.
    pub left: u64,
    /// Bytes of all.
    pub total: u64,
}

impl Space {
    /// Looks at a directory. `None`: it has no limit, or it cannot be looked at.
    #[must_use]
    pub fn of(directory: &Path) -> Option<Space> {
        let found = statvfs(directory).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.f_frsize);
        // A tmpfs without a limit says that it has no blocks.
        (found.f_blocks != 0).then(|| Space { left: bytes(found.f_bavail), total: bytes(found.f_blocks) })
    }

    /// Returns why there is no room for another endpoint, if there is none.
    fn lack(self) -> Option<String> {
        let needed = Mib(SEGMENT_BYTES);
        (self.left < SEGMENT_BYTES).then(|| format!("endpoint, which needs {needed} in {DIRECTORY}, where {self}"))
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

/// Too little room for a provider to be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shortage {
    /// Bytes that libfabric wants to be left before it offers the provider.
    needed: u64,
    space: Space,
}

impl Shortage {
    /// Looks at [`DIRECTORY`]. `None`: if the provider is not there, it is not for want of room.
    pub(crate) fn of(provider: &str) -> Option<Shortage> {
        let processors = thread::available_parallelism().map_or(1, |count| count.get() as u64);
        let (needed, space) = (processors * FILE_BYTES, Space::of(Path::new(DIRECTORY))?);
        (has_segments(provider) && space.left < needed).then_some(Shortage { needed, space })
    }

    /// Whether there would be room if others left what they took. Else no process of this host sees the provider.
    pub(crate) fn passes(self) -> bool {
        self.space.total >= self.needed
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "libfabric wants {} in {DIRECTORY}, where {}", Mib(self.needed), self.space)
    }
}

/// Held while an endpoint is made: no other process of this library makes one meanwhile.
#[derive(Debug)]
pub(crate) struct Making {
    _turn: Option<File>,
}

impl Making {
    /// Waits for its turn, and looks whether there is room.
    ///
    /// # Errors
    /// There is none: what there is, what is needed, and what to do.
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

/// The directory, locked. `None` if that is not possible, or not in time: then nobody is waited for.
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
    fn room_for_one_endpoint_is_enough_and_less_is_not() {
        let space = |left| Space { left, total: 64 << 20 };
        assert_eq!(space(SEGMENT_BYTES).lack(), None);
        let why = space(SEGMENT_BYTES - 1).lack().expect("one byte is missing");
        for part in ["needs 8.0 MiB in /dev/shm", "8.0 MiB of 64.0 MiB are left"] {
            assert!(why.contains(part), "{why}");
        }
    }

    #[test]
    fn provider_without_room_is_told_from_one_that_is_not_installed() {
        assert_eq!(Shortage::of("tcp;ofi_rxm"), None);
        let shortage = |total| Shortage { needed: 32 << 20, space: Space { left: 8 << 20, total } };
        assert!(shortage(64 << 20).passes() && !shortage(16 << 20).passes());
        let text = shortage(64 << 20).to_string();
        assert_eq!(text, "libfabric wants 32.0 MiB in /dev/shm, where 8.0 MiB of 64.0 MiB are left");
    }

    #[test]
    fn a_directory_has_room_or_no_limit() {
        assert_eq!(Space::of(Path::new("/nonexistent")), None);
        let space = Space::of(&std::env::temp_dir());
        assert!(space.is_none_or(|space| space.left <= space.total), "{space:?}");
    }

    /// Who does not get its turn goes on without it.
    #[test]
    fn endpoints_are_made_one_after_the_other() {
        let directory = std::env::temp_dir().join(format!("stentor-turn-{}", std::process::id()));
        std::fs::create_dir(&directory).unwrap();
        let first = turn(&directory, Duration::ZERO);
        assert!(first.is_some() && turn(&directory, Duration::from_millis(20)).is_none());
        drop(first);
        assert!(turn(&directory, Duration::ZERO).is_some());
        std::fs::remove_dir(&directory).unwrap();
    }
}
