//! The control plane's round: admission of peers, their messages, and the detection of their end.

use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::geteuid;
use stentor_fabric::memory::{Ordering, WORD, fence};
use stentor_fabric::{OsError, ProcessId, QpState, RegionId, Status};

use crate::bell::Bell;
use crate::control::{Control, DIAL_PAUSE, Newcomer, PeerOffer};
use crate::fabric::{ShmFabric, wait_page_bytes};
use crate::hello;
use crate::life::LifeWord;
use crate::mapping::{Mapping, ReadMapping};
use crate::message::{Identity, Message};
use crate::queue::Shape;
use crate::remote::{Remote, RemoteMemory};
use crate::socket::{self, Received};
use stentor_host::Named;
use stentor_host::Remade;
use stentor_host::memfd;
use stentor_host::{entries, is_socket_of};

/// Maximum number of packets that a round receives from one peer.
const BURST: usize = 256;
/// Number of handshakes in progress at which an incoming connection must replace a silent one.
const MAX_NEWCOMERS: usize = 64;
/// Maximum duration of a handshake.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Time for which the connection of an ended process may still seem alive when its next life connects.
const LINGER: Duration = Duration::from_secs(1);
/// Pause after a connection could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of regions, and of queue pairs, that one peer may announce.
const MAX_PER_PEER: usize = 4096;

/// Result of a complete handshake.
struct Admitted {
    identity: Identity,
    bell: Bell,
    control: ReadMapping,
}

impl ShmFabric {
    /// Runs one round of the control plane.
    pub(crate) fn pump(&mut self) {
        let now = Instant::now();
        self.control.last_pump = now;
        self.report_broken();
        if let Some(remade) = self.control.seat.look(now) {
            self.sit_down_again(remade);
        }
        if self.control.readable(Duration::ZERO).unwrap_or(true) {
            self.hear_peers();
            self.accept();
            self.hear_newcomers();
        } else if self.control.newcomers.iter().any(|newcomer| newcomer.held.is_some()) {
            self.hear_newcomers();
        }
        self.drain();
        self.offer_again();
        self.dial();
    }

    /// Handles the removal of the socket from its directory.
    fn sit_down_again(&mut self, Remade { listener, note }: Remade) {
        self.control.notes.push_back(note);
        let Some(listener) = listener else { return };
        if let Err(error) = Control::watch(&self.control.epoll, &listener) {
            self.control.notes.push_back(format!("its new socket cannot be watched: {error}"));
        }
        self.control.listener = listener;
        // Peers that could not connect before may be able to now.
        self.control.expect_connections();
    }

    /// Sends a message to a peer and wakes it.
    pub(crate) fn tell(&mut self, peer: ProcessId, message: &Message, fds: &[Arc<OwnedFd>]) {
        self.control.send(peer, message, fds);
        fence(Ordering::SeqCst);
        if let Some(bell) = &self.data.bells[peer.index()] {
            bell.ring();
        }
    }

    fn hear_peers(&mut self) {
        let mut room = socket::ROOM;
        for peer in (0..self.config.processes).map(ProcessId) {
            for _ in 0..BURST {
                let Some(link) = &self.control.peers[peer.index()].link else { break };
                let heard = match socket::receive(&link.socket, &mut room) {
                    Received::Nothing => break,
                    Received::Closed => {
                        // The kernel marks the word before it closes the socket. A peer that closes without a mark is
                        // alive.
                        let known = &mut self.control.peers[peer.index()];
                        known.hung_up = known.life.is_none();
                        self.lose(peer);
                        break;
                    }
                    Received::Torn(why) => Err(why.to_owned()),
                    Received::Packet(bytes, fds) => match Message::decode(bytes) {
                        Ok(message) => self.hear(peer, message, &fds),
                        Err(garbage) => Err(garbage.to_string()),
                    },
                };
                if let Err(reason) = heard {
                    let me = &self.control.identity;
                    let name = &self.control.peers[peer.index()].name;
                    let reason = format!("{me} closed the connection to {name}: {reason}");
                    self.tell(peer, &Message::Refuse(reason.clone()), &[]);
                    self.control.refuse(Some(peer), reason);
                    self.lose(peer);
                }
            }
        }
    }

