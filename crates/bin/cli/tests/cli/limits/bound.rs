//! The limits of the matrix, and the mounts and control groups that enforce them.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::geteuid;

use super::{INSIDE, USER};

/// A limit of a resource.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Bound {
    /// Largest size of a file, in KiB.
    FileSize(u64),
    /// Number of open files.
    OpenFiles(u64),
    /// Number of processes and threads of the user.
    Processes(u64),
    /// Locked memory, in KiB.
    Locked(u64),
    /// Memory of a control group, in MiB.
    Group(u64),
    /// Free space on the disk, in KiB.
    Room(u64),
    /// A disk that is mounted read-only.
    ReadOnly,
    /// Space in `/dev/shm`, in KiB.
    DevShm(u64),
}

impl Bound {
    pub(super) fn read(text: &str) -> Self {
        let (name, number) = text.split_once('=').unwrap_or((text, "0"));
        let number = number.parse().unwrap_or_else(|_| panic!("a number: {text}"));
        match name {
            "fsize" => Bound::FileSize(number),
            "nofile" => Bound::OpenFiles(number),
            "nproc" => Bound::Processes(number),
            "memlock" => Bound::Locked(number),
            "cgroup" => Bound::Group(number),
            "full" => Bound::Room(number),
            "read-only" => Bound::ReadOnly,
            "dev-shm" => Bound::DevShm(number),
            other => panic!("no limit {other}"),
        }
    }

    /// Returns the shell command that sets the limit, or `None` if a shell cannot set it.
    pub(super) fn shell(self) -> Option<String> {
        match self {
            Bound::FileSize(most) => Some(format!("ulimit -f {most}")),
            Bound::OpenFiles(most) => Some(format!("ulimit -n {most}")),
            Bound::Processes(most) => Some(format!("ulimit -u {most}")),
            Bound::Locked(most) => Some(format!("ulimit -l {most}")),
            Bound::Group(_) | Bound::Room(_) | Bound::ReadOnly | Bound::DevShm(_) => None,
        }
    }

    /// Returns whether the limit needs a separate mount namespace.
    pub(super) fn needs_mounts(self) -> bool {
        matches!(self, Bound::Room(_) | Bound::ReadOnly | Bound::DevShm(_))
    }
}

/// Returns whether the commands can run as other users.
pub(super) fn is_root() -> bool {
    geteuid().is_root() && std::env::var(INSIDE).as_deref() != Ok(USER)
}

/// Returns the number of bytes that a directory takes until it reports that it is full.
pub(super) fn room(directory: &Path) -> Result<u64, String> {
    // The probe file takes no space while it is empty.
    let path = directory.join("probe");
    let mut file = File::create(&path).map_err(|error| format!("no probe: {error}"))?;
    let mut taken = 0;
    let error = loop {
        match file.write(&[0; 1024]) {
            Ok(bytes) if taken < 64 << 20 => taken += bytes as u64,
            Ok(_) => return Err("it is not full after 64 MiB".to_owned()),
            Err(error) => break error,
        }
    };
    drop(file);
    fs::remove_file(path).unwrap();
    if error.kind() == ErrorKind::StorageFull { Ok(taken) } else { Err(error.to_string()) }
}

/// A control group (version 1 or 2) with a memory limit. It is removed when this value is dropped.
#[derive(Debug)]
pub(super) struct ControlGroup(PathBuf);

impl ControlGroup {
    /// Creates the group, or returns the reason if this machine does not allow it.
    pub(super) fn new(number: u32, mebibytes: u64) -> Result<Self, String> {
        let groups = fs::read_to_string("/proc/self/cgroup").map_err(|error| error.to_string())?;
        let own = |controller: &str| groups.lines().find_map(|line| line.split_once(controller).map(|(_, path)| path));
        let name = format!("stentor-limits-{}-{number}", std::process::id());
        let places = [
            (own(":memory:"), "/sys/fs/cgroup/memory", "memory.limit_in_bytes"),
            (own("0::"), "/sys/fs/cgroup", "memory.max"),
        ];
        let mut why = "no controller of memory is mounted".to_owned();
        for (path, mount, file) in places {
            let Some(path) = path else { continue };
            let group = Path::new(mount).join(path.trim_start_matches('/')).join(&name);
            let made = fs::create_dir(&group).and_then(|()| fs::write(group.join(file), (mebibytes << 20).to_string()));
            match made {
                Ok(()) => return Ok(ControlGroup(group)),
                Err(error) => {
                    let _ = fs::remove_dir(&group);
                    why = format!("{}: {error}", group.join(file).display());
                }
            }
        }
        Err(why)
    }

    /// Returns the file that a process writes its pid to in order to join the group.
    pub(super) fn door(&self) -> PathBuf {
        self.0.join("cgroup.procs")
    }
}

impl Drop for ControlGroup {
    fn drop(&mut self) {
        // Killed processes may stay in the group for a moment.
        for _ in 0..50 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

/// Runs `mount` with these arguments.
pub(super) fn mount(arguments: &[&str]) {
    let mounted = Command::new("mount").args(arguments).output().expect("`mount` starts");
    assert!(mounted.status.success(), "{}", String::from_utf8_lossy(&mounted.stderr));
}
