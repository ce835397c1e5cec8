//! Peers that send garbage, or memory that cannot be trusted.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use stentor_fabric::{Access, Event, Fabric, ProcessId, QpConfig, QpKind, Status};

use super::support::*;
use crate::ShmFabric;
use crate::message::{FORMAT, Identity, Message};
use crate::socket::{self, Received};
use stentor_host::memfd;
use stentor_host::sockets_of;

/// A peer whose messages the test sends by hand.
pub(super) struct Raw {
    pub(super) socket: OwnedFd,
    pub(super) fabric: ShmFabric,
    pub(super) directory: TestDirectory,
}

pub(super) fn hello() -> Identity {
    Identity {
        format: FORMAT,
        version: 1,
        fingerprint: 0x5e,
        process: ProcessId(1),
        processes: 3,
        cluster: "test".to_owned(),
        name: "raw".to_owned(),
        life: 1,
    }
}

impl Raw {
    pub(super) fn new() -> Self {
        let directory = TestDirectory::new();
        let mut fabric = ShmFabric::start(config(&directory.0, 0, 3)).unwrap();
        fabric.connect(ProcessId(1), SERVICE, QpConfig::reliable(4, 4)).unwrap();
        let socket = dial(&directory);
        Raw { socket, fabric, directory }
    }

    pub(super) fn send(&self, message: &Message, fds: &[&OwnedFd]) {
        let fds: Vec<_> = fds.iter().map(|fd| fd.as_fd()).collect();
        assert_eq!(socket::send(&self.socket, &message.encode(), &fds), Ok(true));
    }

    /// Accepts the hello of the fabric.
    fn welcome(&self, event: &OwnedFd) {
        let (wait, control) = (memfd::create("wait", 4096).unwrap(), memfd::create("control", 64).unwrap());
        self.send(&Message::Welcome { control_words: 8 }, &[&wait, &control, event]);
    }

    /// Connects the peer.
    pub(super) fn connected() -> Self {
        let mut raw = Raw::new();
        raw.send(&Message::Hello(hello()), &[]);
        raw.welcome(&eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        until("connected", || {
            raw.fabric.next_event();
            raw.fabric.peer_pid(ProcessId(1)).is_some()
        });
        raw
    }

    /// Asserts that the fabric refuses the peer, reports the reason to both sides, closes the connection, and still
    /// serves other peers.
    fn refused(mut self, what: &str) {
        let mut refusal = None;
        until("refused", || {
            assert_eq!(self.fabric.next_event(), None);
            refusal = self.fabric.next_refusal();
            refusal.is_some()
        });
        let reason = refusal.unwrap().reason;
        assert!(reason.contains(what), "{what} in: {reason}");
        let mut told = false;
        let mut room = socket::ROOM;
        until("closed", || match socket::receive(&self.socket, &mut room) {
            Received::Packet(bytes, _) => {
                told |= Message::decode(bytes).unwrap() == Message::Refuse(reason.clone());
                false
            }
            Received::Closed => true,
            _ => false,
        });
        assert!(told, "the peer hears why: {reason}");
        assert_eq!(self.fabric.peer_pid(ProcessId(1)), None);
        let mut b = ShmFabric::start(config(&self.directory.0, 1, 3)).unwrap();
        b.connect(ProcessId(0), SERVICE, QpConfig::reliable(4, 4)).unwrap();
        until("another one connects", || {
            events(&mut b);
            events(&mut self.fabric).contains(&Event::Connected { qp: stentor_fabric::QpId(0), peer: ProcessId(1) })
        });
    }
}

pub(super) fn dial(directory: &TestDirectory) -> OwnedFd {
    socket::dial(&sockets_of(&directory.0.join("test"), ProcessId(0)).unwrap()[0]).unwrap()
}

#[test]
fn garbage_instead_of_a_hello_is_refused() {
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0], &[255; 1024], &[1; 1025], &[7; 100_000]] {
        let raw = Raw::new();
        assert_eq!(socket::send(&raw.socket, garbage, &[]), Ok(true));
        raw.refused("bytes that are no message");
    }
}

#[test]
fn every_flipped_byte_of_a_hello_is_refused_or_harmless() {
    let good = Message::Hello(hello()).encode();
    let directory = TestDirectory::new();
    let mut fabric = ShmFabric::start(config(&directory.0, 0, 3)).unwrap();
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 0x11;
        let socket = dial(&directory);
        assert_eq!(socket::send(&socket, &bad, &[]), Ok(true));
        for _ in 0..3 {
            assert_eq!(fabric.next_event(), None);
        }
    }
    assert_eq!(fabric.peer_pid(ProcessId(1)), None);
}

#[test]
fn another_cluster_and_a_taken_id_are_refused() {
    let raw = Raw::new();
    raw.send(&Message::Hello(Identity { cluster: "other".to_owned(), ..hello() }), &[]);
    raw.refused("clusters differ");
    let mut pair = Pair::new(QpConfig::reliable(4, 4));
    let socket = dial(&pair.directory);
    socket::send(&socket, &Message::Hello(hello()).encode(), &[]).unwrap();
    until("refused", || {
        assert_eq!(pair.a.next_event(), None);
        pair.a.next_refusal().is_some_and(|refusal| refusal.reason.contains("already"))
    });
    pair.write(1, 0, &[1], true);
    assert_eq!(ends(&poll(&mut pair.a)), [(1, Status::Success)]);
}

