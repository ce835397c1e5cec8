//! Where the control sockets of a cluster are: `DIRECTORY/CLUSTER/ID-NAME.PID.NONCE.sock`, all directories 0700.

use std::fs::{self, DirBuilder, Permissions};
use std::io::ErrorKind;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat, open};
use rustix::io::Errno;
use rustix::process::geteuid;
use stentor_fabric::ProcessId;

use crate::config::{ShmConfig, StartError};
use crate::janitor::Janitor;
use crate::socket;

/// `sun_path` without its closing zero.
const MAX_PATH: usize = 107;
/// How long another process of the cluster may take to start.
const LOCK_WAIT: Duration = Duration::from_secs(5);
/// How long what looks like a second process may take to go away: it may have been killed just now.
const LINGER: Duration = Duration::from_millis(500);
/// How often the directory may be removed under our feet by a process that leaves.
const ATTEMPTS: usize = 50;

/// The end of the name of what stands beside a socket and goes with it.
const BESIDE: &str = "ctl";

/// This process's socket and directories; removed on drop.
#[derive(Debug)]
pub(crate) struct Seat {
    directory: PathBuf,
    cluster: PathBuf,
    socket: PathBuf,
    /// After the fields that `drop` uses: ends when they are gone.
    janitor: Option<Janitor>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        // Whatever is gone already, or still used by others, stays as it is.
        let _ = fs::remove_file(&self.socket);
        let _ = fs::remove_file(self.beside());
        if fs::remove_dir(&self.cluster).is_ok() {
            let _ = fs::remove_dir(&self.directory);
        }
        drop(self.janitor.take());
    }
}

impl Seat {
    /// A path beside the socket.
    pub(crate) fn beside(&self) -> PathBuf {
        self.socket.with_extension(BESIDE)
    }
}

/// A process's place in a host's private directory without the fabric: for processes that meet over another one, so that
/// operators on this host find them. Everything there is removed when it is dropped, and when the process is killed.
#[derive(Debug)]
pub struct Place {
    seat: Seat,
    /// Shows that this process lives. Nobody is let in.
    _listener: OwnedFd,
}

impl Place {
    /// Takes the place of a process; `cluster` names a directory in `directory`.
    ///
    /// # Errors
    /// As [`ShmFabric::start`](crate::ShmFabric::start); [`StartError::AlreadyRunning`] if another process is in it.
    pub fn take(directory: PathBuf, cluster: &str, me: ProcessId, name: &str) -> Result<Self, StartError> {
        let config = ShmConfig { directory, ..ShmConfig::new(cluster, me, name, me.0.saturating_add(1)) };
        config.check()?;
        let (seat, listener, _) = take_seat(&config)?;
        Ok(Place { seat, _listener: listener })
    }

    /// As [`ShmFabric::beside`](crate::ShmFabric::beside).
    #[must_use]
    pub fn beside(&self) -> PathBuf {
        self.seat.beside()
    }
}

/// Paths beside the sockets of processes with this id, dead or alive; the directories must be ours alone.
pub(crate) fn all_beside(directory: &Path, cluster: &str, process: ProcessId) -> Result<Vec<PathBuf>, StartError> {
    let path = directory.join(cluster);
    for private in [directory, &path] {
        if private.exists() {
            make_private(private)?;
        }
    }
    let beside = |path: &PathBuf| path.with_extension(BESIDE);
    let sockets = match sockets_of(&path, process) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(|source| StartError::System { what: format!("list {}", path.display()), source })?,
    };
    Ok(sockets.iter().map(beside).collect())
}

pub(crate) fn system(what: impl Into<String>) -> impl FnOnce(Errno) -> StartError {
    let what = what.into();
    |error| StartError::System { what, source: error.into() }
}

/// Makes a directory for us alone, or checks that the one that is there is. `false` if there is nothing to make it in, or
/// a process that leaves removed it.
fn make_private(path: &Path) -> Result<bool, StartError> {
    let wrong = |reason: String| StartError::Directory { path: path.to_owned(), reason };
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(wrong(format!("cannot make the directory: {error}"))),
    }
    let is = match fs::symlink_metadata(path) {
        Ok(is) => is,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(wrong(format!("cannot look at the directory: {error}"))),
    };
    let (uid, mode) = (geteuid().as_raw(), is.mode() & 0o7777);
    if !is.is_dir() {
        return Err(wrong("is not a directory (symbolic links are not followed); choose another".to_owned()));
    }
    if is.uid() != uid {
        return Err(wrong(format!("belongs to user {}, this process runs as {uid}; choose another", is.uid())));
    }
    if mode & 0o077 != 0 {
        return Err(wrong(format!("others may enter it (mode {mode:04o}); run: chmod 700 {}", path.display())));
    }
    Ok(true)
}

/// The locked directory of the cluster; `None` if it was removed meanwhile.
fn lock(path: &Path) -> Result<Option<OwnedFd>, StartError> {
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
            Err(error) => return Err(system(format!("lock {}", path.display()))(error)),
        }
    }
    let ours = fstat(&fd).map_err(system("look at the locked directory"))?;
    let there = fs::metadata(path).is_ok_and(|there| (there.dev(), there.ino()) == (ours.st_dev, ours.st_ino));
    Ok(there.then_some(fd))
}

