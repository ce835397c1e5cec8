//! The control plane's sockets and handshakes.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use stentor_fabric::{Event, ProcessId, Service};

use super::hello::{self, Hello, Hellos, Session, TAG};
use super::link::Link;
use super::message::{Message, Offer};

/// Connections that may be in the middle of the handshake.
const MAX_NEWCOMERS: usize = 64;
/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Pauses between two attempts to reach a peer, growing from the first to the second.
const DIAL_PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// How long a peer has to take a connection; the polling thread waits for it.
const DIAL_TIMEOUT: Duration = Duration::from_millis(20);
/// Refusals that are kept.
const MAX_REFUSALS: usize = 64;
/// Frames taken from one peer at a time.
const BURST: usize = 256;

/// A connection that is not authenticated yet.
#[derive(Debug)]
struct Newcomer {
    link: Link,
    expected: Option<ProcessId>,
    ours: Vec<u8>,
    theirs: Option<Vec<u8>>,
    since: Instant,
}

/// A peer, connected or not.
#[derive(Debug, Default)]
pub(super) struct Peer {
    link: Option<(Link, Session)>,
    /// The first that it was known by.
    first_life: Option<u64>,
    /// Where its packets come from.
    pub(super) address: Option<IpAddr>,
    pub(super) offers: HashMap<Service, Offer>,
    /// It said last that another process with this one's id is connected.
    pub(super) taken: bool,
    next_dial: Option<Instant>,
    pause: Duration,
}

impl Peer {
    /// It will say the same again.
    pub(super) fn dial_later(&mut self) {
        self.next_dial = Some(Instant::now() + DIAL_PAUSE.1);
    }
}

/// What the control plane heard.
pub(super) enum Heard {
    /// A peer is there.
    Joined(ProcessId),
    /// A peer said something.
    Said(ProcessId, Message),
    /// A peer is gone.
    Lost(ProcessId),
}

/// Everything about bootstrap connections.
#[derive(Debug)]
pub(super) struct Control {
    pub(super) me: Hello,
    one_life: bool,
    key: Vec<u8>,
    addresses: Vec<Option<SocketAddr>>,
    listener: TcpListener,
    newcomers: Vec<Newcomer>,
    pub(super) peers: Vec<Peer>,
    pub(super) events: VecDeque<Event>,
    pub(super) refusals: VecDeque<String>,
}

impl Control {
    pub(super) fn new(
        me: Hello,
        one_life: bool,
        key: Vec<u8>,
        addresses: Vec<Option<SocketAddr>>,
        listener: TcpListener,
    ) -> Control {
        let peers = (0..addresses.len()).map(|_| Peer::default()).collect();
        let newcomers = Vec::new();
        let (events, refusals) = (VecDeque::new(), VecDeque::new());
        Control { me, one_life, key, addresses, listener, newcomers, peers, events, refusals }
    }

    /// Whether a peer that could be there is not.
    pub(super) fn is_connecting(&self) -> bool {
        !self.newcomers.is_empty()
            || self.peers.iter().enumerate().any(|(n, peer)| peer.link.is_none() && n != self.me.process.index())
    }

    pub(super) fn is_linked(&self, peer: ProcessId) -> bool {
        self.peers[peer.index()].link.is_some()
    }

