//! The control plane's sockets and handshakes.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType};
use stentor_fabric::{Event, ProcessId, Service};

use crate::handshake::{Fault, Handshake};
use crate::hello::{Hello, Session, TAG};
use crate::link::Link;
use crate::message::{Message, Offer};

/// Connections from others that may be in the middle of the handshake.
const MAX_NEWCOMERS: usize = 64;
/// Pauses between two attempts to reach a peer, growing from the first to the second.
const DIAL_PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(500));
/// Refusals that are kept.
const MAX_REFUSALS: usize = 64;
/// Frames taken from one peer at a time.
const BURST: usize = 256;

/// A connection that is not authenticated yet.
#[derive(Debug)]
struct Newcomer {
    handshake: Handshake,
    expected: Option<ProcessId>,
}

/// A peer, connected or not.
#[derive(Debug, Default)]
pub(crate) struct Peer {
    link: Option<(Link, Session)>,
    /// The first that it was known by.
    first_life: Option<u64>,
    pub(crate) offers: HashMap<Service, Offer>,
    /// It said last that another process with this one's id is connected.
    pub(crate) taken: bool,
    next_dial: Option<Instant>,
    pause: Duration,
}

impl Peer {
    /// It will say the same again.
    pub(crate) fn dial_later(&mut self) {
        self.next_dial = Some(Instant::now() + DIAL_PAUSE.1);
    }
}

/// What the control plane heard.
pub(crate) enum Heard {
    /// A peer is there.
    Joined(ProcessId),
    /// A peer said something.
    Said(ProcessId, Message),
    /// A peer is gone.
    Lost(ProcessId),
}

/// Everything about bootstrap connections.
#[derive(Debug)]
pub(crate) struct Control {
    me: Hello,
    /// Where this process dials from.
    address: IpAddr,
    one_life: bool,
    key: Vec<u8>,
    addresses: Vec<Option<SocketAddr>>,
    listener: TcpListener,
    newcomers: Vec<Newcomer>,
    /// Connections that were ever begun.
    pub(crate) begun: u64,
    pub(crate) peers: Vec<Peer>,
    pub(crate) events: VecDeque<Event>,
    pub(crate) refusals: VecDeque<String>,
}

impl Control {
    pub(crate) fn new(
        me: Hello,
        address: IpAddr,
        one_life: bool,
        key: Vec<u8>,
        addresses: Vec<Option<SocketAddr>>,
        listener: TcpListener,
    ) -> Control {
        let peers = (0..addresses.len()).map(|_| Peer::default()).collect();
        let newcomers = Vec::new();
        let (events, refusals) = (VecDeque::new(), VecDeque::new());
        Control { me, address, one_life, key, addresses, listener, newcomers, begun: 0, peers, events, refusals }
    }

    /// Whether a peer that could be there is not.
    pub(crate) fn is_connecting(&self) -> bool {
        !self.newcomers.is_empty()
            || self.peers.iter().enumerate().any(|(n, peer)| peer.link.is_none() && n != self.me.process.index())
    }

    /// Whether this process waits for the time of the next attempt to dial a peer, or for a handshake.
    pub(crate) fn is_dialling(&self) -> bool {
        let mut dialled = self.peers.iter().zip(&self.addresses).take(self.me.process.index());
        !self.newcomers.is_empty() || dialled.any(|(peer, address)| peer.link.is_none() && address.is_some())
    }

    pub(crate) fn is_linked(&self, peer: ProcessId) -> bool {
        self.peers[peer.index()].link.is_some()
    }

