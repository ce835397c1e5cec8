//! The control plane: sockets, handshakes, and authenticated control connections.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use stentor_fabric::{Event, ProcessId, Refusal, Service, differing_settings};

use crate::ask;
use crate::asked::Askers;
use crate::frame_stream::{FrameStream, connect};
use crate::handshake::{Fault, Handshake};
use crate::hello::{Hello, NOBODY, Session};
use crate::message::{Message, Offer};
use crate::names::Names;
use crate::observe::{self, Lines};

/// Maximum number of accepted connections whose handshake is not complete.
const MAX_NEWCOMERS: usize = 64;
/// Shortest and longest pause between two attempts to reach a peer. The pause doubles with each attempt, from the
/// shortest to the longest.
const DIAL_PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// Maximum number of refusals that are kept.
const MAX_REFUSALS: usize = 64;
/// Maximum number of frames received from one peer per round.
const BURST: usize = 256;

/// A connection that is not authenticated yet.
#[derive(Debug)]
struct Newcomer {
    handshake: Handshake,
    /// Address at which the other end listens if it was dialled, otherwise the address from which it connected.
    at: SocketAddr,
    expected: Option<ProcessId>,
}

/// The reason why a handshake ended without a connection.
struct Refused {
    reason: String,
    /// The process that answered in place of the dialled one, if one did.
    other: Option<ProcessId>,
    lasting: bool,
}

impl Refused {
    /// Creates a refusal that repeats until one of the two processes is restarted with another key, configuration or
    /// release.
    fn lasting(reason: String) -> Refused {
        Refused { reason, other: None, lasting: true }
    }

    /// Creates a refusal that the next attempt does not necessarily repeat.
    fn passing(reason: String) -> Refused {
        Refused { reason, other: None, lasting: false }
    }
}

/// A peer, connected or not.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    frames: Option<(FrameStream, Session)>,
    /// The life of the process at the other end of `frames`.
    life: Option<u64>,
    /// `true` if the kernel reported that the process at the other end closed the connection or ended.
    pub(crate) died: bool,
    /// The first life of this peer that connected.
    first_life: Option<u64>,
    pub(crate) offers: HashMap<Service, Offer>,
    /// `true` if the peer's last message reports that another process with this process's id is connected.
    pub(crate) taken: bool,
    next_dial: Option<Instant>,
    pause: Duration,
}

impl Peer {
    /// Delays the next attempt by the longest pause, because the peer would refuse again.
    pub(crate) fn dial_later(&mut self) {
        self.next_dial = Some(Instant::now() + DIAL_PAUSE.1);
    }
}

/// An event of the control plane.
pub(crate) enum PeerEvent {
    /// A peer connected.
    Joined(ProcessId),
    /// A peer sent a message.
    Said(ProcessId, Message),
    /// The connection to a peer was lost.
    Lost(ProcessId),
}

/// The state of all control connections.
#[derive(Debug)]
pub(crate) struct Control {
    me: Hello,
    /// Source address of this process's connections.
    address: IpAddr,
    one_life: bool,
    key: Vec<u8>,
    addresses: Vec<Option<SocketAddr>>,
    pub(crate) names: Names,
    listener: TcpListener,
    newcomers: Vec<Newcomer>,
    pub(crate) askers: Askers,
    pub(crate) observers: Lines,
    /// Total number of connections ever begun.
    pub(crate) begun: u64,
    pub(crate) peers: Vec<Peer>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) refusals: VecDeque<Refusal>,
}

impl Control {
    pub(crate) fn new(
        me: Hello,
        address: IpAddr,
        one_life: bool,
        key: Vec<u8>,
        addresses: Vec<Option<SocketAddr>>,
        names: Names,
        listener: TcpListener,
    ) -> Control {
        let peers = (0..addresses.len()).map(|_| Peer::default()).collect();
        let (newcomers, askers, observers) = (Vec::new(), Askers::default(), Lines::default());
        let (events, refusals) = (VecDeque::new(), VecDeque::new());
        Control {
            me,
            address,
            one_life,
            key,
            addresses,
            names,
            listener,
            newcomers,
            askers,
            observers,
            begun: 0,
            peers,
            events,
            refusals,
        }
    }

