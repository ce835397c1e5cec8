//! Hosts that join their set over sockets. Complete sets get one generation, each leaving or joining host causes
//! another one, strangers are rejected, and the set survives a restart of the switch.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use stentor_fabric::Status;
use stentor_fabric_net::control_session::SessionError;
use stentor_fabric_roce::endpoint::{Data, Request, Work};
use stentor_soft_switch::{Attached, AttachedConfig, Heard, Member, Settings, SoftSwitch};
use stentor_switch::control::{Link, Operation};
use stentor_switch::enrol::{Ready, Refusal};

const KEY: &[u8] = b"the key of the test";
const NUMBER: u16 = 9;
const PATIENCE: Duration = Duration::from_secs(20);

struct Bed {
    settings: Settings,
    switch: Option<SoftSwitch>,
    control: SocketAddr,
    members: Vec<Member>,
    /// Current generation of each member.
    ready: Vec<Option<Ready>>,
    refused: Vec<Option<Refusal>>,
    /// Immediates of the SENDs that arrived, by member.
    arrived: Vec<Vec<u32>>,
}

impl Bed {
    /// Creates a bed. Each test has its own network.
    fn new(network: u8) -> Bed {
        let address = |last| Ipv4Addr::new(127, 211, network, last);
        let settings = Settings::new("test", address(250), address(251));
        let control = SocketAddr::from((address(250), 7300));
        let mut bed = Bed {
            settings,
            switch: None,
            control,
            members: Vec::new(),
            ready: Vec::new(),
            refused: Vec::new(),
            arrived: Vec::new(),
        };
        bed.start();
        bed
    }

    fn start(&mut self) {
        self.switch = None;
        let mut switch = SoftSwitch::open(&self.settings).unwrap();
        switch.listen(&self.settings, self.control, KEY).unwrap();
        self.switch = Some(switch);
    }

    fn host(&self, rank: u8, life: u32) -> Attached {
        let [a, b, c, _] = self.settings.forward.octets();
        let both = [self.settings.forward, self.settings.backward];
        let config = AttachedConfig::new(Ipv4Addr::new(a, b, c, 1 + rank), rank, 0, both);
        Attached::open(AttachedConfig { life, ..config }).unwrap()
    }

    fn dial(&self, host: Attached, size: u8, key: &[u8]) -> Member {
        Member::dial(host, (NUMBER, size), "test", key, self.control).unwrap()
    }

    fn add(&mut self, rank: u8, size: u8) {
        let member = self.dial(self.host(rank, 1), size, KEY);
        self.members.push(member);
        self.ready.push(None);
        self.refused.push(None);
        self.arrived.push(Vec::new());
        let last = self.members.len() - 1;
        self.until("the line", |bed| bed.members[last].is_ready());
        self.members[last].join().unwrap();
    }

    fn round(&mut self) {
        if let Some(switch) = &mut self.switch {
            switch.round().unwrap();
        }
        for (n, member) in self.members.iter_mut().enumerate() {
            member.host.drive().unwrap();
            while let Some((completion, receives)) = member.host.poll() {
                if receives && completion.status == Status::Success {
                    self.arrived[n].push(completion.imm.unwrap_or(0));
                }
            }
            match member.hear().unwrap() {
                None => {}
                Some(Heard::Ready(ready)) => {
                    member.host.post_receives(32, 64).unwrap();
                    self.ready[n] = Some(ready);
                }
                Some(Heard::Renew) => {
                    self.ready[n] = None;
                    member.host.begin_anew().unwrap();
                    member.join().unwrap();
                }
                Some(Heard::Refused(why)) => self.refused[n] = Some(why),
            }
        }
    }

    fn until(&mut self, what: &str, mut holds: impl FnMut(&Bed) -> bool) {
        let since = Instant::now();
        while !holds(self) {
            self.round();
            assert!(since.elapsed() < PATIENCE, "still not: {what}");
        }
    }

    /// Runs until these members are in one generation, which consists of the ranks `who`.
    fn in_one(&mut self, members: &[usize], who: u32) -> Ready {
        self.until("one generation", |bed| {
            let generations = members.iter().map(|n| bed.ready[*n].map(|ready| (ready.generation, ready.who)));
            let first = bed.ready[members[0]].map(|ready| (ready.generation, ready.who));
            first.is_some_and(|(_, all)| all == who) && generations.into_iter().all(|other| other == first)
        });
        self.ready[members[0]].unwrap()
    }

    /// Links the members `to` to the first one, which then sends them a message.
    fn send(&mut self, to: &[usize], imm: u32) {
        let links: Vec<Link> = to.iter().map(|n| self.members[*n].host.link(0)).collect();
        self.members[0].host.control(Operation::Link, &links, 1).unwrap();
        let request = Request::Send { data: Data::Inline(b"x"), imm: Some(imm) };
        self.members[0].host.post(&Work::signalled(2, request)).unwrap();
        let to = to.to_vec();
        self.until("the message", |bed| to.iter().all(|n| bed.arrived[*n].contains(&imm)));
    }
}

