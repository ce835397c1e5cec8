//! Talking to a running node: a socket in the cluster's private directory, one question and one answer per connection, a
//! line of JSON each.
//!
//! Whoever asks must be this user; so must whoever answers. Both sides read a bounded number of bytes for a bounded time.
//! A thread takes the questions and wakes the node's loop, which answers them between two rounds. The thread ends with the [`Control`].

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::Serialize;
use serde::de::DeserializeOwned;
use stentor_host::{Beside, Credentials};

/// How long the other side may take to read or to write.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the node's loop may take to answer.
const ANSWERING: Duration = Duration::from_secs(5);
/// How long the loop may take once it has begun to answer.
const BRIEF: Duration = Duration::from_secs(1);

/// A kind of questions.
pub trait Asks: Serialize + DeserializeOwned + Send + 'static {
    /// What is said to them.
    type Answer: Serialize + DeserializeOwned + Send + 'static;
    /// Bytes of a question or an answer, at most.
    const LONGEST: u64;

    /// Why there is no other answer.
    fn refuse(why: String) -> Self::Answer;
}

/// A question that waits for its answer.
#[derive(Debug)]
pub struct Asked<Q: Asks> {
    /// What is asked.
    pub question: Q,
    answer: SyncSender<Q::Answer>,
    /// The one who asks is at the other end.
    asker: Arc<UnixStream>,
    /// Set by whoever comes first: the loop that answers, or the thread that gives up waiting for it.
    settled: Arc<AtomicBool>,
}

impl<Q: Asks> Asked<Q> {
    /// Whether whoever asked still waits.
    fn stands(&self) -> bool {
        !self.settled.swap(true, Ordering::AcqRel) && !has_hung_up(&self.asker)
    }

    /// Returns the connection to whoever asked, to be used after the answer.
    pub(super) fn stream(&self) -> Option<UnixStream> {
        self.asker.try_clone().ok()
    }

    /// Answers. Whoever asked may be gone.
    pub fn answer(self, answer: Q::Answer) {
        let _ = self.answer.try_send(answer);
    }
}

/// The node's side.
#[derive(Debug)]
pub struct Control<Q: Asks> {
    asked: Receiver<Asked<Q>>,
    /// Set after a question is put into `asked`: a load of this is all that a round without a question costs.
    waits: Arc<AtomicBool>,
    at: Beside,
    /// The other end is the thread's, which ends when this one is shut.
    end: UnixStream,
}

impl<Q: Asks> Control<Q> {
    /// Listens at a new path in a directory that is this user's alone, and again if it is removed. `wake` ends the sleep of the loop that
    /// calls [`next`](Control::next); the thread of this calls it after each question. Drop this before what keeps the directory.
    ///
    /// # Errors
    /// What the system says.
    pub fn listen(at: &Beside, wake: impl Fn() + Send + 'static) -> io::Result<Self> {
        let listener = UnixListener::bind(at.path())?;
        let (sender, asked) = sync_channel(1);
        let (end, ended) = UnixStream::pair()?;
        let waits = Arc::new(AtomicBool::new(false));
        let put = {
            let waits = Arc::clone(&waits);
            move |question| {
                let put = sender.send(question).map_err(|_| io::Error::other("the node is stopping"));
                // In this order: whoever sees the flag finds the question, and whoever is woken sees the flag.
                waits.store(true, Ordering::Release);
                wake();
                put
            }
        };
        let beside = at.clone();
        std::thread::Builder::new().name("control".to_owned()).spawn(move || serve(listener, &beside, &put, &ended))?;
        Ok(Control { asked, waits, at: at.clone(), end })
    }

    /// Returns the next question, if there is one. What was asked while this process was stopped, by somebody who did not wait for the
    /// answer, was withdrawn: it must not take effect when the process goes on.
    #[inline]
    #[must_use]
    pub fn next(&self) -> Option<Asked<Q>> {
        if !self.waits.load(Ordering::Relaxed) { None } else { self.take() }
    }

