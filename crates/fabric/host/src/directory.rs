//! The directories of a cluster's control sockets, and the search for a second process with the same id.
//!
//! Sockets are at `DIRECTORY/CLUSTER/ID-NAME.PID.NONCE.sock`. All directories have mode 0700.

use std::fs::{self, DirBuilder};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::Errno;
use rustix::process::geteuid;
use stentor_fabric::{OsError, ProcessId};

use crate::about::About;
use crate::config::{SeatConfig, StartError, absolute, is_usual, meeting_directories, system};
use crate::credentials::Credentials;
use crate::ending::is_ending;
use crate::janitor::BESIDE;
use crate::lock::{Lock, Taken};
use crate::roll::{self, Enrolled, Enrolment};
use crate::socket;

/// Maximum time that a starting process waits for the directory's lock, which other starting processes hold.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// Maximum time that a starting process waits for the end of another process with its id, if that process is being torn
/// down or its pid is unknown.
const LINGER: Duration = Duration::from_millis(500);
/// Maximum time that a starting process waits for the end of another process with its id, if that process is running.
/// It may have just been killed, and the kernel may not have begun its teardown. The time is short because the
/// directory is locked meanwhile, and a client that searches for a free id checks one id after the other.
const BRIEF: Duration = Duration::from_millis(10);

/// Returns the paths of the callers' files (see [`Beside`](crate::Beside)) of all processes with this id, running or
/// dead.
///
/// # Errors
/// [`StartError::Directory`] if other users may enter `directory` or the cluster's directory in it; otherwise the error
/// of the operating system. Other default directories are skipped if they are not private.
pub fn all_beside(directory: &Path, cluster: &str, process: ProcessId) -> Result<Vec<PathBuf>, StartError> {
    let directory = absolute(directory);
    let mut sockets = Vec::new();
    for place in meeting_directories(&directory) {
        let path = place.join(cluster);
        let private = [&place, &path]
            .into_iter()
            .filter(|private| private.exists())
            .try_for_each(|private| make_private(private).map(drop));
        match private {
            Ok(()) => {}
            // Another user may own a default directory. Then none of this user's processes is there.
            Err(_) if place != directory => continue,
            Err(error) => return Err(error),
        }
        match sockets_of(&path, process) {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(source) => return Err(StartError::System { what: format!("list {}", path.display()), source }),
            Ok(listed) => sockets.extend(listed),
        }
    }
    Ok(sockets.iter().map(|path| path.with_extension(BESIDE)).collect())
}

/// Returns the name of the abstract socket that locks this process's id. Clusters in different directories may have the
/// same name, so the socket's name includes a hash of the directory. The default directories count as one and have no
/// hash.
fn lock_name(config: &SeatConfig) -> String {
    let (user, cluster, me) = (geteuid().as_raw(), &config.cluster, config.me.0);
    if is_usual(&config.directory) {
        return format!("stentor-{user}-{cluster}-{me}");
    }
    let path = config.directory.canonicalize().unwrap_or_else(|_| config.directory.clone());
    format!("stentor-{user}-{cluster}-{me}-{:016x}", roll::hash(path.as_os_str()))
}

/// Creates a directory for this user alone, or checks that the existing one is private. Returns `false` if the parent
/// directory is missing, or a leaving process removed the directory.
pub(crate) fn make_private(path: &Path) -> Result<bool, StartError> {
    let wrong = |reason: String| StartError::Directory { path: path.to_owned(), reason };
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(source) if OsError::remedy_for(&source).is_some() => {
            return Err(StartError::System { what: format!("make the directory {}", path.display()), source });
        }
        Err(error) => return Err(wrong(format!("cannot make the directory: {error}"))),
    }
    let is = match fs::symlink_metadata(path) {
        Ok(is) => is,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(wrong(format!("cannot inspect the directory: {error}"))),
    };
    let (uid, mode) = (geteuid().as_raw(), is.mode() & 0o7777);
    if !is.is_dir() {
        return Err(wrong("is not a directory (symbolic links are not followed); choose another".to_owned()));
    }
    if is.uid() != uid {
        return Err(wrong(format!("belongs to user {}, this process runs as {uid}; choose another", is.uid())));
    }
    if mode & 0o077 != 0 {
        return Err(wrong(format!("other users may enter it (mode {mode:04o}); run: chmod 700 {}", path.display())));
    }
    Ok(true)
}

/// Locks the directory of a cluster. Returns `None` if the directory was removed meanwhile.
pub(crate) fn lock(path: &Path) -> Result<Option<OwnedFd>, StartError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let fd = match open(path, flags, Mode::empty()) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(system(format!("open {}", path.display()))(error)),
    };
    let since = Instant::now();
    loop {
        match flock(&fd, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => break,
            Err(Errno::WOULDBLOCK) if since.elapsed() < LOCK_WAIT => std::thread::sleep(Duration::from_millis(1)),
            Err(Errno::WOULDBLOCK) => {
                return Err(StartError::Starting { path: path.to_owned(), seconds: LOCK_WAIT.as_secs() });
            }
            Err(error) => return Err(system(format!("lock {}", path.display()))(error)),
        }
    }
    let ours = fstat(&fd).map_err(system("inspect the locked directory"))?;
    let there = fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (ours.st_dev, ours.st_ino));
    Ok(there.then_some(fd))
}

