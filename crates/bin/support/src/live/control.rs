//! Talking to a running node: a socket in the cluster's private directory, one question and one answer per connection, a
//! line of JSON each.
//!
//! Whoever asks must be this user; so must whoever answers. Both sides read a bounded number of bytes for a bounded time.
//! A thread takes the questions; the node's loop answers them between two rounds.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::IpAddr;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::geteuid;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use stentor_host::{Beside, Credentials};

/// How long the other side may take to read or to write.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the node's loop may take to answer.
const ANSWERING: Duration = Duration::from_secs(5);

/// The same, once it has begun to.
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

/// What a node is asked.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Question {
    /// How it stands.
    Show,
    /// To let another member lead its group.
    Move {
        /// Its name.
        to: String,
    },
    /// To begin a new incarnation of its group.
    Reset {
        /// The incarnation that ends, as [`Standing::ends`] names it.
        ends: String,
        /// The incarnation begins with nothing, instead of with the state of the member that is asked.
        empty: bool,
    },
    /// To end in order, as by SIGTERM.
    Stop,
    /// Replaces the network's faults; only a node with `--faults` accepts this.
    Faults {
        /// Lost packets per million.
        drop_ppm: u32,
        /// Addresses from which, and to which, every packet is lost.
        from: Vec<IpAddr>,
        /// The other ends.
        to: Vec<IpAddr>,
    },
}

/// How a member stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Standing {
    /// The name of the member.
    pub id: String,
    /// Its process.
    pub pid: u32,
    /// It leads its group and is ready.
    pub leads: bool,
    /// It asks to be promised the leadership.
    pub campaigns: bool,
    /// It waits for its group's state.
    pub joining: bool,
    /// The incarnation of its group in which it has a state; `0-00000000` if it has none.
    #[serde(default)]
    pub incarnation: String,
    /// The incarnation that a reset of its group has to name, as far as it knows.
    #[serde(default)]
    pub ends: String,
    /// Why it does not begin its group with others that have no memory of it either.
    #[serde(default)]
    pub hindrance: Option<String>,
    /// The number of the last ballot whose state it has, and who leads in it.
    pub epoch: u64,
    /// The leader in that ballot.
    pub leader: String,
    /// How long ago that leader's heartbeat was seen to rise, ms. Nobody hears itself, and an election by servers does not
    /// listen.
    #[serde(default)]
    pub heard_ms: Option<u64>,
    /// The number of the largest ballot that it promised.
    pub promised: u64,
    /// The election names it.
    pub named: bool,
    /// Messages that it has delivered.
    pub delivered: u64,
    /// What it waits for since the history of another group began anew.
    #[serde(default)]
    pub unsettled: Vec<Unsettled>,
    /// Messages that it knows of and has not delivered, and some of them.
    pub undelivered: u64,
    /// Some of those, as ids.
    pub waiting: Vec<String>,
    /// How long it has delivered nothing although there was something to deliver, ms.
    #[serde(default)]
    pub stalled_ms: u64,
    /// Whose messages those are that it has not delivered: the clients with most of them.
    #[serde(default)]
    pub clients: Vec<Lag>,
    /// Members that take nothing of what it writes to them, and for which it does not wait any more.
    #[serde(default)]
    pub expelled: Vec<String>,
}

/// What a member waits for since the history of another group began anew.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Unsettled {
    /// The name of that group.
    pub group: String,
    /// Its incarnation, as this member's group knows it.
    pub incarnation: String,
    /// A majority of this member's group knows it.
    pub in_force: bool,
    /// Messages that were under way to the history before, and are not decided.
    pub messages: u64,
    /// Groups of which a majority has to acknowledge them.
    pub awaited: Vec<String>,
    /// One of them of which another group has other times, so that it is decided nowhere.
    pub disagreed: Option<String>,
}

/// Undelivered messages of a client.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Lag {
    /// The name of the client.
    pub client: String,
    /// The number of its undelivered messages.
    pub undelivered: u64,
}

/// What is asked from other hosts instead of [`Question::Show`]; nothing else is answered there.
pub const REMOTE_SHOW: &[u8] = b"show";

/// What a node says.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// How the member stands.
    Standing(Box<Standing>),
    /// It is on its way.
    Moving,
    /// The request was carried out, or is about to be.
    Done,
    /// The reason why the request is refused at present; it may succeed in a moment.
    NotYet(String),
    /// Why not.
    Refused(String),
}

impl Asks for Question {
    type Answer = Answer;
    const LONGEST: u64 = 4096;

    fn refuse(why: String) -> Answer {
        Answer::Refused(why)
    }
}

/// A question that waits for its answer.
pub struct Asked<Q: Asks = Question> {
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

    /// Whoever asked may be gone.
    pub fn answer(self, answer: Q::Answer) {
        let _ = self.answer.try_send(answer);
    }
}

/// The node's side.
pub struct Control<Q: Asks = Question>(Receiver<Asked<Q>>);

impl<Q: Asks> Control<Q> {
    /// Listens at a new path in a directory that is this user's alone, and again if it is removed.
    pub fn listen(at: &Beside) -> io::Result<Self> {
        let (at, listener) = (at.clone(), UnixListener::bind(at.path())?);
        let (sender, asked) = sync_channel(1);
        std::thread::Builder::new().name("control".to_owned()).spawn(move || serve(listener, &at, &sender))?;
        Ok(Control(asked))
    }

    /// The next question, if there is one. What was asked while this process was stopped, by somebody who did not wait for the
    /// answer, was withdrawn: it must not take effect when the process goes on.
    #[inline]
    pub fn next(&self) -> Option<Asked<Q>> {
        self.0.try_recv().ok().filter(Asked::stands)
    }
}

