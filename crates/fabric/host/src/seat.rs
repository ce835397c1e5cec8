//! A process's seat: its socket, the directories around it, and its lock. What is removed from under it is made anew.

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

/// How often the socket is looked for.
const LOOK: Duration = Duration::from_secs(1);

/// `sun_path` without its closing zero.
const MAX_PATH: usize = 107;
/// How often the directory may be removed under our feet by a process that leaves.
const ATTEMPTS: usize = 50;

/// Where something of the caller's own belongs beside a process's socket. The place changes if the directory goes and cannot be
/// made again.
#[derive(Clone, Debug)]
pub struct Beside(Arc<Mutex<PathBuf>>);

impl Beside {
    /// The path at present.
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

/// Names in a directory that lead to a socket in another one.
#[derive(Debug)]
struct Sign {
    at: Whereabouts,
    _janitor: Option<Janitor>,
}

/// A socket and its directories.
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

    /// Whatever is gone already, or still used by others, stays as it is.
    fn remove(&self) {
        let _ = fs::remove_file(&self.socket);
        let _ = fs::remove_file(self.beside());
        if fs::remove_dir(&self.cluster).is_ok() {
            let _ = fs::remove_dir(&self.directory);
        }
    }

    /// Listens there. `None`: the directory is not there, or was removed meanwhile.
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

/// What was removed and is there again.
#[derive(Debug)]
pub struct Remade {
    /// Listens from here on; what listened before hears nothing any more. `None`: it could not be made.
    pub listener: Option<OwnedFd>,
    /// What happened, in words.
    pub note: String,
}

/// This process's socket and directories; removed on drop.
#[derive(Debug)]
pub struct Seat {
    /// Where the socket may be: the first that can be used.
    directories: Vec<PathBuf>,
    cluster: String,
    file: String,
    at: Whereabouts,
    /// In the directory in which processes look that have no `XDG_RUNTIME_DIR`, if the socket is elsewhere.
    sign: Option<Sign>,
    beside: Beside,
    lock: Lock,
    enrolled: Option<Enrolled>,
    next_look: Instant,
    /// That it cannot be made anew was said.
    complained: bool,
    /// After the fields that `drop` uses: ends when they are gone. `None`: there is none, as was asked.
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
    /// Takes this process's seat in the cluster: returns the listening socket.
    ///
    /// # Errors
    /// See [`StartError`].
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

    /// Listens at a socket of this name in the process's directory, which is there. `None`: it was removed meanwhile.
    fn new(
        config: &SeatConfig,
        file: String,
        (lock, enrolled): (Lock, Option<Enrolled>),
    ) -> Result<Option<(Seat, OwnedFd)>, StartError> {
        let at = Whereabouts::new(&config.directory, &config.cluster, &file);
        // The janitor first: there is no moment at which the socket would stay behind.
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

    /// Returns a path beside the socket.
    #[must_use]
    pub fn beside(&self) -> Beside {
        self.beside.clone()
    }

    /// Returns directories of the cluster in which sockets of its processes may be.
    #[must_use]
    pub fn places(&self) -> Vec<PathBuf> {
        self.directories.iter().map(|directory| directory.join(&self.cluster)).collect()
    }

    /// Puts names of the socket, and of what is beside it, where all processes of this user look. Without them those find it
    /// that have the same `XDG_RUNTIME_DIR`.
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
        // What is there already is the same.
        let _ = symlink(&self.at.socket, &at.socket);
        let _ = symlink(self.at.beside(), at.beside());
        self.sign = Some(Sign { at, _janitor: janitor });
    }

    /// Looks now and then whether the socket is still there, and makes it anew if not. Cheap when it is not yet time.
    #[inline]
    pub fn look(&mut self, now: Instant) -> Option<Remade> {
        if now < self.next_look {
            return None;
        }
        self.next_look = now + LOOK;
        self.look_now()
    }

    /// Does so at once.
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
                        // The one before cleans up nothing that anybody has.
                        self.janitor = at.janitor().map_err(StartError::Janitor)?;
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
        Err(first.unwrap_or_else(|| StartError::Directory { path: PathBuf::new(), reason: "is nowhere".to_owned() }))
    }

    fn listen_at(&mut self, at: &Whereabouts) -> Result<Option<OwnedFd>, StartError> {
        // Where a sign was the socket itself is to be. The sign's janitor ends first: it would remove the socket.
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