/// Everything in a cluster's directory.
pub(crate) fn entries(cluster: &Path) -> std::io::Result<Vec<PathBuf>> {
    fs::read_dir(cluster)?.map(|entry| entry.map(|entry| entry.path())).collect()
}

/// Whether a path is a socket of the process with this id.
pub(crate) fn is_socket_of(path: &Path, process: ProcessId) -> bool {
    let prefix = format!("{}-", process.0);
    let name = path.file_name().unwrap_or_default().as_bytes();
    name.starts_with(prefix.as_bytes()) && name.ends_with(b".sock")
}

/// The sockets in a cluster's directory of the process with this id.
pub(crate) fn sockets_of(cluster: &Path, process: ProcessId) -> std::io::Result<Vec<PathBuf>> {
    Ok(entries(cluster)?.into_iter().filter(|path| is_socket_of(path, process)).collect())
}

/// Removes the sockets that dead processes with our id left. Returns the process that one of them is alive in, 0 if it
/// cannot be told.
fn find_second(cluster: &Path, me: ProcessId) -> Result<Option<i32>, StartError> {
    let unknown = |source| StartError::System { what: format!("look for processes in {}", cluster.display()), source };
    let sockets = match sockets_of(cluster, me) {
        // The last process just took it away; whoever listens next makes it anew.
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        listed => listed.map_err(unknown)?,
    };
    for path in sockets {
        match socket::dial(&path) {
            Ok(socket) => return Ok(Some(socket::peer(&socket).map_or(0, |(pid, _)| pid))),
            // Alive and busy.
            Err(Errno::AGAIN) => return Ok(Some(0)),
            // Nobody listens there, and nobody ever will again.
            Err(Errno::CONNREFUSED | Errno::NOENT) => {
                let _ = fs::remove_file(&path);
                let _ = fs::remove_file(path.with_extension(BESIDE));
            }
            // That says nothing about the other process: its socket must stay.
            Err(error) => return Err(system(format!("connect to {}", path.display()))(error)),
        }
    }
    Ok(None)
}

fn refuse_second(config: &ShmConfig, cluster: &Path) -> Result<(), StartError> {
    let since = Instant::now();
    let (mut pid, mut pause) = (0, Duration::from_millis(2));
    while let Some(found) = find_second(cluster, config.me)? {
        pid = if found == 0 { pid } else { found };
        // A child that a dying process was just starting holds its sockets for a moment.
        if since.elapsed() > LINGER {
            let (name, me, cluster) = (config.name.clone(), config.me, config.cluster.clone());
            return Err(StartError::AlreadyRunning { name, me, cluster, pid });
        }
        // Each look is a connection to a process that may be alive and well.
        std::thread::sleep(pause);
        pause *= 2;
    }
    Ok(())
}

/// Takes this process's seat in the cluster: returns the listening socket.
pub(crate) fn take_seat(config: &ShmConfig) -> Result<(Seat, OwnedFd, PathBuf), StartError> {
    let cluster = config.directory.join(&config.cluster);
    for _ in 0..ATTEMPTS {
        if !make_private(&config.directory)? && config.directory.parent().is_some_and(|parent| !parent.exists()) {
            let reason = "is in a directory that does not exist; make that first".to_owned();
            return Err(StartError::Directory { path: config.directory.clone(), reason });
        }
        if !make_private(&cluster)? {
            continue;
        }
        let Some(locked) = lock(&cluster)? else { continue };
        refuse_second(config, &cluster)?;
        let mut nonce = [0; 4];
        rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())
            .map_err(system("get a random number"))?;
        let (id, name, pid) = (config.me.0, &config.name, std::process::id());
        let path = cluster.join(format!("{id}-{name}.{pid}.{:08x}.sock", u32::from_le_bytes(nonce)));
        let bytes = path.as_os_str().len();
        if bytes > MAX_PATH {
            return Err(StartError::PathTooLong { path, bytes });
        }
        // The janitor first: there is no moment at which the socket would stay behind.
        let janitor = config.janitor.then(|| Janitor::start(&path, &cluster, &config.directory));
        let janitor = janitor.transpose().map_err(StartError::Janitor)?;
        let seat = Seat { directory: config.directory.clone(), cluster: cluster.clone(), socket: path, janitor };
        let listener = match socket::serve(&seat.socket) {
            Ok(listener) => listener,
            Err(Errno::NOENT) => continue,
            Err(error) => return Err(system(format!("listen at {}", seat.socket.display()))(error)),
        };
        fs::set_permissions(&seat.socket, Permissions::from_mode(0o600))
            .map_err(|source| StartError::System { what: "make the socket private".to_owned(), source })?;
        drop(locked);
        return Ok((seat, listener, cluster));
    }
    let reason = "is removed again and again by other processes; choose another".to_owned();
    Err(StartError::Directory { path: cluster, reason })
}