/// How often the socket is looked for.
const LOOK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

/// Whether nobody is at the other end any more.
fn has_hung_up(stream: &UnixStream) -> bool {
    let mut look = [PollFd::new(stream, PollFlags::empty())];
    poll(&mut look, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok() && look[0].revents().contains(PollFlags::HUP)
}

fn serve<Q: Asks>(mut listener: UnixListener, at: &Beside, asked: &SyncSender<Asked<Q>>) {
    loop {
        match poll(&mut [PollFd::new(&listener, PollFlags::IN)], Some(&LOOK)) {
            Ok(0) => {
                // Whoever keeps the directory says what happened to it, and makes it anew.
                let path = at.path();
                if std::fs::symlink_metadata(&path).is_err()
                    && let Ok(anew) = UnixListener::bind(&path)
                {
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
                let _ = converse(&Arc::new(stream), asked);
            }
            // Out of descriptors, for instance: that may pass.
            Err(_) => std::thread::sleep(Duration::from_millis(100)),
        }
    }
}

fn converse<Q: Asks>(stream: &Arc<UnixStream>, asked: &SyncSender<Asked<Q>>) -> io::Result<()> {
    prepare(stream)?;
    let answer = match receive(stream, Q::LONGEST) {
        Err(error) => Q::refuse(format!("no question: {error}")),
        Ok(question) => {
            let (answer, answered) = sync_channel(1);
            let (asker, settled) = (Arc::clone(stream), Arc::new(AtomicBool::new(false)));
            let gone = |_| io::Error::other("the node is stopping");
            asked.send(Asked { question, answer, asker, settled: Arc::clone(&settled) }).map_err(gone)?;
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

fn send(mut stream: &UnixStream, what: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(what).map_err(io::Error::other)?;
    line.push(b'\n');
    stream.write_all(&line)
}

/// One line; what follows is never read.
fn receive<T: DeserializeOwned>(stream: &UnixStream, longest: u64) -> io::Result<T> {
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
pub fn ask<Q: Asks>(paths: &[PathBuf], question: &Q) -> io::Result<Option<Q::Answer>> {
    ask_within(paths, question, PATIENCE + ANSWERING)
}

/// The same, and the answer has that long.
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

/// The process that listens at one of these paths, whether or not it answers; `None` if nobody does, or too many wait there.
pub fn listener(paths: &[PathBuf]) -> Option<i32> {
    let streams = paths.iter().filter_map(|path| UnixStream::connect(path).ok());
    streams.filter_map(|stream| Credentials::of(stream).ok()).map(|who| who.pid).next()
}

#[cfg(test)]
mod tests {
    use stentor_testutil::TempDir;

    use super::*;

    fn said(stream: &UnixStream) -> String {
        match receive(stream, Question::LONGEST).unwrap() {
            Answer::Refused(why) => why,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn questions_are_answered_and_nonsense_is_refused_and_harms_nobody() {
        let place = TempDir::new();
        assert_eq!(ask(&[place.join("x.ctl")], &Question::Show).unwrap(), None, "nobody is there");
        let control: Control = Control::listen(&Beside::from(place.join("x.ctl"))).unwrap();
        let lines = ["\n".to_owned(), "{}\n".into(), "\"show\" 7\n".into(), "\u{ff}\n".into()];
        for line in lines.iter().chain([&"x".repeat(Question::LONGEST as usize + 9)]) {
            let stream = UnixStream::connect(place.join("x.ctl")).unwrap();
            // It may have hung up before it read all of it.
            let _ = (&stream).write_all(line.as_bytes());
            assert!(said(&stream).starts_with("no question: "), "{line}");
        }
        drop(UnixStream::connect(place.join("x.ctl")).unwrap());
        let path = place.join("x.ctl");
        let asking = std::thread::spawn(move || ask(&[path], &Question::Move { to: "g1.2".to_owned() }).unwrap());
        let asked = loop {
            if let Some(asked) = control.next() {
                break asked;
            }
            std::thread::yield_now();
        };
        assert_eq!(asked.question, Question::Move { to: "g1.2".to_owned() });
        asked.answer(Answer::Moving);
        assert_eq!(asking.join().unwrap(), Some(Answer::Moving));
    }

    #[test]
    fn what_somebody_asked_who_did_not_wait_for_the_answer_is_withdrawn() {
        let place = TempDir::new();
        let control: Control = Control::listen(&Beside::from(place.join("x.ctl"))).unwrap();
        let ask = || {
            let stream = UnixStream::connect(place.join("x.ctl")).unwrap();
            send(&stream, &Question::Stop).unwrap();
            stream
        };
        let taken = |control: &Control| {
            let since = std::time::Instant::now();
            while since.elapsed() < Duration::from_millis(500) {
                if let Some(asked) = control.next() {
                    return Some(asked.question);
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            None
        };
        let waits = ask();
        assert_eq!(taken(&control), Some(Question::Stop), "whoever waits is heard");
        drop(waits);
        drop(ask());
        assert_eq!(taken(&control), None);
    }

    #[test]
    fn socket_that_was_removed_is_made_anew_where_it_belongs() {
        let place = TempDir::new();
        let _control: Control = Control::listen(&Beside::from(place.join("x.ctl"))).unwrap();
        std::fs::remove_file(place.join("x.ctl")).unwrap();
        let since = std::time::Instant::now();
        while UnixStream::connect(place.join("x.ctl")).is_err() {
            assert!(since.elapsed() < Duration::from_secs(20));
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
