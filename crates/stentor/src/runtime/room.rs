//! The memory that is left for a process here: that of the machine, and that of its control groups.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use stentor_fabric::ProcessId;
use stentor_multicast::ProcessRole;
use thiserror::Error;

use super::cluster::{ClusterRuntime, StartError};
use crate::config::NebConfig;

/// The memory quota of a control group: the tightest of those that this process is in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Quota {
    /// File that contains the limit.
    pub file: PathBuf,
    /// Limit, in bytes.
    pub limit: u64,
    /// Rest of the limit, in bytes. Cached files do not count as used.
    pub left: u64,
}

/// The memory that a new process can use here.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Room {
    /// `MemAvailable` of the machine, in bytes; `None` if it is unknown. Swap does not count, because registered memory
    /// is not swapped out.
    pub available: Option<u64>,
    /// `MemTotal` of the machine, in bytes.
    pub total: Option<u64>,
    /// Rest of the machine's commit limit, in bytes; `None` unless the kernel accounts strictly
    /// (`vm.overcommit_memory` = 2). Beyond the limit, the first access to a page of shared memory fails with SIGBUS.
    pub uncommitted: Option<u64>,
    /// Quota of the control group; `None` if no group limits this process, or if it is unknown.
    pub quota: Option<Quota>,
}

/// An error: the process needs more memory than is left.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
#[error("its limits need {} of memory, and {room}", Bytes(*needed))]
pub struct Shortage {
    /// Memory that the process needs, in bytes.
    pub needed: u64,
    /// Memory that is left.
    pub room: Room,
}

impl Shortage {
    /// Returns the remedy for the shortage.
    #[must_use]
    pub fn remedy(&self) -> String {
        let lower = "lower `clients`, `window`, `body_ring_kib` or `message_bytes` in [limits] of all processes";
        match &self.room.quota {
            Some(quota) if self.room.is_tighter(quota) => {
                format!("{lower}, or raise the limit where the container or service is started")
            }
            _ if self.room.is_strict() => format!("{lower}, or raise vm.overcommit_ratio (`sysctl`)"),
            _ => format!("{lower}, or end other programs"),
        }
    }
}

impl fmt::Display for Room {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.quota, self.available, self.total) {
            (Some(quota), ..) if self.is_tighter(quota) => {
                let (left, limit, file) = (Bytes(quota.left), Bytes(quota.limit), quota.file.display());
                write!(f, "its control group has {left} left of {limit} ({file})")
            }
            _ if self.is_strict() => {
                let left = Bytes(self.uncommitted.unwrap_or(0));
                write!(f, "this machine has {left} left of its commit limit (vm.overcommit_memory is 2)")
            }
            (_, Some(available), Some(total)) => {
                write!(f, "this machine has {} available of {}", Bytes(available), Bytes(total))
            }
            _ => write!(f, "it is not known how much there is"),
        }
    }
}

impl Room {
    /// Examines this machine.
    #[must_use]
    pub fn here() -> Room {
        Room::below(Path::new("/"))
    }

    /// Examines the files of the kernel below `root`: `proc/meminfo`, `proc/sys/vm/overcommit_memory`,
    /// `proc/self/cgroup` and `sys/fs/cgroup`.
    #[must_use]
    pub fn below(root: &Path) -> Room {
        let meminfo = fs::read_to_string(root.join("proc/meminfo")).unwrap_or_default();
        let of = |name: &str| kib(&meminfo, name);
        let mode = fs::read_to_string(root.join("proc/sys/vm/overcommit_memory")).unwrap_or_default();
        let limits = of("CommitLimit:").zip(of("Committed_AS:")).filter(|_| mode.trim() == "2");
        let uncommitted = limits.map(|(limit, committed)| limit.saturating_sub(committed));
        Room { available: of("MemAvailable:"), total: of("MemTotal:"), uncommitted, quota: quota(root) }
    }

    /// Returns the number of bytes that a new process can use; `None` if it is unknown.
    #[must_use]
    pub fn left(&self) -> Option<u64> {
        let quota = self.quota.as_ref().map(|quota| quota.left);
        self.of_machine().into_iter().chain(quota).min()
    }

    fn of_machine(&self) -> Option<u64> {
        self.available.into_iter().chain(self.uncommitted).min()
    }

    /// Returns whether the commit limit is tighter than the memory of the machine.
    fn is_strict(&self) -> bool {
        self.uncommitted.is_some() && self.uncommitted == self.of_machine()
    }