    fn hear(&mut self, peer: ProcessId, message: Message, fds: &[OwnedFd]) -> Result<(), String> {
        match message {
            Message::Grant { .. } => self.hear_grant(peer, &message, fds)?,
            Message::Revoke { region, generation } => {
                self.data.flush();
                self.data.remotes.revoked(peer, region, generation);
            }
            Message::Offer { service, kind, epoch, ring_words, receives } => {
                if self.control.peers[peer.index()].offers.len() >= MAX_PER_PEER {
                    return Err(format!("more than {MAX_PER_PEER} queue pairs"));
                }
                let [fd] = fds else { return Err("a queue pair without its queue".to_owned()) };
                let shape = Shape::announced(ring_words, receives);
                let shape = shape.ok_or_else(|| format!("a queue of {ring_words} words"))?;
                let words = memfd::verify(fd.as_fd(), shape.words() * WORD as u64)
                    .map_err(|reason| format!("the queue for {service:?} is refused: {reason}"))?;
                let queue = Mapping::shared(fd.as_fd(), words, false)
                    .map_err(|error| format!("the queue for {service:?} cannot be mapped: {error}"))?;
                self.offered(peer, service, PeerOffer { kind, epoch, shape, queue: Some(queue) })?;
            }
            Message::Withdraw { service, epoch } => self.withdrawn(peer, service, epoch),
            Message::Refuse(reason) => {
                self.control.refuse(Some(peer), reason);
                self.lose(peer);
            }
            Message::Hello(_) | Message::Welcome { .. } => {
                return Err("a handshake after the handshake".to_owned());
            }
        }
        // Breaks must be reported before the next message is handled, which may be about the queue pair's next life.
        self.report_broken();
        Ok(())
    }

    /// Handles a grant to this process itself like one from a peer, but without a connection.
    pub(crate) fn hear_own_grant(&mut self, message: &Message, fd: &OwnedFd) -> Result<(), String> {
        let me = self.config.me;
        if self.control.peers[me.index()].control.is_none() {
            let words = self.control.control_words as usize;
            let control = ReadMapping::shared(self.control.shared[1].as_fd(), words);
            let control = control.map_err(|error| format!("the control page cannot be mapped: {error}"))?;
            self.control.peers[me.index()].control = Some(Arc::new(control));
        }
        self.take_grant(me, message, fd)
    }

    fn hear_grant(&mut self, peer: ProcessId, message: &Message, fds: &[OwnedFd]) -> Result<(), String> {
        let Message::Grant { purpose, .. } = *message else { return Ok(()) };
        let [fd] = fds else { return Err(format!("region {purpose:?} came without its memory")) };
        self.take_grant(peer, message, fd)
    }

    fn take_grant(&mut self, peer: ProcessId, message: &Message, fd: &OwnedFd) -> Result<(), String> {
        let Message::Grant { region, purpose, access, bytes, generation } = *message else { return Ok(()) };
        let control = self.control.peers[peer.index()].control.clone();
        let control = control.filter(|control| (region as usize) < control.words());
        let Some(control) = control else { return Err(format!("region {purpose:?} has no generation")) };
        if self.data.remotes.count(peer) >= MAX_PER_PEER {
            return Err(format!("more than {MAX_PER_PEER} regions"));
        }
        let words = memfd::verify(fd.as_fd(), bytes)
            .map_err(|reason| format!("the memory of region {purpose:?} is refused: {reason}"))?;
        let memory = match access {
            stentor_fabric::Access::Read => ReadMapping::shared(fd.as_fd(), words).map(RemoteMemory::Read),
            _ => Mapping::shared(fd.as_fd(), words, self.config.populate).map(RemoteMemory::Write),
        };
        let memory = memory.map_err(|error| format!("region {purpose:?} cannot be mapped: {error}"))?;
        // The new grant replaces an older one of this name. Writes under the older one must be checked first.
        self.data.flush();
        let granted = Remote { peer, purpose, access, memory, words, region, generation, control, key: 0 };
        self.data.remotes.insert(granted);
        Ok(())
    }