    /// The sockets to wait for.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &TcpStream> {
        let newcomers = self.newcomers.iter().map(|newcomer| &newcomer.link.stream);
        newcomers.chain(self.peers.iter().flat_map(|peer| &peer.link).map(|(link, _)| &link.stream))
    }

    /// The socket that new connections come to.
    pub(super) fn listener(&self) -> &TcpListener {
        &self.listener
    }

    pub(super) fn refuse(&mut self, reason: String) {
        if self.refusals.len() == MAX_REFUSALS {
            self.refusals.pop_front();
        }
        self.refusals.push_back(reason);
    }

    pub(super) fn tell(&mut self, peer: ProcessId, message: &Message) {
        if let Some((link, session)) = &mut self.peers[peer.index()].link {
            let bytes = message.encode();
            let tag = session.seal(&bytes);
            link.send(&[&bytes, &tag]);
        }
    }

    /// One round: lets peers in, dials, hears.
    pub(super) fn pump(&mut self) -> Vec<Heard> {
        let mut heard = Vec::new();
        self.accept();
        self.dial();
        // Peers first: who died and came back may be among the newcomers already.
        for n in 0..self.peers.len() {
            self.hear_peer(ProcessId(n as u16), &mut heard);
        }
        self.hear_newcomers(&mut heard);
        heard
    }

    fn greet(&mut self, stream: TcpStream, expected: Option<ProcessId>) {
        let mut hello = self.me.clone();
        hello.nonce = nonce();
        let ours = hello.encode();
        let Ok(mut link) = Link::new(stream) else { return };
        link.send(&[&ours]);
        self.newcomers.push(Newcomer { link, expected, ours, theirs: None, since: Instant::now() });
    }

    fn accept(&mut self) {
        for _ in 0..MAX_NEWCOMERS {
            let Ok((stream, _)) = self.listener.accept() else { break };
            if self.newcomers.len() >= MAX_NEWCOMERS {
                // Whoever fills the list with silence keeps nobody out: the oldest that proved nothing goes.
                let Some(place) = self.newcomers.iter().position(|newcomer| newcomer.expected.is_none()) else { break };
                self.newcomers.remove(place);
            }
            self.greet(stream, None);
        }
    }

    /// Of two processes the one with the larger id dials.
    fn dial(&mut self) {
        let now = Instant::now();
        for n in 0..self.me.process.index() {
            let peer = ProcessId(n as u16);
            let known = &self.peers[n];
            let busy = known.link.is_some() || self.newcomers.iter().any(|newcomer| newcomer.expected == Some(peer));
            let Some(address) = self.addresses[n] else { continue };
            if busy || known.next_dial.is_some_and(|next| next > now) {
                continue;
            }
            let pause = known.pause.clamp(DIAL_PAUSE.0, DIAL_PAUSE.1);
            (self.peers[n].next_dial, self.peers[n].pause) = (Some(now + pause), 2 * pause);
            if let Ok(stream) = connect(self.me.address, address) {
                self.greet(stream, Some(peer));
            }
        }
    }

    fn hear_newcomers(&mut self, heard: &mut Vec<Heard>) {
        for mut newcomer in std::mem::take(&mut self.newcomers) {
            let mut joined = None;
            while joined.is_none() {
                let Some(frame) = newcomer.link.receive() else { break };
                match self.greeted(&mut newcomer, &frame) {
                    Ok(known) => joined = known,
                    Err(reason) => {
                        newcomer.link.dead = true;
                        self.refuse(reason);
                        break;
                    }
                }
            }
            match joined {
                Some((hello, session)) => {
                    let peer = &mut self.peers[hello.process.index()];
                    peer.link = Some((newcomer.link, session));
                    peer.first_life.get_or_insert(hello.life);
                    (peer.address, peer.pause) = (Some(hello.address), DIAL_PAUSE.0);
                    heard.push(Heard::Joined(hello.process));
                }
                None if !newcomer.link.dead && newcomer.since.elapsed() < HANDSHAKE => {
                    newcomer.link.drain();
                    self.newcomers.push(newcomer);
                }
                None => {}
            }
        }
    }

    /// A frame of the handshake. `Some` when it is over.
    fn greeted(&mut self, newcomer: &mut Newcomer, frame: &[u8]) -> Result<Option<(Hello, Session)>, String> {
        let me = self.me.process;
        let dialled = newcomer.expected.is_some();
        let Some(theirs) = &newcomer.theirs else {
            let known =
                Hello::decode(frame).map_err(|_| format!("{me} was greeted with something else than a hello"))?;
            if newcomer.expected.is_some_and(|expected| expected != known.process) {
                return Err(format!("{} answered {me} where another process was expected", known.process));
            }
            let hellos = order(dialled, &newcomer.ours, frame);
            newcomer.link.send(&[&hello::proof(&self.key, dialled, hellos)]);
            newcomer.theirs = Some(frame.to_vec());
            return Ok(None);
        };
        let hellos = order(dialled, &newcomer.ours, theirs);
        if !hello::is_proof(&self.key, !dialled, hellos, frame) {
            return Err(format!("{me} was dialled or answered by somebody without the cluster's key"));
        }
        let known = Hello::decode(theirs).map_err(|_| String::new())?;
        self.compare(&known)?;
        let mut session = Session::new(&self.key, dialled, hellos);
        let them = known.process;
        let mut end = |message: Message| {
            let bytes = message.encode();
            let tag = session.seal(&bytes);
            newcomer.link.send(&[&bytes, &tag]);
        };
        if self.is_linked(them) {
            end(Message::Taken);
            return Err(format!("{them} is connected to {me} already: give each process an id of its own"));
        }
        let first = self.peers[them.index()].first_life;
        if self.one_life && first.is_some_and(|first| first != known.life) {
            end(Message::Again);
            return Err(format!("{them} was started again: {}", started_again()));
        }
        Ok(Some((known, session)))
    }

    /// Only for whoever has the key.
    fn compare(&self, other: &Hello) -> Result<(), String> {
        let (me, them) = (&self.me, other.process);
        let say = |what: &str, ours: &dyn std::fmt::Display, theirs: &dyn std::fmt::Display| {
            Err(format!("{them} has {what} {theirs}, {} has {ours}: start both with the same", me.process))
        };
        if other.cluster != me.cluster {
            return say("cluster", &me.cluster, &other.cluster);
        }
        if other.version != me.version {
            return say("version", &me.version, &other.version);
        }
        if (other.fingerprint, other.processes) != (me.fingerprint, me.processes) {
            return say("configuration", &me.fingerprint, &other.fingerprint);
        }
        if them.0 >= me.processes || them == me.process {
            return Err(format!("{them} is not a peer of {}: give each process an id of its own", me.process));
        }
        Ok(())
    }

    fn hear_peer(&mut self, peer: ProcessId, heard: &mut Vec<Heard>) {
        for _ in 0..BURST {
            let Some((link, session)) = &mut self.peers[peer.index()].link else { return };
            link.drain();
            let Some(frame) = link.receive() else { break };
            let message = frame.len().checked_sub(TAG).and_then(|at| {
                let (message, tag) = frame.split_at(at);
                session.open(message, tag).then(|| Message::decode(message).ok())?
            });
            match message {
                Some(message) => heard.push(Heard::Said(peer, message)),
                None => {
                    link.dead = true;
                    let reason = format!("{} was sent a message by {peer} that is damaged or forged", self.me.process);
                    self.refuse(reason);
                }
            }
        }
        let known = &mut self.peers[peer.index()];
        if known.link.as_ref().is_some_and(|(link, _)| link.dead) {
            (known.link, known.address) = (None, None);
            known.offers.clear();
            heard.push(Heard::Lost(peer));
        }
    }
}