    /// Checks whether `needed` bytes are left. Unknown values are not a reason to refuse.
    ///
    /// # Errors
    /// Returns a [`Shortage`] if fewer bytes are left.
    pub fn check(&self, needed: u64) -> Result<(), Shortage> {
        if self.left().is_some_and(|left| needed > left) {
            return Err(Shortage { needed, room: self.clone() });
        }
        Ok(())
    }

    fn is_tighter(&self, quota: &Quota) -> bool {
        self.of_machine().is_none_or(|left| quota.left <= left)
    }
}

/// A number of bytes, displayed in a suitable unit.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (unit, name) = match self.0 {
            bytes if bytes >= 1 << 40 => (1u64 << 40, "TiB"),
            bytes if bytes >= 1 << 30 => (1 << 30, "GiB"),
            _ => (1 << 20, "MiB"),
        };
        write!(f, "{:.1} {name}", self.0 as f64 / unit as f64)
    }
}

/// Reads a value in KiB from a file with a name and a number in each line, and returns bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    number(text, name).map(|kib| kib.saturating_mul(1024))
}

fn number(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// The file names of one version of control groups.
struct Files {
    limit: &'static str,
    usage: &'static str,
    /// Names of entries in `memory.stat` whose values include those of the groups below.
    cached: [&'static str; 2],
}

const VERSION_1: Files = Files {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    cached: ["total_inactive_file ", "total_active_file "],
};
const VERSION_2: Files =
    Files { limit: "memory.max", usage: "memory.current", cached: ["inactive_file ", "active_file "] };

/// A limit of version 1 that is at least this large means no limit.
const NO_LIMIT: u64 = 1 << 60;

/// Returns the tightest limit of the groups that this process is in, for the version that controls memory here.
fn quota(root: &Path) -> Option<Quota> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let mounted = root.join("sys/fs/cgroup");
    let (top, group, files) = groups
        .lines()
        .find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            let memory = controllers.split(',').any(|name| name == "memory");
            memory.then(|| (mounted.join("memory"), group, VERSION_1))
        })
        .or_else(|| {
            let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
            Some((mounted, group, VERSION_2))
        })?;
    // In a container, the path may be the host's. Then only the top exists, and it is the container's own group.
    let folder = top.join(group.trim_start_matches('/'));
    let above = folder.ancestors().take_while(|folder| folder.starts_with(&top));
    above.filter_map(|folder| quota_of(folder, &files)).min_by_key(|quota| quota.left)
}

fn quota_of(folder: &Path, files: &Files) -> Option<Quota> {
    let read = |name: &str| fs::read_to_string(folder.join(name)).ok();
    // The value `max` is not a number: there is no limit.
    let limit = read(files.limit)?.trim().parse::<u64>().ok().filter(|limit| *limit < NO_LIMIT)?;
    let used = read(files.usage)?.trim().parse::<u64>().ok()?;
    let stat = read("memory.stat").unwrap_or_default();
    let cached: u64 = files.cached.iter().filter_map(|name| number(&stat, name)).sum();
    let left = limit.saturating_sub(used.saturating_sub(cached));
    Some(Quota { file: folder.join(files.limit), limit, left })
}

impl ClusterRuntime {
    /// Returns the memory of the largest process of the cluster in bytes, after a check that this process fits here.
    pub(super) fn most_bytes(&self, me: ProcessId) -> Result<u64, StartError> {
        let memory = self.config().memory();
        let size = match self.topology().role(me) {
            Some(ProcessRole::Member { group, .. }) => Some(self.topology().size(group)),
            _ => None,
        };
        let own = memory.of(size).map_or(0, |process| process.bytes());
        Room::here().check(own)?;
        Ok(memory.processes.iter().map(|process| process.bytes()).max().unwrap_or(0))
    }