    /// Handles the loss of a peer.
    fn lose(&mut self, peer: ProcessId) {
        // Settle the completed writes and receive the peer's messages before the queue pairs to the peer break.
        self.data.flush();
        self.data.receive();
        let known = &mut self.control.peers[peer.index()];
        // A reported death stays reported, however the connection ended.
        known.hung_up |= known.life.as_ref().is_some_and(LifeWord::is_marked);
        (known.link, known.control, known.life) = (None, None, None);
        known.offers.clear();
        self.life.forget(peer);
        self.data.bells[peer.index()] = None;
        for index in 0..self.data.qps.len() {
            let qp = &mut self.data.qps[index];
            if qp.peer != peer {
                continue;
            }
            qp.offered = false;
            match qp.state {
                QpState::Connecting => qp.inbound = None,
                QpState::Ready => self.data.fail(index, Status::RetryExceeded),
                QpState::Error => {}
            }
        }
        self.data.remotes.remove_peer(peer);
        self.report_broken();
        self.control.expect_connections();
    }

    fn accept(&mut self) {
        if self.control.last_pump < self.control.next_accept {
            return;
        }
        for _ in 0..MAX_NEWCOMERS {
            if !self.has_place() {
                break;
            }
            let socket = match socket::accept(&self.control.listener) {
                Ok(Some(socket)) => socket,
                Ok(None) => break,
                Err(error) => {
                    let me = &self.control.identity;
                    let error = OsError(error.raw_os_error()).with_remedy();
                    let until = "peers cannot connect meanwhile";
                    self.control.next_accept = self.control.last_pump + ACCEPT_PAUSE;
                    self.control.refuse(None, format!("{me} cannot accept a connection: {error}; {until}"));
                    break;
                }
            };
            if let Some(pid) = self.same_user(&socket) {
                self.control.greet(socket, pid, None);
            }
        }
    }

    /// Returns whether there is room for another incoming connection. If the list is full, makes room by closing the
    /// oldest incoming connection without an accepted hello. Silent connections therefore keep no peer out, because a
    /// peer sends its hello at once.
    fn has_place(&mut self) -> bool {
        let newcomers = &mut self.control.newcomers;
        if newcomers.len() < MAX_NEWCOMERS {
            return true;
        }
        let silent = |newcomer: &Newcomer| newcomer.expected.is_none() && newcomer.identity.is_none();
        newcomers.iter().position(silent).map(|at| newcomers.remove(at)).is_some()
    }

    /// Returns the process id of the other end, if it runs as the same user.
    fn same_user(&mut self, socket: &OwnedFd) -> Option<i32> {
        let (pid, uid) = socket::peer(socket).ok()?;
        match hello::compare_users(&self.control.identity, geteuid().as_raw(), pid, uid) {
            Ok(()) => Some(pid),
            Err(reason) => {
                self.control.refuse(None, reason);
                None
            }
        }
    }

    fn hear_newcomers(&mut self) {
        let mut waiting = std::mem::take(&mut self.control.newcomers);
        for newcomer in &mut waiting {
            self.hear_newcomer(newcomer);
        }
        waiting.retain(|newcomer| !newcomer.link.dead);
        self.control.newcomers.append(&mut waiting);
    }

    /// Continues a handshake. The link is dead afterwards unless the handshake continues later.
    fn hear_newcomer(&mut self, newcomer: &mut Newcomer) {
        let mut room = socket::ROOM;
        for _ in 0..BURST {
            let greeted = match newcomer.held.take() {
                Some(theirs) => self.welcome(newcomer, theirs).map(|()| None),
                None => match socket::receive(&newcomer.link.socket, &mut room) {
                    Received::Packet(bytes, fds) => self.greeted(newcomer, bytes, &fds),
                    Received::Nothing => return,
                    Received::Closed => return newcomer.link.dead = true,
                    Received::Torn(why) => {
                        let (me, pid) = (&self.control.identity, Named(newcomer.link.pid));
                        Err(format!("{me} received from {pid} {why}"))
                    }
                },
            };
            match greeted {
                Ok(None) => {}
                Ok(Some(_)) if newcomer.link.dead => return,
                Ok(Some(admitted)) => return self.admit(newcomer, admitted),
                Err(reason) => {
                    let peer = newcomer.identity.as_ref().map(|identity| identity.process).or(newcomer.expected);
                    newcomer.link.send(&Message::Refuse(reason.clone()), &[]);
                    newcomer.link.dead = true;
                    match newcomer.foreign {
                        Some(foreign) => self.control.refuse_foreign(foreign, peer, &reason),
                        None => self.control.refuse(peer, reason),
                    }
                    return;
                }
            }
            // Continue reading: a peer that hung up may have sent the reason before. A held newcomer waits for the next
            // round instead.
            if newcomer.held.is_some() {
                return;
            }
        }
    }