#[test]
fn silent_connections_block_nobody() {
    let directory = TestDirectory::new();
    let mut fabric = ShmFabric::start(config(&directory.0, 0, 3)).unwrap();
    fabric.connect(ProcessId(1), SERVICE, QpConfig::reliable(4, 4)).unwrap();
    let mut crowd = Vec::new();
    for _ in 0..200 {
        crowd.push(dial(&directory));
        fabric.next_event();
    }
    let mut b = ShmFabric::start(config(&directory.0, 1, 3)).unwrap();
    let qp = b.connect(ProcessId(0), SERVICE, QpConfig::reliable(4, 4)).unwrap();
    until("connected", || {
        events(&mut fabric);
        events(&mut b).contains(&Event::Connected { qp, peer: ProcessId(0) })
    });
}

#[test]
fn refused_connections_do_not_delay_dialling() {
    let directory = TestDirectory::new();
    let mut b = ShmFabric::start(config(&directory.0, 1, 3)).unwrap();
    let qp = b.connect(ProcessId(0), SERVICE, QpConfig::reliable(4, 4)).unwrap();
    let garbage = socket::dial(&sockets_of(&directory.0.join("test"), ProcessId(1)).unwrap()[0]).unwrap();
    socket::send(&garbage, b"nonsense", &[]).unwrap();
    until("refused", || {
        events(&mut b);
        b.next_refusal().is_some()
    });
    let mut fabric = ShmFabric::start(config(&directory.0, 0, 3)).unwrap();
    fabric.connect(ProcessId(1), SERVICE, QpConfig::reliable(4, 4)).unwrap();
    assert!(b.control.peers[0].not_before.is_none(), "its own peers have not refused anything");
    until("connected", || {
        events(&mut fabric);
        events(&mut b).contains(&Event::Connected { qp, peer: ProcessId(0) })
    });
}

#[test]
fn too_many_descriptors_are_named_as_such() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let raw = Raw::new();
    let fd = memfd::create("many", 64).unwrap();
    let fds = [fd.as_fd(); 20];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(20))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    let bytes = Message::Hello(hello()).encode();
    sendmsg(&raw.socket, &[std::io::IoSlice::new(&bytes)], &mut ancillary, SendFlags::empty()).unwrap();
    raw.refused("file descriptors that cannot be taken");
}

/// A ring at a socket or at a blocking eventfd could block this process.
#[test]
fn bell_that_may_block_is_refused() {
    let blocking = eventfd(0, EventfdFlags::empty()).unwrap();
    let (_other, socket) = UnixStream::pair().unwrap();
    socket.set_nonblocking(true).unwrap();
    for event in [blocking, socket.into(), memfd::create("event", 64).unwrap()] {
        let raw = Raw::new();
        raw.send(&Message::Hello(hello()), &[]);
        raw.welcome(&event);
        raw.refused("is no eventfd that never blocks");
    }
}

fn grant(bytes: u64) -> Message {
    Message::Grant { region: 0, purpose: PURPOSE, access: Access::Write, bytes, generation: 0 }
}

#[test]
fn a_truncated_region_is_refused() {
    let raw = Raw::connected();
    raw.send(&grant(4096), &[&memfd::create("short", 64).unwrap()]);
    raw.refused("truncated: 64 bytes where 4096 were announced");
}

#[test]
fn a_region_that_could_shrink_is_refused() {
    for seals in [SealFlags::empty(), SealFlags::GROW, SealFlags::SHRINK] {
        let raw = Raw::connected();
        let fd = memfd_create("loose", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, 4096).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        raw.send(&grant(4096), &[&fd]);
        raw.refused("not sealed");
    }
}

#[test]
fn region_without_valid_memory_or_generation_is_refused() {
    let raw = Raw::connected();
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    raw.send(&grant(4096), &[&file.into()]);
    raw.refused("no memfd");
    let raw = Raw::connected();
    raw.send(&grant(4096), &[]);
    raw.refused("without its memory");
    let raw = Raw::connected();
    let message = Message::Grant { region: 8, purpose: PURPOSE, access: Access::Write, bytes: 64, generation: 0 };
    raw.send(&message, &[&memfd::create("good", 64).unwrap()]);
    raw.refused("no generation");
}

#[test]
fn a_queue_that_cannot_be_trusted_is_refused() {
    let offer = |ring_words, kind| Message::Offer { service: SERVICE, kind, epoch: 0, ring_words, receives: 3 };
    let good = memfd::create("queue", (24 + 4 + 64) * 8).unwrap();
    for (message, what) in [
        (offer(65, QpKind::Reliable), "65 words"),
        (offer(1 << 40, QpKind::Reliable), "words"),
        (offer(128, QpKind::Reliable), "truncated"),
        (offer(64, QpKind::Unreliable), "Unreliable there"),
        (Message::Hello(hello()), "after the handshake"),
    ] {
        let raw = Raw::connected();
        raw.send(&message, &[&good]);
        raw.refused(what);
    }
}

#[test]
fn garbage_in_a_queue_breaks_that_queue_pair_only() {
    let mut pair = Pair::new(QpConfig::reliable(4, 4));
    let region = pair.region_b;
    pair.b.post_recv(pair.qp_b, span(region, 0, 64), 1).unwrap();
    let (_, queue) = pair.a.data.qps[0].outbound.as_ref().unwrap();
    queue.words()[0].store(u64::MAX, stentor_fabric::memory::Ordering::SeqCst);
    assert_eq!(ends(&poll(&mut pair.b)), [(1, Status::Flushed)]);
    assert_eq!(events(&mut pair.b), [Event::Disconnected { qp: pair.qp_b, peer: ProcessId(0) }]);
    assert!(pair.b.peer_pid(ProcessId(0)).is_some());
}