/// Returns the paths of all entries in a cluster's directory.
///
/// # Errors
/// Returns the error of the operating system.
pub fn entries(cluster: &Path) -> std::io::Result<Vec<PathBuf>> {
    fs::read_dir(cluster)?.map(|entry| entry.map(|entry| entry.path())).collect()
}

/// Returns whether a path is a socket of the process with this id.
pub fn is_socket_of(path: &Path, process: ProcessId) -> bool {
    let prefix = format!("{}-", process.0);
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.starts_with(prefix.as_bytes()) && name.ends_with(b".sock")
}

/// Returns the sockets of the process with this id in a cluster's directory.
///
/// # Errors
/// Returns the error of the operating system.
pub fn sockets_of(cluster: &Path, process: ProcessId) -> std::io::Result<Vec<PathBuf>> {
    Ok(entries(cluster)?.into_iter().filter(|path| is_socket_of(path, process)).collect())
}

/// Searches a cluster's directory for a running process with the id `me`. Returns its pid, 0 if its pid is unknown, or
/// `None` if there is no such process. Removes the sockets of dead processes with that id that it finds before.
fn find_second(cluster: &Path, me: ProcessId) -> Result<Option<i32>, StartError> {
    let unknown = |source| StartError::System { what: format!("look for processes in {}", cluster.display()), source };
    let sockets = match sockets_of(cluster, me) {
        // The last process has just removed the directory; the next one that listens creates it again.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        listed => listed.map_err(unknown)?,
    };
    for path in sockets {
        match socket::dial(&path) {
            Ok(socket) => return Ok(Some(socket::peer(&socket).map_or(0, |(pid, _)| pid))),
            // The process is running but too busy to accept the connection.
            Err(Errno::AGAIN) => return Ok(Some(0)),
            // No process listens there, and none ever will, because the name contains a nonce.
            Err(Errno::CONNREFUSED | Errno::NOENT) => {
                let _ = fs::remove_file(&path);
                let _ = fs::remove_file(path.with_extension(BESIDE));
            }
            // This error does not show whether the other process is running, so its socket must stay.
            Err(error) => return Err(system(format!("connect to {}", path.display()))(error)),
        }
    }
    Ok(None)
}

/// Searches all directories that may contain a socket of another process with this process's id.
fn find_second_anywhere(config: &SeatConfig) -> Result<Option<i32>, StartError> {
    for place in meeting_directories(&config.directory) {
        // Besides the configured directory, which was checked before, there may be default ones. Skip those that other
        // users may enter: no process of this user uses them.
        let path = place.join(&config.cluster);
        if place != config.directory && (!path.is_dir() || make_private(&path).is_err()) {
            continue;
        }
        if let Some(pid) = find_second(&path, config.me)? {
            return Ok(Some(pid));
        }
    }
    Ok(None)
}

/// Locks this process's id and enrols it, unless another process with this id is running.
pub(crate) fn refuse_second(config: &SeatConfig) -> Result<(Lock, Option<Enrolled>), StartError> {
    let (since, lock) = (Instant::now(), lock_name(config));
    let (mut pid, mut pause) = (0, Duration::from_millis(2));
    loop {
        let found = match find_second_anywhere(config)? {
            Some(found) => found,
            None => match Lock::take(&lock).map_err(system(format!("take the lock @{lock}")))? {
                Taken::Ours(lock) => match roll::enrol(config)? {
                    Enrolment::Done(enrolled) => return Ok((lock, enrolled)),
                    Enrolment::Theirs(pid) => pid,
                },
                Taken::Theirs(Some(Credentials { pid, uid })) if uid != geteuid().as_raw() => {
                    return Err(StartError::ForeignLock { name: config.name.clone(), lock, pid, uid });
                }
                Taken::Theirs(holder) => holder.map_or(0, |holder| holder.pid),
            },
        };
        pid = if found == 0 { pid } else { found };
        // A dying process may have just forked a child, which keeps the process's sockets open until it calls exec.
        let lingers = if pid > 0 && !is_ending(pid) { BRIEF } else { LINGER };
        if since.elapsed() > lingers {
            let (name, me, cluster) = (config.name.clone(), config.me, config.cluster.clone());
            let cluster = config.source.as_ref().map_or(cluster, |source| source.cluster.clone());
            // The other process has this id in the same cluster, or was started from the same file, which was edited
            // since.
            let is_it = |about: &About| {
                let has_place = (&about.meeting, about.me) == (&config.cluster, me);
                has_place || config.source.as_ref().is_some_and(|source| roll::is_from(about, source, &name))
            };
            let about = About::of(pid, is_it).map(Box::new);
            return Err(StartError::AlreadyRunning { name, me, cluster, pid, about });
        }
        // The pause doubles because each search connects to a process that may be healthy.
        std::thread::sleep(pause);
        pause *= 2;
    }
}