    #[cold]
    fn take(&self) -> Option<Asked<Q>> {
        // Before the look: a question that comes after it sets the flag again.
        self.waits.swap(false, Ordering::AcqRel);
        self.asked.try_recv().ok().filter(Asked::stands)
    }
}

impl<Q: Asks> Drop for Control<Q> {
    fn drop(&mut self) {
        // The end is shut first: after that the thread does not make the socket anew. A node that starts over listens at the same path.
        let _ = self.end.shutdown(Shutdown::Both);
        let _ = std::fs::remove_file(self.at.path());
    }
}

/// How often the socket is looked for.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Whether nobody is at the other end any more.
fn has_hung_up(stream: &UnixStream) -> bool {
    let mut look = [PollFd::new(stream, PollFlags::empty())];
    poll(&mut look, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok() && look[0].revents().contains(PollFlags::HUP)
}

/// Serves until the [`Control`] at the other end of `end` is gone.
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
        // After the look: the control goes before the directory, so a socket that went with the directory is not made anew.
        if has_hung_up(end) {
            return;
        }
        match polled {
            Ok(0) => {
                // Whoever keeps the directory says what happened to it, and makes it anew.
                if !is_there && let Ok(anew) = UnixListener::bind(&path) {
                    listener = anew;
                }
                continue;
            }
            Err(Errno::INTR) => continue,
            Ok(_) | Err(_) => {}
        }
        match listener.accept() {
            // Whoever goes away, says nothing or something else harms nobody but itself.
            Ok((stream, _)) => {
                let _ = converse(&Arc::new(stream), put);
            }
            // Out of descriptors, for instance: that may pass.
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
                    Q::refuse("the node is busy: nothing is known of what becomes of this".to_owned())
                }),
            }
        }
    };
    send(stream, &answer)
}

/// Refuses another user, and sees to it that nothing blocks for long.
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

/// One line; what follows is never read.
pub(super) fn receive<T: DeserializeOwned>(stream: &UnixStream, longest: u64) -> io::Result<T> {
    let mut line = Vec::new();
    let mut input = BufReader::new(stream.take(longest));
    input.read_until(b'\n', &mut line)?;
    if line.last() != Some(&b'\n') {
        let what = if line.len() as u64 == longest { "longer than anything is" } else { "it ended early" };
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    serde_json::from_slice(&line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Asks the process that listens at one of these paths. `None` if nobody does.
///
/// # Errors
/// What the system says, or that the answer does not come in time.
pub fn ask<Q: Asks>(paths: &[PathBuf], question: &Q) -> io::Result<Option<Q::Answer>> {
    ask_within(paths, question, PATIENCE + ANSWERING)
}

/// Does the same as [`ask`], and the answer has that long.
///
/// # Errors
/// As [`ask`].
pub fn ask_within<Q: Asks>(paths: &[PathBuf], question: &Q, patience: Duration) -> io::Result<Option<Q::Answer>> {
    for path in paths {
        let stream = match UnixStream::connect(path) {
            Ok(stream) => stream,
            // It died, or has just begun.
            Err(error) if [io::ErrorKind::ConnectionRefused, io::ErrorKind::NotFound].contains(&error.kind()) => {
                continue;
            }
            Err(error) => return Err(error),
        };
        prepare(&stream)?;
        stream.set_read_timeout(Some(patience))?;
        send(&stream, question)?;
        return receive(&stream, Q::LONGEST).map(Some).map_err(|error| match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                io::Error::new(error.kind(), format!("no answer for {patience:?}"))
            }
            _ => error,
        });
    }
    Ok(None)
}

/// Returns the process that listens at one of these paths, whether or not it answers; `None` if nobody does, or too many wait there.
#[must_use]
pub fn listener(paths: &[PathBuf]) -> Option<i32> {
    let streams = paths.iter().filter_map(|path| UnixStream::connect(path).ok());
    streams.filter_map(|stream| Credentials::of(stream).ok()).map(|who| who.pid).next()
}
