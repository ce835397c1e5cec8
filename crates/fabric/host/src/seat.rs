//! A process's seat: its socket, the directories around it, and its lock. If the socket is removed, the seat creates it
//! again.

use std::fs::{self, Permissions};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::config::{SeatConfig, StartError, absolute, common_directory, is_usual, meeting_directories, system};
use crate::directory::{lock, make_private, refuse_second};
use crate::janitor::{BESIDE, Janitor};
use crate::lock::Lock;
use crate::roll::Enrolled;
use crate::socket;

/// Interval between checks of the socket.
const LOOK: Duration = Duration::from_secs(1);

/// Maximum length of `sun_path` without the terminating NUL, in bytes.
const MAX_PATH: usize = 107;
/// Maximum number of attempts to take a seat while leaving processes remove the directory.
const ATTEMPTS: usize = 50;

/// The path of the caller's file beside a process's socket. The path changes if the directory is removed and cannot
/// be created again.
#[derive(Clone, Debug)]
pub struct Beside(Arc<Mutex<PathBuf>>);

impl Beside {
    /// Returns the current path.
    #[must_use]
    pub fn path(&self) -> PathBuf {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, path: PathBuf) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = path;
    }
}

impl From<PathBuf> for Beside {
    fn from(path: PathBuf) -> Self {
        Beside(Arc::new(Mutex::new(path)))
    }
}

/// Symbolic links in one directory that point to a socket, and to the caller's file beside it, in another directory.
#[derive(Debug)]
struct Sign {
    at: Whereabouts,
    _janitor: Option<Janitor>,
}

/// The paths of a socket and its directories.
#[derive(Clone, Debug)]
struct Whereabouts {
    directory: PathBuf,
    cluster: PathBuf,
    socket: PathBuf,
}

impl Whereabouts {
    fn new(directory: &Path, cluster: &str, file: &str) -> Self {
        let path = directory.join(cluster);
        Whereabouts { directory: directory.to_owned(), socket: path.join(file), cluster: path }
    }

    fn beside(&self) -> PathBuf {
        self.socket.with_extension(BESIDE)
    }

    fn janitor(&self) -> std::io::Result<Option<Janitor>> {
        Janitor::start(&self.socket, &self.cluster, &self.directory)
    }

    /// Removes the socket and the caller's file beside it, and also the directories if they are empty. Errors are
    /// ignored: the files may be removed already, and the directories may be in use.
    fn remove(&self) {
        let _ = fs::remove_file(&self.socket);
        let _ = fs::remove_file(self.beside());
        if fs::remove_dir(&self.cluster).is_ok() {
            let _ = fs::remove_dir(&self.directory);
        }
    }

    /// Listens at the socket's path. Returns `None` if the directory does not exist or was removed meanwhile.
    fn listen(&self) -> Result<Option<OwnedFd>, StartError> {
        let listener = match socket::serve(&self.socket) {
            Ok(listener) => listener,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(error) => {
                let what = format!("listen at {}", self.socket.display());
                return Err(StartError::System { what, source: error.into() });
            }
        };
        fs::set_permissions(&self.socket, Permissions::from_mode(0o600))
            .map_err(|source| StartError::System { what: "make the socket private".to_owned(), source })?;
        Ok(Some(listener))
    }
}

/// The result of creating a removed socket again.
#[derive(Debug)]
pub struct Remade {
    /// The new listening socket, which replaces the previous one. `None` if it could not be created.
    pub listener: Option<OwnedFd>,
    /// Message for the operator.
    pub note: String,
}

/// This process's socket, directories and locks. Its files are removed on drop.
#[derive(Debug)]
pub struct Seat {
    /// Directories in which the socket may be, in order of preference.
    directories: Vec<PathBuf>,
    cluster: String,
    file: String,
    at: Whereabouts,
    /// Symbolic links to the socket, in the directory that processes without `XDG_RUNTIME_DIR` search. `None` if the
    /// socket itself is in that directory or in one that is not a default directory, or if the links could not be made.
    sign: Option<Sign>,
    beside: Beside,
    lock: Lock,
    enrolled: Option<Enrolled>,
    next_look: Instant,
    /// `true` once this process has reported that it cannot re-create its removed socket.
    complained: bool,
    /// The janitor, which is dropped after the files are removed. `None` if no janitor was requested, or if no program
    /// can act as one.
    janitor: Option<Janitor>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.at.remove();
        self.sign.iter().for_each(|sign| sign.at.remove());
        drop(self.janitor.take());
    }
}