    /// Returns whether a handshake is in progress or a peer is not connected.
    pub(crate) fn is_connecting(&self) -> bool {
        !self.newcomers.is_empty()
            || self.peers.iter().enumerate().any(|(n, peer)| peer.frames.is_none() && n != self.me.process.index())
    }

    /// Returns whether the next attempt to dial a peer, or a handshake, is pending.
    pub(crate) fn is_dialling(&self) -> bool {
        let mut dialled = self.peers.iter().zip(&self.addresses).take(self.me.process.index());
        !self.newcomers.is_empty() || dialled.any(|(peer, address)| peer.frames.is_none() && address.is_some())
    }

    pub(crate) fn is_linked(&self, peer: ProcessId) -> bool {
        self.peers[peer.index()].frames.is_some()
    }

    /// Returns the sockets to wait for.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &TcpStream> {
        let newcomers = self.newcomers.iter().map(|newcomer| &newcomer.handshake.frames.socket);
        newcomers
            .chain(self.askers.sockets())
            .chain(self.peers.iter().flat_map(|peer| &peer.frames).map(|(frames, _)| &frames.socket))
    }

    /// Returns the listening socket.
    pub(crate) fn listener(&self) -> &TcpListener {
        &self.listener
    }

    /// Keeps a refusal, unless an equal one is pending.
    fn refuse(&mut self, refusal: Refusal) {
        if self.refusals.contains(&refusal) {
            return;
        }
        if self.refusals.len() == MAX_REFUSALS {
            self.refusals.pop_front();
        }
        self.refusals.push_back(refusal);
    }

    /// Reports the refusal of a peer that has proved its identity.
    pub(crate) fn refuse_peer(&mut self, peer: ProcessId, reason: String) {
        let frames = self.peers[peer.index()].frames.as_ref();
        let at = frames.and_then(|(frames, _)| frames.socket.peer_addr().ok()).or(self.addresses[peer.index()]);
        // The source port of a peer's connection carries no information.
        let at = self.addresses[peer.index()].or(at.map(|at| SocketAddr::new(at.ip(), 0)));
        self.refuse(Refusal { peer: Some(peer), at, certain: true, other: None, reason, lasting: false });
    }

    /// Reports the refusal of a connection that is not admitted.
    fn refuse_newcomer(&mut self, newcomer: &Newcomer, why: Refused) {
        let Refused { reason, other, lasting } = why;
        let is_peer = |process: &ProcessId| process.0 < self.me.processes && *process != self.me.process;
        let peer = newcomer.expected.or_else(|| newcomer.handshake.claims().filter(is_peer));
        // The identity of a process that connected to this one is reported as certain only if the connection comes from
        // that peer's address. The claim has no other effect.
        let listens = peer.and_then(|peer| self.addresses[peer.index()]);
        let at = listens.filter(|listens| listens.ip() == newcomer.at.ip()).unwrap_or(newcomer.at);
        let certain = newcomer.expected.is_some() || listens == Some(at);
        self.refuse(Refusal { peer, at: Some(at), certain, other, reason, lasting });
    }

    pub(crate) fn tell(&mut self, peer: ProcessId, message: &Message) {
        if let Some((frames, session)) = &mut self.peers[peer.index()].frames {
            session.send(frames, &message.encode());
        }
    }

    /// Runs one round: accepts connections, dials and receives.
    pub(crate) fn pump(&mut self) -> Vec<PeerEvent> {
        let mut heard = Vec::new();
        self.accept();
        self.dial();
        // Receive from peers first: a peer that ended and restarted may already be among the newcomers.
        for n in 0..self.peers.len() {
            self.hear_peer(ProcessId(n as u16), &mut heard);
        }
        self.hear_newcomers(&mut heard);
        self.askers.pump();
        self.observers.pump();
        heard
    }

    fn greet(&mut self, stream: TcpStream, at: SocketAddr, expected: Option<ProcessId>) {
        let Ok(handshake) = Handshake::new(stream, &self.me, expected.is_some()) else { return };
        self.begun += 1;
        self.newcomers.push(Newcomer { handshake, at, expected });
    }

    fn accept(&mut self) {
        for _ in 0..MAX_NEWCOMERS {
            let Ok((stream, from)) = self.listener.accept() else { break };
            // Connections that this process dialled do not count, because there is at most one per peer. If connections
            // from outside fill the list, the oldest of them is dropped.
            let is_stranger = |newcomer: &Newcomer| newcomer.expected.is_none();
            let strangers = self.newcomers.iter().filter(|newcomer| is_stranger(newcomer)).count();
            if strangers >= MAX_NEWCOMERS
                && let Some(oldest) = self.newcomers.iter().position(is_stranger)
            {
                self.newcomers.remove(oldest);
            }
            self.greet(stream, SocketAddr::new(from.ip(), 0), None);
        }
    }

    /// Dials peers with smaller ids: of two processes the one with the larger id dials.
    fn dial(&mut self) {
        let now = Instant::now();
        for n in self.names.take(self.address, &mut self.addresses) {
            (self.peers[n].next_dial, self.peers[n].pause) = (None, DIAL_PAUSE.0);
        }
        for n in 0..self.me.process.index() {
            let peer = ProcessId(n as u16);
            let known = &self.peers[n];
            let busy = known.frames.is_some() || self.newcomers.iter().any(|newcomer| newcomer.expected == Some(peer));
            if busy || known.next_dial.is_some_and(|next| next > now) {
                continue;
            }
            let pause = known.pause.clamp(DIAL_PAUSE.0, DIAL_PAUSE.1);
            (self.peers[n].next_dial, self.peers[n].pause) = (Some(now + pause), 2 * pause);
            // A newly resolved address is dialled at once in a later round, because the peer may have moved.
            self.names.ask(n);
            let Some(mut address) = self.addresses[n] else { continue };
            if pause > DIAL_PAUSE.0 {
                address = self.names.after(n, address);
                self.addresses[n] = Some(address);
            }
            if let Ok(stream) = connect(self.address, address) {
                self.greet(stream, address, Some(peer));
            }
        }
        self.look_for_those_who_dial(now);
    }

    /// Looks up the names of peers with larger ids that are not connected and have no address. They dial this process,
    /// so it needs no address of theirs, but it reports names that cannot be resolved.
    fn look_for_those_who_dial(&mut self, now: Instant) {
        for n in self.me.process.index() + 1..self.peers.len() {
            let known = &mut self.peers[n];
            let known_or_there = known.frames.is_some() || self.addresses[n].is_some();
            if known_or_there || known.next_dial.is_some_and(|next| next > now) {
                continue;
            }
            known.next_dial = Some(now + DIAL_PAUSE.1);
            self.names.ask(n);
        }
    }

    fn hear_newcomers(&mut self, heard: &mut Vec<PeerEvent>) {
        for mut newcomer in std::mem::take(&mut self.newcomers) {
            let mut joined = None;
            while joined.is_none() {
                let Some(frame) = newcomer.handshake.frames.receive() else { break };
                match self.greeted(&mut newcomer, &frame) {
                    Ok(known) => joined = known,
                    Err(why) => {
                        newcomer.handshake.frames.dead = true;
                        self.refuse_newcomer(&newcomer, why);
                        break;
                    }
                }
            }
            match joined {
                Some((hello, session)) if hello.process == NOBODY && hello.fabric == observe::PURPOSE => {
                    self.observers.admit(newcomer.handshake.frames, session);
                }
                Some((hello, session)) if hello.process == NOBODY => {
                    self.askers.admit(newcomer.handshake.frames, session);
                }
                Some((hello, session)) => {
                    let peer = &mut self.peers[hello.process.index()];
                    if peer.frames.take().is_some() {
                        peer.offers.clear();
                        heard.push(PeerEvent::Lost(hello.process));
                    }
                    peer.frames = Some((newcomer.handshake.frames, session));
                    (peer.life, peer.died) = (Some(hello.life), false);
                    peer.first_life.get_or_insert(hello.life);
                    peer.pause = DIAL_PAUSE.0;
                    heard.push(PeerEvent::Joined(hello.process));
                }
                None => {
                    // Send first: this process may not have run for a while. If the socket accepts bytes, the peer's
                    // kernel has accepted the connection, and a longer deadline applies.
                    newcomer.handshake.frames.drain();
                    if !newcomer.handshake.frames.dead && !newcomer.handshake.is_late() {
                        self.newcomers.push(newcomer);
                    }
                }
            }
        }
    }

    /// Handles a frame of the handshake. Returns `Some` when the handshake is complete.
    fn greeted(&mut self, newcomer: &mut Newcomer, frame: &[u8]) -> Result<Option<(Hello, Session)>, Refused> {
        let heard = newcomer.handshake.hear(&self.key, frame, newcomer.expected).map_err(refused)?;
        let Some((known, mut session)) = heard else { return Ok(None) };
        if known.process == NOBODY {
            return self.lets_ask(&known).map(|()| Some((known, session)));
        }
        self.compare(&known)?;
        let them = known.process;
        let mut end = |message: Message| session.send(&mut newcomer.handshake.frames, &message.encode());
        // A process dials again only if it has lost its connection. This end may not have noticed that: a temporary cut
        // of a link is detected only by the end that sends. The new connection then replaces the old one.
        if self.is_linked(them) && self.peers[them.index()].life != Some(known.life) {
            end(Message::Taken);
            let reason = "another process of this id is connected already: give each process an id of its own";
            return Err(Refused::passing(reason.to_owned()));
        }
        let first = self.peers[them.index()].first_life;
        if self.one_life && first.is_some_and(|first| first != known.life) {
            end(Message::Again);
            return Err(Refused::passing(format!("it was started again: {}", started_again())));
        }
        Ok(Some((known, session)))
    }

    /// Checks whether a program that has the key but is no process may query or observe this process.
    fn lets_ask(&self, asker: &Hello) -> Result<(), Refused> {
        let Hello { fabric, version, cluster, .. } = asker;
        let known = [(ask::PURPOSE, ask::VERSION), (observe::PURPOSE, observe::VERSION)];
        if known.contains(&(fabric, *version)) && *cluster == self.me.cluster {
            return Ok(());
        }
        let known = known.map(|(purpose, version)| format!("`{purpose}` in version {version}")).join(" and ");
        let here = &self.me.cluster;
        let reason =
            format!("it wants `{fabric}` in version {version} of cluster {cluster}; here is {known} of cluster {here}");
        Err(Refused::passing(reason))
    }

    /// Compares the configuration of a process that has the key with that of this process.
    fn compare(&self, other: &Hello) -> Result<(), Refused> {
        let (me, them) = (&self.me, other.process);
        let say = |what: &str, ours: &dyn std::fmt::Display, theirs: &dyn std::fmt::Display| {
            let reason = format!("it has {what} {theirs}, this process has {ours}: start both with the same");
            Err(Refused::lasting(reason))
        };
        if other.cluster != me.cluster {
            return say("cluster", &me.cluster, &other.cluster);
        }
        if other.version != me.version {
            return say("version", &me.version, &other.version);
        }
        if !reach(&me.fabric, &other.fabric) {
            return say("fabric", &me.fabric, &other.fabric);
        }
        if (other.fingerprint, other.processes) != (me.fingerprint, me.processes) {
            let count = |hello: &Hello| match hello.processes {
                _ if me.processes == other.processes => String::new(),
                processes => format!(" with {processes} processes (members and clients)"),
            };
            // The format of `config check`.
            let show = |hello: &Hello| format!("{:016x}{}", hello.fingerprint, count(hello));
            let differs = differing_settings(me.processes, other.processes);
            let (ours, theirs) = (show(me), show(other));
            let reason = format!("it has configuration {theirs}, this process has {ours}: {differs}");
            return Err(Refused::lasting(reason));
        }
        if them.0 >= me.processes || them == me.process {
            let reason = "it has the id of this process: give each process an id of its own";
            return Err(Refused::lasting(reason.to_owned()));
        }
        Ok(())
    }

    fn hear_peer(&mut self, peer: ProcessId, heard: &mut Vec<PeerEvent>) {
        for _ in 0..BURST {
            let Some((frames, session)) = &mut self.peers[peer.index()].frames else { return };
            frames.drain();
            let Some(frame) = frames.receive() else { break };
            let message = session.take(&frame).and_then(|message| Message::decode(message).ok());
            match message {
                Some(message) => heard.push(PeerEvent::Said(peer, message)),
                None => {
                    frames.dead = true;
                    self.refuse_peer(peer, "it sent a message that is damaged or forged".to_owned());
                }
            }
        }
        let known = &mut self.peers[peer.index()];
        if let Some((frames, _)) = known.frames.as_ref().filter(|(frames, _)| frames.dead) {
            known.died = frames.was_closed();
            known.frames = None;
            known.offers.clear();
            heard.push(PeerEvent::Lost(peer));
        }
    }
}