    /// The sockets to wait for.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = &TcpStream> {
        let newcomers = self.newcomers.iter().map(|newcomer| &newcomer.handshake.link.stream);
        newcomers.chain(self.peers.iter().flat_map(|peer| &peer.link).map(|(link, _)| &link.stream))
    }

    /// The socket that new connections come to.
    pub(crate) fn listener(&self) -> &TcpListener {
        &self.listener
    }

    pub(crate) fn refuse(&mut self, reason: String) {
        if self.refusals.len() == MAX_REFUSALS {
            self.refusals.pop_front();
        }
        self.refusals.push_back(reason);
    }

    pub(crate) fn tell(&mut self, peer: ProcessId, message: &Message) {
        if let Some((link, session)) = &mut self.peers[peer.index()].link {
            let bytes = message.encode();
            let tag = session.seal(&bytes);
            link.send(&[&bytes, &tag]);
        }
    }

    /// One round: lets peers in, dials, hears.
    pub(crate) fn pump(&mut self) -> Vec<Heard> {
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
        let Ok(handshake) = Handshake::new(stream, &self.me, expected.is_some()) else { return };
        self.begun += 1;
        self.newcomers.push(Newcomer { handshake, expected });
    }

    fn accept(&mut self) {
        for _ in 0..MAX_NEWCOMERS {
            let Ok((stream, _)) = self.listener.accept() else { break };
            // Those whom this process dials are no more than there are peers, and keep nobody out. Nor does whoever fills the
            // list with silence: the oldest that proved nothing goes.
            let is_stranger = |newcomer: &Newcomer| newcomer.expected.is_none();
            let strangers = self.newcomers.iter().filter(|newcomer| is_stranger(newcomer)).count();
            if strangers >= MAX_NEWCOMERS
                && let Some(oldest) = self.newcomers.iter().position(is_stranger)
            {
                self.newcomers.remove(oldest);
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
            if let Ok(stream) = connect(self.address, address) {
                self.greet(stream, Some(peer));
            }
        }
    }

    fn hear_newcomers(&mut self, heard: &mut Vec<Heard>) {
        for mut newcomer in std::mem::take(&mut self.newcomers) {
            let mut joined = None;
            while joined.is_none() {
                let Some(frame) = newcomer.handshake.link.receive() else { break };
                match self.greeted(&mut newcomer, &frame) {
                    Ok(known) => joined = known,
                    Err(reason) => {
                        newcomer.handshake.link.dead = true;
                        self.refuse(reason);
                        break;
                    }
                }
            }
            match joined {
                Some((hello, session)) => {
                    let peer = &mut self.peers[hello.process.index()];
                    peer.link = Some((newcomer.handshake.link, session));
                    peer.first_life.get_or_insert(hello.life);
                    peer.pause = DIAL_PAUSE.0;
                    heard.push(Heard::Joined(hello.process));
                }
                None => {
                    // Before the look at the clock: this process may not have run for a while.
                    newcomer.handshake.link.drain();
                    if !newcomer.handshake.link.dead && !newcomer.handshake.is_late() {
                        self.newcomers.push(newcomer);
                    }
                }
            }
        }
    }

    /// A frame of the handshake. `Some` when it is over.
    fn greeted(&mut self, newcomer: &mut Newcomer, frame: &[u8]) -> Result<Option<(Hello, Session)>, String> {
        let me = self.me.process;
        let heard = newcomer.handshake.hear(&self.key, frame, newcomer.expected).map_err(|fault| match fault {
            Fault::NoHello => format!("{me} was greeted with something else than a hello"),
            Fault::Another(other) => format!("{other} answered {me} where another process was expected"),
            Fault::NoKey => format!("{me} was dialled or answered by somebody without the cluster's key"),
        })?;
        let Some((known, mut session)) = heard else { return Ok(None) };
        self.compare(&known)?;
        let them = known.process;
        let mut end = |message: Message| {
            let bytes = message.encode();
            let tag = session.seal(&bytes);
            newcomer.handshake.link.send(&[&bytes, &tag]);
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
        if !reach(&me.fabric, &other.fabric) {
            return say("fabric", &me.fabric, &other.fabric);
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
            known.link = None;
            known.offers.clear();
            heard.push(Heard::Lost(peer));
        }
    }
}

/// Whether two fabrics can connect with each other. What speaks RoCEv2 can, in the kernel, in a card or in user space.
fn reach(one: &str, other: &str) -> bool {
    const ROCE_V2: [&str; 2] = ["roce", "verbs"];
    one == other || ROCE_V2.contains(&one) && ROCE_V2.contains(&other)
}

/// Why who is started again is not let in, and what to do.
pub(crate) fn started_again() -> &'static str {
    "it has forgotten what it must not; stop all processes and start them anew"
}

/// Begins a connection, from this process's own address: on a host with several, others may only let that one in. The polling
/// thread does not wait until the peer takes it; what is written meanwhile is kept, and if nobody takes it reading says so.
pub(crate) fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    net::bind(&socket, &SocketAddr::new(from, 0))?;
    match net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};

    use super::*;

    #[test]
    fn only_what_speaks_roce_connects_with_another_fabric() {
        assert!(reach("roce", "verbs") && reach("verbs", "roce") && reach("ofi tcp", "ofi tcp"));
        for (one, other) in [("roce", "ofi tcp"), ("ofi tcp", "verbs"), ("ofi tcp", "ofi efa")] {
            assert!(!reach(one, other) && !reach(other, one), "{one} {other}");
        }
    }

    #[test]
    fn a_process_dials_from_its_own_address_and_hears_that_nobody_is_there() {
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

    /// Waits until a connection was taken or refused, at most so many seconds.
    fn settle(stream: &TcpStream, tv_sec: i64) {
        let longest = Timespec { tv_sec, tv_nsec: 0 };
        poll(&mut [PollFd::new(stream, PollFlags::OUT)], Some(&longest)).unwrap();
    }

    /// One that takes no connection: as many wait in its queue as have room there, and the system drops what comes more.
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
            assert!(waiting.len() < 64, "the queue has no end");
        }
    }

    #[test]
    fn a_host_that_swallows_packets_is_not_waited_for_and_is_dialled_again() {
        let (listener, waiting) = deaf();
        let to = listener.local_addr().unwrap();
        let hello = Hello {
            cluster: "c".into(),
            fabric: "f".into(),
            version: 1,
            fingerprint: 1,
            process: ProcessId(1),
            processes: 2,
            life: 1,
            nonce: [0; 32],
        };
        let own = TcpListener::bind("127.0.0.1:0").unwrap();
        own.set_nonblocking(true).unwrap();
        let addresses = vec![Some(to), Some(own.local_addr().unwrap())];
        let mut control = Control::new(hello, IpAddr::from([127, 0, 0, 1]), false, vec![7], addresses, own);
        let mut dialled = std::collections::BTreeSet::new();
        let since = Instant::now();
        while dialled.len() < 2 {
            assert!(control.pump().is_empty() && since.elapsed() < Duration::from_secs(60));
            for newcomer in &control.newcomers {
                assert!(newcomer.handshake.link.is_behind(), "nobody can have taken it");
                dialled.insert(newcomer.handshake.link.stream.local_addr().unwrap());
            }
        }
        // There is room again.
        waiting.iter().for_each(|_| drop(listener.accept().unwrap()));
        while control.newcomers.iter().all(|newcomer| newcomer.handshake.link.is_behind()) {
            assert!(control.pump().is_empty() && since.elapsed() < Duration::from_secs(60));
        }
    }
}