impl Seat {
    /// Takes this process's seat in the cluster and returns it with the listening socket.
    ///
    /// # Errors
    /// Returns a [`StartError`].
    pub fn take(config: &SeatConfig) -> Result<(Seat, OwnedFd), StartError> {
        let config = &SeatConfig { directory: absolute(&config.directory), ..config.clone() };
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
            let only = refuse_second(config)?;
            let mut nonce = [0; 4];
            rustix::rand::getrandom(&mut nonce, rustix::rand::GetRandomFlags::empty())
                .map_err(system("get a random number"))?;
            let (id, name, pid) = (config.me.0, &config.name, std::process::id());
            let file = format!("{id}-{name}.{pid}.{:08x}.sock", u32::from_le_bytes(nonce));
            let path = cluster.join(&file);
            let bytes = path.as_os_str().len();
            if bytes > MAX_PATH {
                return Err(StartError::PathTooLong { path, bytes });
            }
            let Some(taken) = Seat::new(config, file, only)? else { continue };
            drop(locked);
            return Ok(taken);
        }
        let reason = "is removed again and again by other processes; choose another".to_owned();
        Err(StartError::Directory { path: cluster, reason })
    }

    /// Listens at the socket `file` in the process's cluster directory. Returns `None` if the directory was removed
    /// meanwhile.
    fn new(
        config: &SeatConfig,
        file: String,
        (lock, enrolled): (Lock, Option<Enrolled>),
    ) -> Result<Option<(Seat, OwnedFd)>, StartError> {
        let at = Whereabouts::new(&config.directory, &config.cluster, &file);
        // The janitor starts first, so that the socket is never without one.
        let janitor = config.janitor.then(|| at.janitor()).transpose().map_err(StartError::Janitor)?.flatten();
        let mut seat = Seat {
            directories: meeting_directories(&config.directory),
            cluster: config.cluster.clone(),
            file,
            beside: Beside::from(at.beside()),
            at,
            sign: None,
            lock,
            enrolled,
            next_look: Instant::now() + LOOK,
            complained: false,
            janitor,
        };
        let Some(listener) = seat.at.listen()? else { return Ok(None) };
        seat.put_up_sign();
        Ok(Some((seat, listener)))
    }

    /// Returns the path of the caller's file beside the socket.
    #[must_use]
    pub fn beside(&self) -> Beside {
        self.beside.clone()
    }

    /// Returns the directories of the cluster in which sockets of its processes may be.
    #[must_use]
    pub fn places(&self) -> Vec<PathBuf> {
        self.directories.iter().map(|directory| directory.join(&self.cluster)).collect()
    }

    /// Creates links to the socket and to the caller's file beside it, in the default directory that does not depend on
    /// `XDG_RUNTIME_DIR`. If this fails, only processes with the same `XDG_RUNTIME_DIR` find the socket. No links are
    /// needed if the socket is in that directory, or in one that is not a default directory.
    fn put_up_sign(&mut self) {
        let common = common_directory();
        if !is_usual(&self.at.directory) || self.at.directory == common {
            self.sign = None;
            return;
        }
        let at = Whereabouts::new(&common, &self.cluster, &self.file);
        let private = |path| matches!(make_private(path), Ok(true));
        if !private(&at.directory) || !private(&at.cluster) {
            return;
        }
        let janitor = match self.sign.take() {
            Some(Sign { _janitor: janitor, .. }) => janitor,
            None => self.janitor.as_ref().and_then(|_| at.janitor().ok().flatten()),
        };
        // A link that exists already has the same target.
        let _ = symlink(&self.at.socket, &at.socket);
        let _ = symlink(self.at.beside(), at.beside());
        self.sign = Some(Sign { at, _janitor: janitor });
    }

    /// Checks periodically whether the socket still exists, and creates it again if not. The call is cheap between
    /// checks.
    #[inline]
    pub fn look(&mut self, now: Instant) -> Option<Remade> {
        if now < self.next_look {
            return None;
        }
        self.next_look = now + LOOK;
        self.look_now()
    }

    /// Performs the check of [`look`](Seat::look) at once.
    #[cold]
    pub fn look_now(&mut self) -> Option<Remade> {
        self.lock.hang_up();
        self.enrolled.iter().for_each(Enrolled::hang_up);
        if self.sign.as_ref().is_some_and(|sign| fs::symlink_metadata(&sign.at.socket).is_err()) {
            self.put_up_sign();
        }
        if fs::symlink_metadata(&self.at.socket).is_ok() {
            return None;
        }
        let before = self.at.socket.display().to_string();
        match self.make_anew() {
            Ok(listener) => {
                self.complained = false;
                let after = self.at.socket.display().to_string();
                let now = if after == before { "it was made anew".to_owned() } else { format!("it is now {after}") };
                let note = format!(
                    "its socket {before} was removed, by a cleaner of files or the end of a login; {now}, connections were not \
                     touched"
                );
                Some(Remade { listener: Some(listener), note })
            }
            Err(error) if !std::mem::replace(&mut self.complained, true) => {
                let note = format!(
                    "its socket {before} was removed and cannot be made anew: {error}; new clients and commands do not find this \
                     process until that is mended, which it tries every second"
                );
                Some(Remade { listener: None, note })
            }
            Err(_) => None,
        }
    }

    fn make_anew(&mut self) -> Result<OwnedFd, StartError> {
        let mut first = None;
        for directory in self.directories.clone() {
            let at = Whereabouts::new(&directory, &self.cluster, &self.file);
            match self.listen_at(&at) {
                Ok(Some(listener)) => {
                    if at.socket != self.at.socket && self.janitor.is_some() {
                        // Dropping the previous janitor removes nothing that is in use.
                        self.janitor = at.janitor().map_err(|error| {
                            // Left there, the socket would be in the way of each later attempt.
                            at.remove();
                            StartError::Janitor(error)
                        })?;
                    }
                    self.at = at;
                    self.beside.set(self.at.beside());
                    self.put_up_sign();
                    return Ok(listener);
                }
                Ok(None) => {
                    let reason = "is in a directory that does not exist any more".to_owned();
                    first.get_or_insert(StartError::Directory { path: directory, reason });
                }
                Err(error) => drop(first.get_or_insert(error)),
            }
        }
        Err(first.unwrap_or_else(|| StartError::Directory {
            path: PathBuf::new(),
            reason: "no directory is configured".to_owned(),
        }))
    }

    fn listen_at(&mut self, at: &Whereabouts) -> Result<Option<OwnedFd>, StartError> {
        // The socket may replace its own link. The link's janitor must end first, because it would remove the socket.
        if let Some(sign) = self.sign.take_if(|sign| sign.at.socket == at.socket) {
            sign.at.remove();
            drop(sign);
        }
        if !make_private(&at.directory)? || !make_private(&at.cluster)? {
            return Ok(None);
        }
        at.listen()
    }
}
