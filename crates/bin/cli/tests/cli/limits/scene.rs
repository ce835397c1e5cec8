//! The place where a cell runs: a user, a limited directory, an unlimited one, and commands in both.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use super::INSIDE;
use super::bound::{Bound, ControlGroup, is_root, mount, room};
use crate::support::{Scratch, stentor};

/// The first unused user id. Each cell has a separate user id, so that its processes are counted separately.
const USER: u32 = 52_000;
/// Size of a disk that fills, in bytes.
const DISK: u64 = 8 << 20;

pub(super) struct Scene {
    bound: Bound,
    user: u32,
    home: Scratch,
    /// The lock of `/dev/shm`, because two cells cannot limit it at once.
    _shm: Option<std::sync::MutexGuard<'static, ()>>,
    group: Option<ControlGroup>,
}

/// Returns whether other users may enter a directory.
fn is_open_to_others(directory: &Path) -> bool {
    fs::metadata(directory).is_ok_and(|about| about.permissions().mode() & 1 == 1)
}

impl Scene {
    /// Prepares the scene, or returns the reason if this machine does not allow the limit.
    pub(super) fn new(number: u32, bound: Bound) -> Result<Self, String> {
        if bound.needs_mounts() && std::env::var(INSIDE).is_ok_and(|inside| inside == "none") {
            return Err(
                "no mount namespace; run this as root, or allow user namespaces (user.max_user_namespaces)".to_owned()
            );
        }
        static SHM: std::sync::Mutex<()> = std::sync::Mutex::new(());
        let (home, user) = (Scratch::new(), USER + number);
        let mut scene = Scene { bound, user, home, _shm: None, group: None };
        for directory in [scene.home.path(""), scene.place()] {
            let _ = fs::create_dir(&directory);
            scene.give(&directory);
        }
        match bound {
            Bound::Room(kibibytes) => scene.fill(kibibytes << 10),
            Bound::ReadOnly => {
                let place = scene.place();
                mount(&["-t", "tmpfs", "-o", "ro,mode=777", "none", place.to_str().unwrap()]);
            }
            Bound::DevShm(kibibytes) => {
                scene._shm = Some(SHM.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
                mount(&["-t", "tmpfs", "-o", &format!("mode=1777,size={kibibytes}k"), "none", "/dev/shm"]);
            }
            Bound::Group(mebibytes) => {
                let remedy =
                    |why| format!("{why}; run this as root where the controller `memory` is mounted and writable");
                scene.group = Some(ControlGroup::new(number, mebibytes).map_err(remedy)?);
            }
            Bound::FileSize(_) | Bound::OpenFiles(_) | Bound::Processes(_) | Bound::Locked(_) => {}
        }
        Ok(scene)
    }

    /// Mounts a disk with `left` bytes of free space.
    fn fill(&self, left: u64) {
        let place = self.place();
        let options = format!("mode=777,size={DISK}");
        mount(&["-t", "tmpfs", "-o", &options, "none", place.to_str().unwrap()]);
        let bytes = DISK - left;
        fs::File::create(place.join("fill")).unwrap().write_all(&vec![1; bytes as usize]).unwrap();
        self.give(&place);
    }

    pub(super) fn user(&self) -> u32 {
        self.user
    }

    fn give(&self, path: &Path) {
        if is_root() {
            chown(path, Some(self.user), Some(self.user)).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }
    }

    /// Returns a path that is not limited.
    pub(super) fn home(&self, name: &str) -> String {
        self.home.path(name).to_str().unwrap().to_owned()
    }

    /// Returns the directory of the command's files. It is on the limited disk, if the cell limits the disk.
    pub(super) fn place(&self) -> PathBuf {
        self.home.path("place")
    }

    pub(super) fn in_place(&self, name: &str) -> String {
        self.place().join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file for the commands to read.
    pub(super) fn file(&self, name: &str, text: &str) -> String {
        let path = self.home.file(name, text);
        self.give(&path);
        path.to_str().unwrap().to_owned()
    }

    /// Returns the command without limits.
    pub(super) fn free<S: AsRef<str>>(&self, arguments: &[S]) -> Command {
        self.as_user(&program(), arguments, None)
    }

    /// Returns the command under the limit.
    pub(super) fn limited<S: AsRef<str>>(&self, arguments: &[S]) -> Command {
        self.within(&program(), arguments)
    }

    fn within<S: AsRef<str>>(&self, program: &Path, arguments: &[S]) -> Command {
        self.as_user(program, arguments, self.bound.shell())
    }

    /// Returns a command in which a shell sets the limit, if there is one, and then executes the program.
    fn as_user<S: AsRef<str>>(&self, program: &Path, arguments: &[S], limit: Option<String>) -> Command {
        let mut all = vec!["bash".to_owned(), "-c".to_owned()];
        if let Some(group) = self.group.as_ref() {
            all.extend([format!("echo $$ >{} && exec \"$@\"", group.door().display()), "bash".to_owned()]);
        } else {
            all.extend(["exec \"$@\"".to_owned(), "bash".to_owned()]);
        }
        if is_root() {
            let user = self.user.to_string();
            all.extend(["setpriv", "--reuid", &user, "--regid", &user, "--clear-groups"].map(str::to_owned));
            // If other users may not enter the root file system, their programs do not find the libraries. They get a
            // capability to read it; their permissions to write stay as they are.
            if !is_open_to_others(Path::new("/")) {
                let may_read = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"];
                all.extend(may_read.map(str::to_owned));
            }
        }
        // Files that the command inherits from the test's process would count against the limit, so they are closed.
        let close = "for at in /proc/$$/fd/*; do n=${at##*/}; [ $n -le 2 ] || eval \"exec $n>&-\"; done";
        let limit = limit.map_or(String::new(), |limit| format!("{close}; {limit} && "));
        all.extend(["bash".to_owned(), "-c".to_owned(), format!("{limit}exec \"$@\""), "bash".to_owned()]);
        all.push(program.to_str().unwrap().to_owned());
        all.extend(arguments.iter().map(|argument| argument.as_ref().to_owned()));
        let mut command = Command::new(&all[0]);
        command.args(&all[1..]).current_dir(self.home.path("")).env("TMPDIR", self.home.path(""));
        command.env("HOME", self.home.path("")).env_remove("XDG_RUNTIME_DIR").env_remove("STENTOR_CONFIG");
        command
    }

    /// Checks without the program under test that the limit is effective.
    pub(super) fn check_is_effective(&self) -> Result<(), String> {
        let shell = |script: &str| {
            let output = self.within(Path::new("/bin/sh"), &["-c", script]).stdin(Stdio::null()).output().unwrap();
            (output.status, String::from_utf8_lossy(&output.stdout).trim().to_owned())
        };
        let bites = match self.bound {
            Bound::FileSize(most) => {
                let probe = self.home("probe");
                shell(&format!("head -c {} /dev/zero >{probe}", (most + 1) << 10));
                let bytes = fs::metadata(&probe).map_or(u64::MAX, |file| file.len());
                let _ = fs::remove_file(probe);
                bytes == most << 10
            }
            Bound::OpenFiles(most) => {
                let opens = |n: u64| shell(&format!("exec bash -c 'exec {n}</dev/null'")).0.success();
                opens(most - 1) && !opens(most)
            }
            Bound::Processes(most) => {
                let all = shell(&format!("n=0; while [ $n -lt {most} ]; do sleep 0.3 & n=$((n+1)); done; true")).0;
                std::thread::sleep(Duration::from_millis(600));
                !all.success()
            }
            Bound::Locked(most) => {
                let script = locking(most)?;
                let free = self.as_user(Path::new("/bin/sh"), &["-c", &script], None).status().unwrap();
                free.success() && shell(&script).0.code() == Some(1)
            }
            Bound::Group(most) => {
                shell(&format!("exec dd if=/dev/zero of=/dev/null bs={} count=1", (most + 16) << 20)).0.signal()
                    == Some(9)
            }
            Bound::Room(left) => room(&self.place())? == left << 10,
            Bound::ReadOnly => {
                let error = fs::write(self.place().join("probe"), "x").err();
                error.is_some_and(|error| error.kind() == std::io::ErrorKind::ReadOnlyFilesystem)
            }
            Bound::DevShm(most) => room(Path::new("/dev/shm"))? == most << 10,
        };
        if bites { Ok(()) } else { Err("the limit has no effect".to_owned()) }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        // Other cells use the same mount namespace.
        if matches!(self.bound, Bound::Room(_) | Bound::ReadOnly) {
            let _ = Command::new("umount").args(["-l", self.place().to_str().unwrap()]).status();
        }
        if matches!(self.bound, Bound::DevShm(_)) {
            let _ = Command::new("umount").args(["-l", "/dev/shm"]).status();
        }
    }
}

/// Returns a script that locks `kibibytes` KiB and one more page, and fails if the kernel refuses that.
fn locking(kibibytes: u64) -> Result<String, String> {
    let call = match std::env::consts::ARCH {
        "x86_64" => 149,
        "aarch64" => 228,
        other => return Err(format!("the number of `mlock` on {other} is not known here")),
    };
    let bytes = (kibibytes << 10) + 4096;
    Ok(format!("exec perl -e '$memory = \"x\" x {bytes}; exit(syscall({call}, $memory, {bytes}) != 0)'"))
}

/// Returns the command's program, or a copy in a place where every user may run it.
fn program() -> PathBuf {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    let copy = || {
        let own = PathBuf::from(stentor().get_program());
        let reachable = own.ancestors().skip(1).all(|directory| {
            directory.as_os_str().is_empty()
                || fs::metadata(directory).is_ok_and(|directory| directory.permissions().mode() & 0o1 == 1)
        });
        if reachable || !is_root() {
            return own;
        }
        let copy = std::env::temp_dir().join(format!("stentor-limits-{}", std::process::id()));
        fs::copy(own, &copy).unwrap();
        copy
    };
    PROGRAM.get_or_init(copy).clone()
}