    /// Returns the memory of a process of the broadcast in bytes, after a check that it fits here.
    pub(super) fn neb_bytes(&self, neb: &NebConfig) -> Result<u64, StartError> {
        let bytes = neb.config().memory_bytes();
        Room::here().check(bytes)?;
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use stentor_testutil::TempDir;

    use super::*;

    const GIB: u64 = 1 << 30;
    const MEMINFO: &str = "MemTotal:       16777216 kB\nMemFree:         1048576 kB\nMemAvailable:    8388608 kB\n";

    /// Creates the kernel's files below a temporary root.
    fn root(files: &[(&str, &str)]) -> TempDir {
        TempDir::with_lines(&[files, &[("proc/meminfo", MEMINFO)]].concat())
    }

    #[test]
    fn without_control_groups_the_machine_counts() {
        let root = root(&[]);
        let room = Room::below(&root);
        assert_eq!(room, Room { available: Some(8 * GIB), total: Some(16 * GIB), uncommitted: None, quota: None });
        assert_eq!(room.check(8 * GIB), Ok(()));
        let shortage = room.check(8 * GIB + 1).unwrap_err();
        assert_eq!(
            shortage.to_string(),
            "its limits need 8.0 GiB of memory, and this machine has 8.0 GiB available of 16.0 GiB"
        );
        assert!(shortage.remedy().ends_with("end other programs"), "{}", shortage.remedy());
    }

    /// Memory that exists is of no use beyond the commit limit: the process would end by SIGBUS.
    #[test]
    fn strict_accounting_leaves_the_rest_of_the_commit_limit() {
        let meminfo = format!("{MEMINFO}CommitLimit:     4194304 kB\nCommitted_AS:    3145728 kB\n");
        let left = |mode: &str| {
            let root = TempDir::with_lines(&[("proc/meminfo", &meminfo), ("proc/sys/vm/overcommit_memory", mode)]);
            let room = Room::below(&root);
            (room.left(), room.check(9 * GIB).unwrap_err())
        };
        assert_eq!((left("0\n").0, left("1\n").0), (Some(8 * GIB), Some(8 * GIB)));
        let (strict, shortage) = left("2\n");
        assert_eq!(strict, Some(GIB));
        assert!(shortage.to_string().contains("1.0 GiB left of its commit limit"), "{shortage}");
        assert!(shortage.remedy().ends_with("raise vm.overcommit_ratio (`sysctl`)"), "{}", shortage.remedy());
    }

    #[test]
    fn unknown_memory_refuses_nothing() {
        let room = Room::below(Path::new("/nonexistent"));
        assert_eq!((room.left(), room.check(u64::MAX)), (None, Ok(())));
    }

    #[test]
    fn version_2_uses_the_tightest_enclosing_group() {
        let root = root(&[
            ("proc/self/cgroup", "0::/a/b\n"),
            ("sys/fs/cgroup/a/b/memory.max", "max\n"),
            ("sys/fs/cgroup/a/b/memory.current", "1\n"),
            ("sys/fs/cgroup/a/memory.max", "2147483648\n"),
            ("sys/fs/cgroup/a/memory.current", "1610612736\n"),
            ("sys/fs/cgroup/a/memory.stat", "anon 1\nfile 9\ninactive_file 268435456\nactive_file 268435456\n"),
        ]);
        let room = Room::below(&root);
        let quota = room.quota.clone().expect("there is a limit");
        assert_eq!((quota.limit, quota.left), (2 * GIB, GIB), "cached files can be dropped");
        assert_eq!((room.left(), room.check(GIB)), (Some(GIB), Ok(())));
        let shortage = room.check(2 * GIB).unwrap_err();
        assert!(shortage.to_string().contains("its control group has 1.0 GiB left of 2.0 GiB"), "{shortage}");
        assert!(shortage.to_string().contains("a/memory.max)"), "{shortage}");
        assert!(shortage.remedy().contains("where the container or service is started"), "{}", shortage.remedy());
    }

    #[test]
    fn version_1_uses_the_controllers_group_and_ignores_a_huge_limit() {
        let groups = "9:name=systemd:/x\n4:cpu,memory:/a/b\n0::/\n";
        let root = root(&[
            ("proc/self/cgroup", groups),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5\n"),
            ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/a/b/memory.stat", "inactive_file 7\ntotal_inactive_file 536870912\n"),
        ]);
        let quota = Room::below(&root).quota.expect("there is a limit");
        assert_eq!((quota.limit, quota.left), (GIB, GIB / 2));
        assert!(quota.file.ends_with("memory/a/b/memory.limit_in_bytes"), "{quota:?}");
    }

    /// A container without a namespace of control groups shows the host's path.
    #[test]
    fn missing_path_means_the_top_group() {
        let root = root(&[
            ("proc/self/cgroup", "4:memory:/docker/77\n"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "1073741824\n"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "0\n"),
        ]);
        assert_eq!(Room::below(&root).left(), Some(GIB));
    }

    /// A limit that exceeds what the machine has left is not reported.
    #[test]
    fn tighter_of_machine_and_group_is_reported() {
        let root = root(&[
            ("proc/self/cgroup", "0::/\n"),
            ("sys/fs/cgroup/memory.max", "1099511627776\n"),
            ("sys/fs/cgroup/memory.current", "0\n"),
        ]);
        let shortage = Room::below(&root).check(9 * GIB).unwrap_err();
        assert!(shortage.to_string().contains("this machine has 8.0 GiB available"), "{shortage}");
    }
}