    fn greeted(&mut self, newcomer: &mut Newcomer, bytes: &[u8], fds: &[OwnedFd]) -> Result<Option<Admitted>, String> {
        let (me, pid) = (&self.control.identity, newcomer.link.pid);
        let message = Message::decode(bytes);
        let message = message.map_err(|garbage| format!("{me} was greeted by {} with {garbage}", Named(pid)))?;
        match (message, &newcomer.identity) {
            (Message::Hello(theirs), None) => {
                if let Err(reason) = hello::compare(me, &theirs, pid, newcomer.expected) {
                    newcomer.foreign = Some(theirs.process).filter(|process| process.0 < self.config.processes);
                    return Err(reason);
                }
                self.welcome(newcomer, theirs).map(|()| None)
            }
            (Message::Welcome { control_words }, Some(identity)) => {
                let identity = identity.clone();
                let refused = |what: &str, why: String| format!("the {what} page of {identity}, {}, {why}", Named(pid));
                let [wait_fd, control_fd, event] = fds else {
                    return Err(refused("control", "is missing".to_owned()));
                };
                let words = memfd::verify(wait_fd.as_fd(), wait_page_bytes(self.config.processes))
                    .map_err(|why| refused("wait", why))?;
                let word = Mapping::shared(wait_fd.as_fd(), words, true)
                    .map_err(|error| refused("wait", error.to_string()))?;
                let words = memfd::verify(control_fd.as_fd(), u64::from(control_words) * WORD as u64)
                    .map_err(|why| refused("control", why))?;
                let control = ReadMapping::shared(control_fd.as_fd(), words)
                    .map_err(|error| refused("control", error.to_string()))?;
                let event = event.try_clone().map_err(|error| error.to_string());
                let bell = event.and_then(|event| Bell::new(word, event));
                let bell = bell.map_err(|why| format!("the eventfd of {identity}, {}, {why}", Named(pid)))?;
                Ok(Some(Admitted { identity, bell, control }))
            }
            (Message::Refuse(reason), _) => Err(reason),
            _ => Err(format!("{me} was greeted by {} with a message that does not belong there", Named(pid))),
        }
    }

    /// Answers a valid hello. If a connection to that process already exists, its peer may have ended without this
    /// process having detected it. The newcomer is therefore held for a while, so that a killed and restarted process
    /// is not refused because of its previous life.
    fn welcome(&mut self, newcomer: &mut Newcomer, theirs: Identity) -> Result<(), String> {
        if let Some(link) = &self.control.peers[theirs.process.index()].link {
            if newcomer.since.elapsed() < LINGER {
                newcomer.held = Some(theirs);
                return Ok(());
            }
            let (me, pid, other) = (&self.control.identity, Named(newcomer.link.pid), Named(link.pid));
            let remedy = "give each process an id of its own";
            return Err(format!("{theirs}, {pid}, is connected to {me} already as {other}; {remedy}"));
        }
        let (me, pid) = (&self.control.identity, Named(newcomer.link.pid));
        let first = self.control.peers[theirs.process.index()].first_life;
        if self.config.one_life && first.is_some_and(|first| first != theirs.life) {
            return Err(format!(
                "{theirs}, {pid}, was started again since {me} met it: it has lost its memory, which this cluster does not allow; \
                 stop all processes and start them anew"
            ));
        }
        newcomer.identity = Some(theirs);
        let welcome = Message::Welcome { control_words: self.control.control_words };
        newcomer.link.send(&welcome, &self.control.shared);
        Ok(())
    }