/// Returns the refusal for a failed handshake.
fn refused(fault: Fault) -> Refused {
    match fault {
        Fault::NoHello => Refused::passing("it speaks another protocol: another program has that address".to_owned()),
        Fault::Release => Refused::lasting("it runs another release of Stentor: run the same on all".to_owned()),
        Fault::Another(other) => {
            let reason = "another process answers there; correct the addresses, or what is started where. It is";
            Refused { other: Some(other), ..Refused::passing(reason.to_owned()) }
        }
        Fault::NoKey => Refused::lasting("it has another key than this process: give all the same".to_owned()),
    }
}

/// Returns whether two fabrics can connect with each other. All fabrics that use RoCEv2 can, whether in the kernel, in
/// a card or in user space.
fn reach(one: &str, other: &str) -> bool {
    const ROCE_V2: [&str; 2] = ["roce", "verbs"];
    one == other || ROCE_V2.contains(&one) && ROCE_V2.contains(&other)
}

/// Returns the reason why a restarted process is refused, and the remedy.
pub(crate) fn started_again() -> &'static str {
    "it has lost its memory, which this cluster does not allow; stop all processes and start them anew"
}

#[cfg(test)]
mod tests {
    use std::io;

    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::net::{self, AddressFamily, SocketType};

    use super::*;

