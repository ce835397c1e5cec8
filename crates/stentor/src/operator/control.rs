//! The control socket of a running node, in the cluster's private directory. Each connection carries one question and
//! one answer, each a line of JSON.
//!
//! Both sides must belong to the same user. Both read a bounded number of bytes for a bounded time. A thread receives
//! the questions and wakes the node's loop, which answers them between two rounds. The thread ends with the
//! [`Control`].

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use rustix::process::geteuid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stentor_host::{Beside, Credentials};

/// Longest time of each read from or write to the other side.
const PATIENCE: Duration = Duration::from_secs(2);
/// Longest time for the node's loop to begin an answer.
const ANSWERING: Duration = Duration::from_secs(5);
/// Longest time for the node's loop to complete an answer that the loop has begun.
const BRIEF: Duration = Duration::from_secs(1);

/// Longest time to find out whether a process listens.
const LEAST: Duration = Duration::from_millis(1);

/// A type of question, with its type of answer.
pub trait Asks: Serialize + DeserializeOwned + Send + 'static {
    /// The type of the answers.
    type Answer: Serialize + DeserializeOwned + Send + 'static;
    /// Maximum size of a question or an answer, in bytes.
    const LONGEST: u64;

    /// Returns the answer that refuses a question.
    fn refuse(why: String) -> Self::Answer;
}

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Asked<Q: Asks> {
    /// The question.
    pub question: Q,
    answer: SyncSender<Q::Answer>,
    /// The connection to the asker.
    asker: Arc<UnixStream>,
    /// Set by the first of two threads: the loop that answers, or the control thread that stops waiting for it.
    settled: Arc<AtomicBool>,
}

impl<Q: Asks> Asked<Q> {
    /// Claims the question. Returns whether the asker still waits for the answer.
    fn stands(&self) -> bool {
        !self.settled.swap(true, Ordering::AcqRel) && !has_hung_up(&self.asker)
    }

    /// Returns the connection to the asker, for use after the answer.
    pub(super) fn stream(&self) -> Option<UnixStream> {
        self.asker.try_clone().ok()
    }

    /// Sends the answer. The asker may have disconnected.
    pub fn answer(self, answer: Q::Answer) {
        let _ = self.answer.try_send(answer);
    }
}

/// The node's side of a control socket.
#[derive(Debug)]
pub struct Control<Q: Asks> {
    asked: Receiver<Asked<Q>>,
    /// Set after a question is put into `asked`. A round without a question costs only a load of this flag.
    waits: Arc<AtomicBool>,
    at: Beside,
    /// One end of a socket pair with the thread. Shutting it down ends the thread.
    end: UnixStream,
}

impl<Q: Asks> Control<Q> {
    /// Listens at a new path in a directory that belongs to this user alone, and recreates the socket if it is removed.
    /// The control thread calls `wake` after each question, to end the sleep of the loop that calls
    /// [`next`](Control::next). Drop the control before the owner of the directory.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn listen(at: &Beside, wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        let listener = UnixListener::bind(at.path())?;
        let (sender, asked) = sync_channel(1);
        let (end, ended) = UnixStream::pair()?;
        let waits = Arc::new(AtomicBool::new(false));
        let put = {
            let waits = Arc::clone(&waits);
            move |question| {
                let put = sender.send(question).map_err(|_| io::Error::other("the node is stopping"));
                // The order matters: a reader that sees the flag finds the question, and a loop that is woken sees the
                // flag.
                waits.store(true, Ordering::Release);
                wake();
                put
            }
        };
        let beside = at.clone();
        std::thread::Builder::new().name("control".to_owned()).spawn(move || serve(listener, &beside, &put, &ended))?;
        Ok(Control { asked, waits, at: at.clone(), end })
    }

    /// Returns the next question, if there is one. Questions whose askers no longer wait are dropped. Otherwise the
    /// questions of askers that gave up while this process was suspended would take effect when it resumes.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Asked<Q>> {
        if !self.waits.load(Ordering::Relaxed) { None } else { self.take() }
    }

    #[cold]
    fn take(&self) -> Option<Asked<Q>> {
        // The flag is cleared first, so a question that arrives later sets it again.
        self.waits.swap(false, Ordering::AcqRel);
        self.asked.try_recv().ok().filter(Asked::stands)
    }
}

impl<Q: Asks> Drop for Control<Q> {
    fn drop(&mut self) {
        // The thread's end is shut down first, so that the thread cannot recreate the socket. A node that starts over
        // listens at the same path.
        let _ = self.end.shutdown(Shutdown::Both);
        let _ = std::fs::remove_file(self.at.path());
    }
}