    /// Completes the handshake: sends the new peer all grants and offers.
    fn admit(&mut self, newcomer: &mut Newcomer, admitted: Admitted) {
        let peer = admitted.identity.process;
        if self.control.peers[peer.index()].link.is_some() {
            newcomer.link.dead = true;
            return;
        }
        let link = newcomer.link.take();
        let known = &mut self.control.peers[peer.index()];
        known.first_life.get_or_insert(admitted.identity.life);
        known.name = admitted.identity.name;
        let control = Arc::new(admitted.control);
        known.hung_up = false;
        known.life = LifeWord::find(&control, self.config.me, self.config.processes);
        if let Some(word) = &known.life {
            self.life.watch(peer, word.clone());
        }
        (known.link, known.control, known.refused) = (Some(link), Some(control), None);
        self.data.bells[peer.index()] = Some(admitted.bell);
        for region in (0..self.data.regions.len()).map(|index| RegionId(index as u32)) {
            self.announce_grant(region, peer);
        }
        for index in 0..self.data.qps.len() {
            if self.data.qps[index].peer == peer {
                self.offer(index);
            }
        }
    }

    /// Sends waiting packets, drops dead connections, and aborts slow handshakes.
    pub(crate) fn drain(&mut self) {
        for peer in (0..self.config.processes).map(ProcessId) {
            let Some(link) = &mut self.control.peers[peer.index()].link else { continue };
            if link.is_behind() {
                link.drain();
            }
            if link.dead {
                self.lose(peer);
            }
        }
        for newcomer in &mut self.control.newcomers {
            newcomer.link.drain();
        }
        self.control.newcomers.retain(|newcomer| !newcomer.link.dead && newcomer.since.elapsed() < HANDSHAKE);
    }

    /// Returns whether this process should dial a peer now: it has the larger id and a queue pair to the peer, it is
    /// neither connected nor dialling, and no pause after a refusal is in progress.
    fn must_dial(&self, peer: ProcessId) -> bool {
        let known = &self.control.peers[peer.index()];
        peer < self.config.me
            && known.link.is_none()
            && known.not_before.is_none_or(|at| at <= Instant::now())
            && self.data.qps.iter().any(|qp| qp.peer == peer)
            && !self.control.newcomers.iter().any(|newcomer| newcomer.expected == Some(peer))
    }

    fn dial(&mut self) {
        let mut wanted = (0..self.config.me.0).map(ProcessId).filter(|peer| self.must_dial(*peer)).peekable();
        if wanted.peek().is_none() || Instant::now() < self.control.next_dial {
            return;
        }
        let wanted: Vec<ProcessId> = wanted.collect();
        self.control.next_dial = Instant::now() + self.control.dial_pause;
        self.control.dial_pause = (self.control.dial_pause * 2).min(DIAL_PAUSE.1);
        let (mut paths, mut exhausted) = (Vec::new(), None);
        for place in &self.control.places {
            match entries(place) {
                Ok(listed) => paths.extend(listed),
                // A directory that cannot be read now is tried again, just as an absent peer is.
                Err(error) => exhausted = exhausted.or(error.raw_os_error().map(OsError)),
            }
        }
        for peer in wanted {
            for path in paths.iter().filter(|path| is_socket_of(path, peer)) {
                let socket = match socket::dial(path) {
                    Ok(socket) => socket,
                    // A peer that does not answer is absent. A failure of this process itself is reported below.
                    Err(error) => {
                        exhausted = exhausted.or(Some(OsError(error.raw_os_error())));
                        continue;
                    }
                };
                if let Some(pid) = self.same_user(&socket) {
                    self.control.greet(socket, pid, Some(peer));
                    break;
                }
            }
            if let Some(error) = exhausted.filter(|error| error.is_limit()) {
                self.control.refuse_named(peer, &format!("cannot be dialled: {}", error.with_remedy()));
            }
        }
    }

    /// Returns whether connections are being made, so that the control sockets matter more than latency. The result
    /// becomes `false` after a while if a peer does not connect.
    pub(crate) fn is_connecting(&self) -> bool {
        !self.control.newcomers.is_empty()
            || self.data.qps.iter().any(|qp| qp.state == QpState::Connecting)
                && Instant::now() < self.control.eager_until
    }
}