    /// The hello of process 1 of two.
    fn hello() -> Hello {
        Hello {
            cluster: "c".into(),
            fabric: "f".into(),
            version: 1,
            fingerprint: 1,
            process: ProcessId(1),
            processes: 2,
            life: 1,
            nonce: [0; 32],
        }
    }

    #[test]
    fn only_roce_fabrics_connect_with_each_other() {
        assert!(reach("roce", "verbs") && reach("verbs", "roce") && reach("ofi tcp", "ofi tcp"));
        for (one, other) in [("roce", "ofi tcp"), ("ofi tcp", "verbs"), ("ofi tcp", "ofi efa")] {
            assert!(!reach(one, other) && !reach(other, one), "{one} {other}");
        }
    }

    #[test]
    fn a_process_dials_from_its_own_address_and_detects_a_refusal() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let own = IpAddr::from([127, 0, 0, 77]);
        let stream = connect(own, to).unwrap();
        settle(&stream, 60);
        assert_eq!(listener.accept().unwrap().1.ip(), own);
        assert_eq!(stream.local_addr().unwrap().ip(), own);
        drop(listener);
        let refused = connect(own, to).and_then(|stream| {
            settle(&stream, 60);
            net::recv(&stream, &mut [0; 1], net::RecvFlags::empty()).map_err(io::Error::from)
        });
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert!(connect(IpAddr::from([192, 0, 2, 1]), to).is_err(), "an address of another host");
    }

    /// Waits for at most `tv_sec` seconds until a connection was accepted or refused.
    fn settle(stream: &TcpStream, tv_sec: i64) {
        let longest = Timespec { tv_sec, tv_nsec: 0 };
        poll(&mut [PollFd::new(stream, PollFlags::OUT)], Some(&longest)).unwrap();
    }

    /// Returns a listener that accepts no connections. Its queue is full, so the kernel drops requests to connect.
    fn deaf() -> (TcpListener, Vec<TcpStream>) {
        let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        net::bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        net::listen(&socket, 0).unwrap();
        let listener = TcpListener::from(socket);
        let to = listener.local_addr().unwrap();
        let mut waiting = Vec::new();
        loop {
            let stream = connect(IpAddr::from([127, 0, 0, 1]), to).unwrap();
            settle(&stream, 1);
            if stream.peer_addr().is_err() {
                return (listener, waiting);
            }
            waiting.push(stream);
            assert!(waiting.len() < 64, "the queue is unbounded");
        }
    }

    /// Returns processes 0 and 1, of which the second dials the first, and another process with the second's id.
    fn three() -> [Control; 3] {
        let listeners = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        let addresses = listeners.each_ref().map(|listener| Some(listener.local_addr().unwrap()));
        let mut life = 0;
        listeners.map(|own| {
            own.set_nonblocking(true).unwrap();
            let me = Hello { process: ProcessId(life.min(1)), life: life.into(), ..hello() };
            life += 1;
            let at = vec![addresses[0], addresses[me.life as usize]];
            Control::new(me, IpAddr::from([127, 0, 0, 1]), false, vec![7], at, Names::new(Vec::new(), 2), own)
        })
    }

    /// Pumps all processes until an event of the first process satisfies `last`. Returns which peers connected to the
    /// first process and which it lost, in order.
    fn until(controls: &mut [Control], last: fn(&PeerEvent) -> bool) -> Vec<String> {
        let since = Instant::now();
        let mut heard = Vec::new();
        loop {
            assert!(since.elapsed() < Duration::from_secs(60), "{heard:?}");
            controls[1..].iter_mut().for_each(|other| drop(other.pump()));
            let events = controls[0].pump();
            heard.extend(events.iter().filter_map(|event| match event {
                PeerEvent::Joined(peer) => Some(format!("joined {peer}")),
                PeerEvent::Lost(peer) => Some(format!("lost {peer}")),
                PeerEvent::Said(..) => None,
            }));
            if events.iter().any(last) {
                return heard;
            }
        }
    }

    /// Simulates a cut link that lasts until the peer gives up waiting for an answer.
    #[test]
    fn a_peer_that_lost_its_end_of_the_connection_replaces_it() {
        let [a, b, _] = three();
        let mut controls = [a, b];
        let joined = |event: &PeerEvent| matches!(event, PeerEvent::Joined(_));
        assert_eq!(until(&mut controls, joined), ["joined p1"]);
        while !controls[1].is_linked(ProcessId(0)) {
            controls[1].pump();
        }
        // The second process's socket stays open, so the first process detects nothing.
        let _unheard = controls[1].peers[0].frames.take();
        assert_eq!(until(&mut controls, joined), ["lost p1", "joined p1"]);
        assert!(!controls[0].peers[1].died, "it lives");
        let refused = |control: &Control| format!("{:?}", control.refusals);
        assert!(controls.iter().all(|control| control.refusals.is_empty()), "{:?}", controls.each_ref().map(refused));
        // The remaining connection is the new one.
        let none = Duration::from_millis(50);
        let since = Instant::now();
        while since.elapsed() < none {
            assert!(controls.iter_mut().all(|control| !control.pump().iter().any(|e| matches!(e, PeerEvent::Lost(_)))));
        }
        assert!(controls[0].is_linked(ProcessId(1)) && controls[1].is_linked(ProcessId(0)));
    }

    #[test]
    fn a_peer_that_closes_its_connection_has_died_until_it_is_back() {
        let [a, b, next] = three();
        let mut controls = [a, b];
        let joined = |event: &PeerEvent| matches!(event, PeerEvent::Joined(_));
        let lost = |event: &PeerEvent| matches!(event, PeerEvent::Lost(_));
        until(&mut controls, joined);
        assert!(!controls[0].peers[1].died);
        let [a, b] = controls;
        drop(b);
        let mut controls = [a];
        assert_eq!(until(&mut controls, lost), ["lost p1"]);
        assert!(controls[0].peers[1].died);
        let [a] = controls;
        let mut controls = [a, next];
        assert_eq!(until(&mut controls, joined), ["joined p1"]);
        assert!(!controls[0].peers[1].died, "its next life");
    }

    /// Simulates a peer that was silent for too long, or sent an invalid message.
    #[test]
    fn a_peer_that_is_given_up_has_not_died() {
        let [a, b, _] = three();
        let mut controls = [a, b];
        until(&mut controls, |event| matches!(event, PeerEvent::Joined(_)));
        let (frames, _) = controls[0].peers[1].frames.as_mut().unwrap();
        frames.dead = true;
        assert_eq!(until(&mut controls, |event| matches!(event, PeerEvent::Lost(_))), ["lost p1"]);
        assert!(!controls[0].peers[1].died);
    }

    #[test]
    fn another_process_of_a_peers_id_does_not_replace_it() {
        let [a, b, other] = three();
        let mut controls = [a, b];
        let joined = |event: &PeerEvent| matches!(event, PeerEvent::Joined(_));
        until(&mut controls, joined);
        let [a, b] = controls;
        let mut controls = [a, b, other];
        let taken = |event: &PeerEvent| matches!(event, PeerEvent::Said(_, Message::Taken));
        let since = Instant::now();
        while !controls[2].pump().iter().any(taken) {
            assert!(since.elapsed() < Duration::from_secs(60));
            let heard = controls[0].pump();
            assert!(!heard.iter().any(|event| matches!(event, PeerEvent::Lost(_) | PeerEvent::Joined(_))));
            controls[1].pump();
        }
        assert!(controls[0].is_linked(ProcessId(1)) && controls[0].refusals.len() == 1);
    }

    #[test]
    fn a_peer_that_moved_is_dialled_at_its_new_address() {
        let [old, new, own] = [(); 3].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        own.set_nonblocking(true).unwrap();
        new.set_nonblocking(true).unwrap();
        let (at, moved) = (old.local_addr().unwrap(), new.local_addr().unwrap());
        // No process listens at the old address any more; every system resolves `localhost`.
        drop(old);
        let name = crate::names::HostName { process: "g1.1".into(), address: format!("localhost:{}", moved.port()) };
        let addresses = vec![Some(at), Some(own.local_addr().unwrap())];
        let names = Names::new(vec![Some(name)], 2);
        let mut control = Control::new(hello(), IpAddr::from([127, 0, 0, 1]), false, vec![7], addresses, names, own);
        let since = Instant::now();
        while new.accept().is_err() {
            assert!(control.pump().is_empty() && since.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(control.names.notes[0].contains("`g1.1`"), "{:?}", control.names.notes);
    }

    #[test]
    fn a_peer_with_several_interfaces_is_dialled_at_each_until_it_answers() {
        let [here, own] = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
        own.set_nonblocking(true).unwrap();
        here.set_nonblocking(true).unwrap();
        let at = here.local_addr().unwrap();
        // The peer listens only at the second address of its name, and this process started with the first.
        let elsewhere = SocketAddr::new(IpAddr::from([127, 0, 0, 2]), at.port());
        let addresses = vec![Some(elsewhere), Some(own.local_addr().unwrap())];
        let names = Names::of_interfaces(vec![elsewhere, at]);
        let mut control = Control::new(hello(), IpAddr::from([127, 0, 0, 1]), false, vec![7], addresses, names, own);
        let since = Instant::now();
        while here.accept().is_err() {
            assert!(control.pump().is_empty() && since.elapsed() < Duration::from_secs(60));
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(control.names.notes.is_empty(), "{:?}", control.names.notes);
    }

    #[test]
    fn a_host_that_swallows_packets_is_not_waited_for_and_is_dialled_again() {
        let (listener, waiting) = deaf();
        let to = listener.local_addr().unwrap();
        let own = TcpListener::bind("127.0.0.1:0").unwrap();
        own.set_nonblocking(true).unwrap();
        let addresses = vec![Some(to), Some(own.local_addr().unwrap())];
        let mut control = Control::new(
            hello(),
            IpAddr::from([127, 0, 0, 1]),
            false,
            vec![7],
            addresses,
            Names::new(Vec::new(), 2),
            own,
        );
        let mut dialled = std::collections::BTreeSet::new();
        let since = Instant::now();
        while dialled.len() < 2 {
            assert!(control.pump().is_empty() && since.elapsed() < Duration::from_secs(60));
            for newcomer in &control.newcomers {
                assert!(newcomer.handshake.frames.is_behind(), "no process can have accepted it");
                dialled.insert(newcomer.handshake.frames.socket.local_addr().unwrap());
            }
        }
        // Make room in the queue.
        waiting.iter().for_each(|_| drop(listener.accept().unwrap()));
        while control.newcomers.iter().all(|newcomer| newcomer.handshake.frames.is_behind()) {
            assert!(control.pump().is_empty() && since.elapsed() < Duration::from_secs(60));
        }
    }
}