/// Interval between checks whether the socket still exists.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Returns whether the other end has disconnected.
fn has_hung_up(stream: &UnixStream) -> bool {
    let mut look = [PollFd::new(stream, PollFlags::empty())];
    poll(&mut look, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok() && look[0].revents().contains(PollFlags::HUP)
}

/// Serves connections until the [`Control`] at the other end of `end` is dropped.
fn serve<Q: Asks>(
    mut listener: UnixListener,
    at: &Beside,
    put: &impl Fn(Asked<Q>) -> io::Result<()>,
    end: &UnixStream,
) {
    loop {
        let polled =
            poll(&mut [PollFd::new(&listener, PollFlags::IN), PollFd::new(end, PollFlags::empty())], Some(&LOOK));
        let path = at.path();
        let is_there = std::fs::symlink_metadata(&path).is_ok();
        // This check follows that of the path. The control is dropped before the directory's owner, so a socket that
        // vanished with the directory is not recreated.
        if has_hung_up(end) {
            return;
        }
        match polled {
            Ok(0) => {
                // If the directory itself is missing, its owner reports that and recreates it.
                if !is_there && let Ok(anew) = UnixListener::bind(&path) {
                    listener = anew;
                }
                continue;
            }
            Err(Errno::INTR) => continue,
            Ok(_) | Err(_) => {}
        }
        match listener.accept() {
            // An asker that disconnects, is silent or sends nonsense affects only its own connection.
            Ok((stream, _)) => {
                let _ = converse(&Arc::new(stream), put);
            }
            // The failure may be temporary, for example a lack of descriptors.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn converse<Q: Asks>(stream: &Arc<UnixStream>, put: &impl Fn(Asked<Q>) -> io::Result<()>) -> io::Result<()> {
    prepare(stream)?;
    let answer = match receive(stream, Q::LONGEST) {
        Err(error) => Q::refuse(format!("no question: {error}")),
        Ok(question) => {
            let (answer, answered) = sync_channel(1);
            let (asker, settled) = (Arc::clone(stream), Arc::new(AtomicBool::new(false)));
            put(Asked { question, answer, asker, settled: Arc::clone(&settled) })?;
            match answered.recv_timeout(ANSWERING) {
                Ok(answer) => answer,
                Err(_) if !settled.swap(true, Ordering::AcqRel) => {
                    Q::refuse("the node is busy, and the request was withdrawn: ask again".to_owned())
                }
                Err(_) => answered.recv_timeout(BRIEF).unwrap_or_else(|_| {
                    Q::refuse("the node is busy: the outcome of this request is unknown".to_owned())
                }),
            }
        }
    };
    send(stream, &answer)
}

/// Refuses another user, and sets timeouts so that nothing blocks for long.
fn prepare(stream: &UnixStream) -> io::Result<()> {
    let (other, me) = (Credentials::of(stream)?.uid, geteuid().as_raw());
    if other != me {
        let what = format!("the other end is of user {other}, this process of {me}");
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, what));
    }
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

pub(super) fn send(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// Receives one line. Bytes after the line that arrive together with it are dropped, so the other side must send none.
pub(super) fn receive<T: DeserializeOwned>(stream: &UnixStream, longest: u64) -> io::Result<T> {
    let mut line = Vec::new();
    let mut input = BufReader::new(stream.take(longest));
    input.read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        let what = if line.len() as u64 == longest { "it is too long" } else { "it ended early" };
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    serde_json::from_slice(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Asks the process that listens at one of these paths. Returns `None` if no process listens.
///
/// # Errors
/// Returns the error of the operating system, or an error if the answer does not arrive in time.
pub fn ask<Q: Asks>(paths: &[PathBuf], question: &Q) -> io::Result<Option<Q::Answer>> {
    ask_within(paths, question, PATIENCE + ANSWERING)
}

/// Asks like [`ask`], but waits for the answer for at most `patience`.
///
/// # Errors
/// Returns an error in the same cases as [`ask`].
pub fn ask_within<Q: Asks>(paths: &[PathBuf], question: &Q, patience: Duration) -> io::Result<Option<Q::Answer>> {
    let late = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            io::Error::new(error.kind(), format!("no answer for {patience:?}"))
        }
        _ => error,
    };
    for path in paths {
        let stream = match dial(path, patience) {
            Ok(stream) => stream,
            // The process died, or is just starting.
            Err(error) if [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound].contains(&error.kind()) => {
                continue;
            }
            Err(error) => return Err(late(error)),
        };
        prepare(&stream)?;
        stream.set_read_timeout(Some(patience))?;
        send(&stream, question)?;
        return receive(&stream, Q::LONGEST).map(Some).map_err(late);
    }
    Ok(None)
}

/// Connects to a control socket.
///
/// If the other process is stopped, connections fill its queue. Without the limit, a further one would wait for ever.
fn dial(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // On Unix sockets, this limit also applies to `connect`.
    set_socket_timeout(&socket, Timeout::Send, Some(patience))?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(UnixStream::from(socket))
}

/// Returns the process that listens at one of these paths, even if it does not answer. Returns `None` if no process
/// listens.
#[must_use]
pub fn listener(paths: &[PathBuf]) -> Option<i32> {
    let streams = paths.iter().filter_map(|path| dial(path, PATIENCE).ok());
    streams.filter_map(|stream| Credentials::of(stream).ok()).map(|who| who.pid).next()
}

/// Returns whether a process listens at a socket, even if its queue of connections is full.
#[must_use]
pub fn is_listened_to(path: &Path) -> bool {
    let gone = [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound];
    dial(path, LEAST).map_or_else(|error| !gone.contains(&error.kind()), |_| true)
}
