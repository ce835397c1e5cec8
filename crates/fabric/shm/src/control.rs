//! The state of the control plane: connections, handshakes in progress, and pending events.

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

/// Epoll data of the sockets.
const SOCKET: u64 = 0;
/// Epoll data of the eventfd.
const RING: u64 = 1;
/// Maximum number of refusals that are kept until the caller fetches them.
const MAX_REFUSALS: usize = 64;
/// Shortest and longest pause between two attempts to reach absent peers. The pause doubles with each attempt, from the
/// shortest to the longest.
pub(crate) const DIAL_PAUSE: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));
/// Time for which an absent peer is expected to connect at any moment. After this time, a process that waits for the
/// peer sleeps on its wait word again, not on its epoll instance.
pub(crate) const EAGER: Duration = Duration::from_secs(3);
/// Pause after a refusal, because the peer would refuse again.
pub(crate) const REFUSED_PAUSE: Duration = Duration::from_millis(500);

/// A connection whose handshake is not complete.
#[derive(Debug)]
pub(crate) struct Newcomer {
    pub(crate) link: PeerSocket,
    /// The process that was dialled; `None` if the other end dialled.
    pub(crate) expected: Option<ProcessId>,
    /// Identity of the other end, once its hello has been accepted.
    pub(crate) identity: Option<Identity>,
    /// Identity of the other end, while an older connection to that process exists. That connection may be about to end
    /// with its process.
    pub(crate) held: Option<Identity>,
    /// The process that the other end claims to be, if its configuration differs.
    pub(crate) foreign: Option<ProcessId>,
    pub(crate) since: Instant,
}

/// The other end of a queue pair, as the peer announced it.
#[derive(Debug)]
pub(crate) struct PeerOffer {
    pub(crate) kind: QpKind,
    pub(crate) epoch: u32,
    pub(crate) shape: Shape,
    /// The queue that the peer offered. `None` once the queue pair of this process has taken it over.
    pub(crate) queue: Option<Mapping>,
}

/// State of a peer.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    pub(crate) link: Option<PeerSocket>,
    /// Name of the peer in its last accepted hello.
    pub(crate) name: String,
    /// Life of the peer in its first accepted hello.
    pub(crate) first_life: Option<u64>,
    /// The peer's control page: the generation of the access to each of its regions, and its life words.
    pub(crate) control: Option<Arc<ReadMapping>>,
    /// The word in which the kernel marks the peer's death, if the peer has a life thread.
    pub(crate) life: Option<LifeWord>,
    /// `true` if the peer's life word was marked, or a peer without a life thread closed its connection, and no newer
    /// process has connected in its place.
    pub(crate) hung_up: bool,
    pub(crate) offers: HashMap<Service, PeerOffer>,
    /// Reason of the last refusal, in either direction.
    pub(crate) refused: Option<String>,
    /// Time before which the peer is not dialled, after a refusal.
    pub(crate) not_before: Option<Instant>,
}

/// The control plane of a process.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) identity: Identity,
    pub(crate) listener: OwnedFd,
    pub(crate) epoll: OwnedFd,
    /// Directories in which the peers' sockets may be.
    pub(crate) places: Vec<PathBuf>,
    pub(crate) newcomers: Vec<Newcomer>,
    pub(crate) peers: Vec<Peer>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) refusals: VecDeque<Refusal>,
    /// Notes for the operator, other than refusals.
    pub(crate) notes: VecDeque<String>,
    /// What every peer receives in the welcome: the wait page, the control page, and the eventfd that wakes this
    /// process.
    pub(crate) shared: [Arc<OwnedFd>; 3],
    pub(crate) control_words: u32,
    pub(crate) next_dial: Instant,
    pub(crate) dial_pause: Duration,
    /// Time until which queue pairs that are not ready are expected to become ready at any moment.
    pub(crate) eager_until: Instant,
    pub(crate) last_pump: Instant,
    /// `true` if the epoll instance has reported a ring since this process was last armed.
    pub(crate) has_taken_ring: bool,
    /// Time before which no connection is accepted, after a failed attempt.
    pub(crate) next_accept: Instant,
    /// Time at which offers that failed for lack of a queue are repeated.
    pub(crate) next_offers: Option<Instant>,
    /// The seat of this process. It removes the socket when it is dropped.
    pub(crate) seat: Seat,
}

impl Control {
    /// Adds a socket to those that `wait` and the descriptor observe.
    pub(crate) fn watch(epoll: &OwnedFd, socket: &OwnedFd) -> io::Result<()> {
        epoll::add(epoll, socket, epoll::EventData::new_u64(SOCKET), epoll::EventFlags::IN)
    }

    /// Makes `wait` and the descriptor observe this process's eventfd. It is edge-triggered and need not be read: each
    /// ring is reported once.
    pub(crate) fn watch_rings(epoll: &OwnedFd, event: BorrowedFd<'_>) -> io::Result<()> {
        epoll::add(epoll, event, epoll::EventData::new_u64(RING), epoll::EventFlags::IN | epoll::EventFlags::ET)
    }

    /// Waits until this process is rung or a socket is readable, but at most for `timeout`. Returns whether a socket is
    /// readable.
    pub(crate) fn readable(&mut self, timeout: Duration) -> io::Result<bool> {
        let timeout = Timespec { tv_sec: timeout.as_secs() as i64, tv_nsec: timeout.subsec_nanos().into() };
        let none = epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(SOCKET) };
        // Two events hold a ring and one of the sockets.
        let mut events = [none; 2];
        match epoll::wait(&self.epoll, &mut events, Some(&timeout)) {
            Ok(ready) => {
                let is_ring = |event: &&epoll::Event| event.data.u64() == RING;
                let rings = events[..ready].iter().filter(is_ring).count();
                self.has_taken_ring |= rings > 0;
                Ok(ready > rings)
            }
            Err(io::Errno::INTR) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Begins the handshake on a new connection by sending a hello.
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

    /// Records that peers are expected to connect at any moment.
    pub(crate) fn expect_connections(&mut self) {
        self.dial_pause = DIAL_PAUSE.0;
        self.eager_until = Instant::now() + EAGER;
    }

    /// Records a refusal, unless it repeats the last one of this peer.
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

    /// Records a refusal whose reason lacks its subject, the peer ("cannot be dialled"). The peer's name is printed in
    /// front of the reason.
    pub(crate) fn refuse_named(&mut self, peer: ProcessId, reason: &str) {
        self.refuse(Some(peer), reason.to_owned());
        if let Some(last) = self.refusals.back_mut().filter(|last| last.peer == Some(peer) && last.reason == reason) {
            last.other = Some(peer);
        }
    }

    /// Records the refusal of a process with another configuration, which will be refused again.
    pub(crate) fn refuse_foreign(&mut self, foreign: ProcessId, dialled: Option<ProcessId>, reason: &str) {
        self.refuse(dialled, reason.to_owned());
        if let Some(last) = self.refusals.back_mut().filter(|last| last.reason == reason) {
            (last.peer, last.lasting) = (Some(foreign), true);
        }
    }

    /// Sends a message to a peer, if it is connected.
    pub(crate) fn send(&mut self, peer: ProcessId, message: &Message, fds: &[Arc<OwnedFd>]) {
        if let Some(link) = &mut self.peers[peer.index()].link {
            link.send(message, fds);
        }
    }
}
