//! Tests peers whose packets have individual IPv4 identifications, like those of the kernel and of NICs. A plain socket
//! does not report identifications, but the ICRC covers them. If a peer announces such identifications when it
//! connects, its packets are accepted. Otherwise they count as damaged.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use stentor_fabric::memory::Ordering;
use stentor_fabric::{
    Access, Fabric, ProcessId, Purpose, QpConfig, QpId, QpState, RegionId, RegionSpec, Service, Status,
};
use stentor_fabric_net::{ConnectionManager, End, NetConfig, NoSets, Pair, Transport};
use stentor_fabric_roce::{RoceConfig, RoceFabric};
use stentor_wire::{Bth, Envelope, Headers, IpRepr, Message, Psn, Repr, Reth};

const PATIENCE: Duration = Duration::from_secs(20);
const KEY: &[u8] = b"a key of this test";
const SERVICE: Service = Service(7);
const PURPOSE: Purpose = Purpose(1);
const CONFIG: QpConfig = QpConfig::reliable(4, 0);
const FIRST_PSN: u32 = 7;
const ME: ProcessId = ProcessId(0);
const PEER: ProcessId = ProcessId(1);

fn address(net: u8, last: u8) -> Ipv4Addr {
    Ipv4Addr::new(127, 64 + (std::process::id() % 128) as u8, net, last)
}

/// The peer's end of the connection. The test itself creates the packets of this end.
struct Card {
    pair: Pair,
    theirs: Option<Pair>,
}

impl Transport for Card {
    fn begin(&mut self, _: QpId) -> Result<End, String> {
        Ok(End::QueuePair(self.pair))
    }

    fn meet(&mut self, _: QpId, _: &End, theirs: &End) -> Result<(), String> {
        let End::QueuePair(theirs) = theirs else { return Err("the end is not a queue pair".to_owned()) };
        self.theirs = Some(*theirs);
        Ok(())
    }

    fn ready(&mut self, _: QpId, _: &End, _: &End) -> Result<(), String> {
        Ok(())
    }

    fn drive(&mut self) {}

    fn fail(&mut self, _: QpId, _: Status) {}

    fn next_broken(&mut self) -> Option<QpId> {
        None
    }
}

/// A process with this fabric, and a peer that may announce individual identifications.
struct Bed {
    fabric: RoceFabric,
    region: RegionId,
    peer: ConnectionManager<NoSets<Card>>,
    card: Card,
    socket: UdpSocket,
    envelope: Envelope,
}

impl Bed {
    fn new(net: u8, identified: bool) -> Bed {
        let [me, peer] = [1, 2].map(|last| address(net, last));
        let addresses = [me, peer].map(|ip| Some(SocketAddr::new(ip.into(), 4791))).to_vec();
        let net = |me| NetConfig::new("test", me, addresses.clone()).key(KEY);
        let mut fabric = RoceFabric::start(net(ME), RoceConfig::default()).expect("the fabric opens its sockets");
        let region = fabric
            .register(RegionSpec { purpose: PURPOSE, writer: PEER, bytes: 64 })
            .expect("memory for the region is available");
        fabric.grant(region, PEER, Access::Write).expect("the region is granted");
        let gid = peer.to_ipv6_mapped();
        let pair = Pair { number: 0x22, psn: FIRST_PSN, mtu: 1024, gid, lid: 0, reads: 16, runs: false, identified };
        let socket = UdpSocket::bind((peer, 0)).expect("a socket");
        let port = socket.local_addr().expect("the socket is bound").port();
        let mut bed = Bed {
            fabric,
            region,
            peer: ConnectionManager::start("verbs".to_owned(), net(PEER), NoSets::default())
                .expect("the connection manager listens"),
            card: Card { pair, theirs: None },
            socket,
            envelope: Envelope::plain(peer.into(), port, me.into()).expect("both addresses have one family"),
        };
        bed.meet();
        bed
    }

    fn meet(&mut self) {
        let ours = self.fabric.connect(PEER, SERVICE, CONFIG).expect("the queue pair is created");
        let theirs =
            self.peer.connect(&mut self.card, (ME, SERVICE), CONFIG, |_, _| Ok(())).expect("the queue pair is created");
        let since = Instant::now();
        while self.fabric.state(ours) != QpState::Ready || self.peer.state(theirs) != Some(QpState::Ready) {
            assert!(since.elapsed() < PATIENCE, "the processes have not connected");
            while self.fabric.next_event().is_some() {}
            self.peer.pump(&mut self.card);
        }
    }

    /// Returns packet `n`, a WRITE of one word, as it is sent with the identification `id`.
    fn packet(&self, n: u32, value: u64, id: u16) -> Vec<u8> {
        let region = self.peer.remotes().resolve(ME, PURPOSE).expect("the region is granted");
        let place = self.peer.remotes().place(&region);
        let reth = Reth { va: place.base, rkey: place.key as u32, bytes: 8 };
        let number = self.card.theirs.expect("the peer has sent its offer").number;
        let bth = Bth::new(number, Psn::new(FIRST_PSN + n));
        let repr = Repr { bth, headers: Headers::Rc(Message::WriteOnly(reth)), payload_bytes: 8 };
        let mut bytes = vec![0; repr.packet_bytes()];
        repr.emit(&mut bytes).expect("the buffer has room").copy_from_slice(&value.to_ne_bytes());
        let mut envelope = self.envelope;
        let IpRepr::V4(ip) = &mut envelope.ip else { panic!("IPv4") };
        ip.id = id;
        envelope.seal(&mut bytes);
        bytes
    }

    /// Sends a packet and waits until it is received. Returns the number of packets that count as damaged, and the word
    /// in the region.
    fn send(&mut self, packet: &[u8]) -> (u64, u64) {
        let received = self.fabric.device().counters().received + 1;
        self.socket.send_to(packet, (self.envelope.ip.destination(), 4791)).expect("the packet is sent");
        let since = Instant::now();
        while self.fabric.device().counters().received < received {
            assert!(since.elapsed() < PATIENCE, "the packet does not arrive");
            self.fabric.drive();
        }
        let word = self.fabric.memory(self.region)[0].load(Ordering::Acquire);
        (self.fabric.device().counters().bad_icrc, word)
    }
}

#[test]
fn announced_identifications_are_accepted() {
    let mut bed = Bed::new(231, true);
    for (n, id) in [0, 1, 2, 0x1234, 0xffff].into_iter().enumerate() {
        let packet = bed.packet(n as u32, 100 + n as u64, id);
        assert_eq!(bed.send(&packet), (0, 100 + n as u64), "identification {id:#x}");
    }
    // The check is weaker for such a peer, but damage is still detected.
    let mut damaged = bed.packet(5, 105, 0x2345);
    damaged[30] ^= 1;
    assert_eq!(bed.send(&damaged), (1, 104));
}

#[test]
fn identifications_that_were_not_announced_count_as_damage() {
    let mut bed = Bed::new(232, false);
    let packet = bed.packet(0, 100, 0);
    assert_eq!(bed.send(&packet), (0, 100));
    let packet = bed.packet(1, 101, 0x1234);
    assert_eq!(bed.send(&packet), (1, 100));
}