/// Why who is started again is not let in, and what to do.
pub(super) fn started_again() -> &'static str {
    "it has forgotten what it must not; stop all processes and start them anew"
}

/// From this process's own address: on a host with several, others may only let that one in.
fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    net::bind(&socket, &SocketAddr::new(from, 0))?;
    match net::connect(&socket, &to) {
        Ok(()) => {}
        Err(Errno::INPROGRESS) => {
            let longest = Timespec { tv_sec: 0, tv_nsec: DIAL_TIMEOUT.subsec_nanos().into() };
            if poll(&mut [PollFd::new(&socket, PollFlags::OUT)], Some(&longest))? == 0 {
                return Err(io::ErrorKind::TimedOut.into());
            }
            net::sockopt::socket_error(&socket)??;
        }
        Err(error) => return Err(error.into()),
    }
    Ok(TcpStream::from(socket))
}

fn order<'a>(dialled: bool, ours: &'a [u8], theirs: &'a [u8]) -> Hellos<'a> {
    if dialled { Hellos { dialler: ours, listener: theirs } } else { Hellos { dialler: theirs, listener: ours } }
}

/// Bytes that nobody has seen before.
pub(crate) fn nonce<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let got = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    assert_eq!(got, Ok(N), "the system has random numbers");
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_dials_from_its_own_address_and_hears_that_nobody_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let to = listener.local_addr().unwrap();
        let own = IpAddr::from([127, 0, 0, 77]);
        let stream = connect(own, to).unwrap();
        assert_eq!(listener.accept().unwrap().1.ip(), own);
        assert_eq!(stream.local_addr().unwrap().ip(), own);
        drop(listener);
        assert_eq!(connect(own, to).unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
        assert!(connect(IpAddr::from([192, 0, 2, 1]), to).is_err(), "an address of another host");
    }
}
