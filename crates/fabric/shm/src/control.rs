//! The control plane's state: who is connected, who is about to be, what happened.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::fs::Timespec;
use rustix::io;
use stentor_fabric::{Event, ProcessId, QpKind, Refusal, Service};

use crate::life::LifeWord;
use crate::mapping::{Mapping, ReadMapping};
use crate::message::{Identity, Message};
use crate::peer_socket::PeerSocket;
use crate::queue::Shape;
use stentor_host::Seat;

/// Refusals that are kept until somebody asks.
const MAX_REFUSALS: usize = 64;
/// Pause between two tries to reach peers that are not there: from, to.
pub(crate) const DIAL_PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// How long a peer is expected to come any moment; after that a process sleeps deeper while it waits for it.
pub(crate) const EAGER: Duration = Duration::from_secs(3);
/// Pause after a peer refused: it will again.
pub(crate) const REFUSED_PAUSE: Duration = Duration::from_millis(500);

/// A connection whose other end has not been let in yet.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) link: PeerSocket,
    /// Whom we dialled; `None` if the other end dialled.
    pub(crate) expected: Option<ProcessId>,
    /// Who it is, once it has said so and been believed.
    pub(crate) identity: Option<Identity>,
    /// Who it is, if an older connection to that process is still there: it may be about to end with the process.
    pub(crate) held: Option<Identity>,
    /// Which process it says to be, if it was started with something else.
    pub(crate) foreign: Option<ProcessId>,
    pub(crate) since: Instant,
}

/// The other end of a queue pair, as the peer announced it.
#[derive(Debug)]
pub(crate) struct PeerOffer {
    pub(crate) kind: QpKind,
    pub(crate) epoch: u32,
    pub(crate) shape: Shape,
    /// Until our end takes it.
    pub(crate) queue: Option<Mapping>,
}

/// What is known of a peer.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    pub(crate) link: Option<PeerSocket>,
    /// Its name, as it said when it was let in last.
    pub(crate) name: String,
    /// The first life of it that was let in.
    pub(crate) first_life: Option<u64>,
    /// Its generations and life words.
    pub(crate) control: Option<Arc<ReadMapping>>,
    /// Where the kernel says that it has died, if it does.
    pub(crate) life: Option<LifeWord>,
    /// It hung up, and nobody was let in in its place since.
    pub(crate) hung_up: bool,
    pub(crate) offers: HashMap<Service, PeerOffer>,
    /// Why it was not let in last, or did not let us in.
    pub(crate) refused: Option<String>,
    /// It is not dialled before this, because it refused.
    pub(crate) not_before: Option<Instant>,
}

/// The control plane of one process.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) identity: Identity,
    pub(crate) listener: OwnedFd,
    pub(crate) epoll: OwnedFd,
    /// Directories in which peers' sockets may be.
    pub(crate) places: Vec<PathBuf>,
    pub(crate) newcomers: Vec<Newcomer>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) refusals: VecDeque<Refusal>,
    /// What a person should know beside them.
    pub(crate) notes: VecDeque<String>,
    /// The wait page and the control page, as every peer gets them.
    pub(crate) pages: [Arc<OwnedFd>; 2],
    pub(crate) control_words: u32,
    pub(crate) next_dial: Instant,
    pub(crate) dial_pause: Duration,
    /// Until then, queue pairs that are not ready yet are expected to become so any moment.
    pub(crate) eager_until: Instant,
    pub(crate) last_pump: Instant,
    /// Not before that a connection is accepted: the last one could not be.
    pub(crate) next_accept: Instant,
    /// When ends that could not be offered for want of a queue are tried again.
    pub(crate) next_offers: Option<Instant>,
    /// Removes the socket when this goes.
    pub(crate) seat: Seat,
}

impl Control {
    /// Has `wait` and the descriptor look at a socket.
    pub(crate) fn watch(epoll: &OwnedFd, socket: &OwnedFd) -> io::Result<()> {
        epoll::add(epoll, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
    }

    /// Has them look at what is signalled once, and need not be read.
    pub(crate) fn watch_signal(epoll: &OwnedFd, signal: BorrowedFd<'_>) -> io::Result<()> {
        epoll::add(epoll, signal, epoll::EventData::new_u64(0), epoll::EventFlags::IN | epoll::EventFlags::ET)
    }

    /// Whether a socket has something to read; waits for it, but not longer than `timeout`.
    pub(crate) fn readable(&self, timeout: Duration) -> io::Result<bool> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        let mut events = [epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }];
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            Err(io::Errno::INTR) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// A new connection: says hello.
    pub(crate) fn greet(&mut self, socket: OwnedFd, pid: i32, expected: Option<ProcessId>) {
        if Control::watch(&self.epoll, &socket).is_err() {
            return;
        }
        let mut link = PeerSocket::new(socket, pid);
        link.send(&Message::Hello(self.identity.clone()), &[]);
        self.newcomers.push(Newcomer {
            link,
            expected,
            identity: None,
            held: None,
            foreign: None,
            since: Instant::now(),
        });
    }

    /// Something changed: peers are expected to connect any moment.
    pub(crate) fn expect_connections(&mut self) {
        self.dial_pause = DIAL_PAUSE.0;
        self.eager_until = Instant::now() + EAGER;
    }

    /// Keeps a refusal, unless it is the one that this peer got last.
    pub(crate) fn refuse(&mut self, peer: Option<ProcessId>, reason: String) {
        let known = peer.and_then(|peer| self.peers.get_mut(peer.index()));
        let repeated = match known {
            Some(known) => {
                known.not_before = Some(Instant::now() + REFUSED_PAUSE);
                let repeated = known.refused.as_ref() == Some(&reason);
                known.refused = Some(reason.clone());
                repeated
            }
            None => self.refusals.back().is_some_and(|last| last.reason == reason),
        };
        if !repeated {
            if self.refusals.len() == MAX_REFUSALS {
                self.refusals.pop_front();
            }
            self.refusals.push_back(Refusal { peer, at: None, certain: true, other: None, reason, lasting: false });
        }
    }

    /// The same, where the reason is what a peer is or lacks: whoever knows its name says it before the reason.
    pub(crate) fn refuse_named(&mut self, peer: ProcessId, reason: &str) {
        self.refuse(Some(peer), reason.to_owned());
        if let Some(last) = self.refusals.back_mut().filter(|last| last.peer == Some(peer) && last.reason == reason) {
            last.other = Some(peer);
        }
    }

    /// The same of a process that was started with something else: it will be refused again.
    pub(crate) fn refuse_foreign(&mut self, foreign: ProcessId, dialled: Option<ProcessId>, reason: &str) {
        self.refuse(dialled, reason.to_owned());
        if let Some(last) = self.refusals.back_mut().filter(|last| last.reason == reason) {
            (last.peer, last.lasting) = (Some(foreign), true);
        }
    }

    /// Sends to a peer that is connected.
    pub(crate) fn send(&mut self, peer: ProcessId, message: &Message, fds: &[Arc<OwnedFd>]) {
        if let Some(link) = &mut self.peers[peer.index()].link {
            link.send(message, fds);
        }
    }
}