#[test]
fn joining_or_leaving_creates_another_generation() {
    let mut bed = Bed::new(1);
    (0..3).for_each(|rank| bed.add(rank, 3));
    let first = bed.in_one(&[0, 1, 2], 0b111);
    bed.send(&[1, 2], 7);
    // One host disconnects.
    let gone = bed.members.pop().unwrap();
    let lives: Vec<u32> = bed.members.iter().map(|member| member.host.config().life).collect();
    drop(gone);
    let second = bed.in_one(&[0, 1], 0b11);
    assert!(second.generation != first.generation && second.gid != first.gid);
    assert!(bed.members.iter().zip(&lives).all(|(member, life)| member.host.config().life == life + 1));
    bed.send(&[1], 8);
    // Host 2 joins again.
    (bed.ready[2], bed.arrived[2]) = (None, Vec::new());
    let member = bed.dial(bed.host(2, 1), 3, KEY);
    bed.members.push(member);
    bed.until("the line", |bed| bed.members[2].is_ready());
    bed.members[2].join().unwrap();
    let third = bed.in_one(&[0, 1, 2], 0b111);
    assert!(third.generation > second.generation);
    bed.send(&[1, 2], 9);
    assert_eq!((&bed.arrived[1][..], &bed.arrived[2][..]), (&[7, 8, 9][..], &[9][..]));
    assert_eq!(bed.switch.as_ref().unwrap().show(&bed.settings, None).sets.len(), 1, "older generations are removed");
}

#[test]
fn restarted_switch_delivers_nothing_twice() {
    let mut bed = Bed::new(2);
    (0..2).for_each(|rank| bed.add(rank, 2));
    let first = bed.in_one(&[0, 1], 0b11);
    bed.send(&[1], 1);
    // A message is in flight when the switch loses its memory.
    let request = Request::Send { data: Data::Inline(b"x"), imm: Some(2) };
    bed.members[0].host.post(&Work::signalled(3, request)).unwrap();
    bed.members[0].host.drive().unwrap();
    bed.start();
    bed.until("the lines' ends", |bed| bed.members.iter().all(|member| member.error().is_some()));
    // The new switch does not answer retransmitted packets.
    (0..2000).for_each(|_| bed.round());
    assert_eq!(bed.arrived[1], [1]);
    for n in 0..2 {
        let mut old = bed.members.remove(0);
        old.host.begin_anew().unwrap();
        let member = bed.dial(old.host, 2, KEY);
        bed.members.push(member);
        bed.ready[n] = None;
    }
    bed.until("the lines", |bed| bed.members.iter().all(Member::is_ready));
    bed.members.iter_mut().for_each(|member| member.join().unwrap());
    let second = bed.in_one(&[0, 1], 0b11);
    assert_ne!(second.generation >> 32, first.generation >> 32, "another start");
    bed.send(&[1], 3);
    assert_eq!(bed.arrived[1], [1, 3]);
}

#[test]
fn strangers_and_misconfigured_hosts_are_refused_without_effect() {
    let mut bed = Bed::new(3);
    (0..2).for_each(|rank| bed.add(rank, 2));
    bed.in_one(&[0, 1], 0b11);
    // A host with the wrong key is disconnected.
    let mut stranger = bed.dial(bed.host(5, 1), 2, b"another key altogether");
    bed.until("an end", |_| {
        let _ = stranger.hear();
        stranger.error().is_some()
    });
    assert!(matches!(stranger.error(), Some(SessionError::NoKey | SessionError::Closed | SessionError::Broke { .. })));
    // 100 connections never join, which is more than the switch keeps before a host has proved the key. Half of them
    // send invalid bytes, and half send nothing.
    let mut noise: Vec<TcpStream> = (0..100).map(|_| TcpStream::connect(bed.control).unwrap()).collect();
    for (n, stream) in noise.iter_mut().enumerate().filter(|(n, _)| n % 2 == 0) {
        let _ = stream.write_all(&vec![n as u8; 700]);
    }
    bed.send(&[1], 1);
    drop(noise);
    bed.add(2, 3);
    bed.until("a refusal", |bed| bed.refused[2] == Some(Refusal::Size));
    // A host with the right key that sends an invalid message is disconnected. This host joins with a rank that is not
    // below the size of the set.
    bed.add(6, 3);
    bed.until("an end", |bed| bed.members[3].error().is_some());
    let admitted = bed.switch.as_ref().unwrap().admitted();
    assert!(admitted.hosts == 4 && admitted.strangers >= 1 && admitted.garbled == 1, "{admitted:?}");
    bed.send(&[1], 2);
    assert_eq!(bed.arrived[1], [1, 2]);
    let mut rest = [0; 1];
    let mut silent = TcpStream::connect(bed.control).unwrap();
    silent.set_nonblocking(true).unwrap();
    assert!(silent.read(&mut rest).is_err(), "a silent connection receives nothing");
}
