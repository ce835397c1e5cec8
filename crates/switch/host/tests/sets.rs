//! Sets at hosts whose transports are scripted, and a switch that the test controls.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use stentor_fabric::{
    Completion, ConnectError, Event, Opcode, PostError, ProcessId, QpConfig, QpId, QpState, RemoteRegion, RemoteSpan,
    SetSpec, SetTarget, SetWrite, Status,
};
use stentor_fabric_net::control_session::{ControlSession, SessionConfig, SessionListener};
use stentor_fabric_net::{ConnectionManager, End, NetConfig, Pair, Sets, Transport};
use stentor_switch::control::CONTROL_VA;
use stentor_switch::enrol::{Join, Ready, Refusal, ToHost, ToSwitch, VERSION};
use stentor_switch_host::{RawWrite, SWITCH_PURPOSE, SetTransport, SwitchConfig, SwitchSets};

const A: ProcessId = ProcessId(0);
const B: ProcessId = ProcessId(1);
const MEMBERS: [ProcessId; 2] = [A, B];
/// Source address of both hosts' packets. It differs from the address of their sessions.
const PACKETS: Ipv4Addr = Ipv4Addr::new(127, 0, 9, 9);
/// Number of set 0 at the switch.
const FIRST: u16 = 0x8000;
const CONFIG: QpConfig = QpConfig::reliable(4, 0);

/// A transport that records its calls. Posted writes do not complete by themselves.
#[derive(Default)]
struct Script {
    log: Vec<String>,
    lives: u32,
    refuses_to_meet: bool,
    posted: Vec<(u64, u64)>,
}

impl Transport for Script {
    fn begin(&mut self, _: QpId) -> Result<End, String> {
        self.lives += 1;
        self.log.push("begin".to_owned());
        let gid = PACKETS.to_ipv6_mapped();
        let (number, psn) = (100 + self.lives, 1000 + self.lives);
        Ok(End::QueuePair(Pair { number, psn, mtu: 1024, gid, lid: 0, reads: 1, runs: false, identified: false }))
    }

    fn meet(&mut self, _: QpId, _: &End, theirs: &End) -> Result<(), String> {
        let End::QueuePair(pair) = theirs else { return Err("no queue pair".to_owned()) };
        self.log.push(format!("meet {:#x} {} {}", pair.number, pair.gid.to_ipv4_mapped().unwrap(), pair.psn));
        if self.refuses_to_meet { Err("refused by the test".to_owned()) } else { Ok(()) }
    }

    fn ready(&mut self, _: QpId, _: &End, _: &End) -> Result<(), String> {
        panic!("a queue pair to a switch must be connected by `ready_at_switch`")
    }

    fn drive(&mut self) {}

    fn fail(&mut self, _: QpId, status: Status) {
        self.log.push(format!("fail {status:?}"));
    }

    fn next_broken(&mut self) -> Option<QpId> {
        None
    }
}

impl SetTransport for Script {
    fn ready_at_switch(&mut self, _: QpId, _: &End, _: &End) -> Result<(), String> {
        self.log.push("ready".to_owned());
        Ok(())
    }

    fn write(&mut self, _: QpId, write: &RawWrite<'_>) -> Result<(), String> {
        self.posted.push((write.id, write.va));
        Ok(())
    }
}

struct Host {
    cm: ConnectionManager<SwitchSets<Script>>,
    transport: Script,
    events: Vec<Event>,
    notes: Vec<String>,
}

impl Host {
    fn pump(&mut self) {
        self.cm.pump(&mut self.transport);
        self.events.extend(std::iter::from_fn(|| self.cm.next_event()));
        self.notes.extend(std::iter::from_fn(|| self.cm.sets.next_note()));
    }

    fn join(&mut self) -> Result<QpId, ConnectError> {
        let spec = SetSpec { number: 0, members: &MEMBERS };
        SwitchSets::join(&mut self.cm, &mut self.transport, (spec, CONFIG), 4096, |_, _, sender, _| {
            assert_eq!(sender, A);
            Ok(())
        })
    }

    fn state(&self) -> QpState {
        self.cm.state(QpId(0)).unwrap()
    }

    fn post(&mut self, id: u64) -> Result<(), PostError> {
        let region = RemoteRegion { peer: B, key: 1, bytes: 64 };
        let targets = [SetTarget { peer: B, to: RemoteSpan { region, offset: 8 } }];
        let write = SetWrite { id, data: &[0; 8], targets: &targets, signalled: true };
        SwitchSets::post(&mut self.cm, &mut self.transport, QpId(0), &write, (true, 1024))
    }

    fn completed(&mut self, token: u64, status: Status) -> Option<Completion> {
        let done = Completion { qp: QpId(0), id: token, opcode: Opcode::Write, status, bytes: 0, imm: None, tag: 0 };
        SwitchSets::completed(&mut self.cm, &mut self.transport, &done)
    }
}

/// Two hosts, and a switch whose messages the test chooses.
struct Three {
    hosts: [Option<Host>; 2],
    configs: [NetConfig; 2],
    switch: SwitchConfig,
    listener: SessionListener,
    lines: Vec<ControlSession>,
    /// Last join of each host.
    joined: [Option<Join>; 2],
    left: Vec<u32>,
}

impl Three {
    /// Starts both hosts, connects them with each other, and waits for their joins.
    fn new(patience: Duration) -> Three {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let second = 96 + (std::process::id() % 128) as u8;
        let address = |n: u8| SocketAddr::new(Ipv4Addr::new(127, second, low, high + n).into(), 4790);
        let line = SessionConfig {
            purpose: SWITCH_PURPOSE.to_owned(),
            version: VERSION,
            cluster: "name of the switch's".to_owned(),
            key: b"key".to_vec(),
            me: None,
        };
        let listener = SessionListener::bind(line, address(3)).unwrap();
        let configs = MEMBERS.map(|me| {
            let addresses = vec![Some(address(1)), Some(address(2))];
            NetConfig::new("c", me, addresses).key(*b"key").fingerprint(1)
        });
        let cluster = Some("name of the switch's".into());
        let switch = SwitchConfig { patience, cluster, first_set: FIRST, ..SwitchConfig::new(address(3)) };
        let (lines, joined, left) = (Vec::new(), [None, None], Vec::new());
        let mut three = Three { hosts: [None, None], configs, switch, listener, lines, joined, left };
        MEMBERS.iter().for_each(|host| three.start(*host));
        let linked = |three: &Three| {
            MEMBERS.iter().all(|host| three.hosts[1 - host.index()].as_ref().unwrap().cm.is_linked(*host))
        };
        three.until("linked", |three| linked(three));
        for host in MEMBERS {
            assert_eq!(three.at(host).join(), Ok(QpId(0)));
        }
        three.until("joined", |three| three.joined.iter().all(Option::is_some));
        three
    }

    fn start(&mut self, host: ProcessId) {
        let config = self.configs[host.index()].clone();
        let sets = SwitchSets::new(Some(self.switch.clone()), &config).unwrap();
        let cm = ConnectionManager::start("test".to_owned(), config, sets).unwrap();
        let (transport, events, notes) = (Script::default(), Vec::new(), Vec::new());
        self.hosts[host.index()] = Some(Host { cm, transport, events, notes });
    }

    fn at(&mut self, host: ProcessId) -> &mut Host {
        self.hosts[host.index()].as_mut().unwrap()
    }

    /// Receives the hosts' messages at the switch.
    fn listen(&mut self) {
        self.lines.extend(std::iter::from_fn(|| self.listener.accept()));
        for line in &mut self.lines {
            while let Some(bytes) = line.receive() {
                match ToSwitch::decode(&bytes).unwrap() {
                    ToSwitch::Join(join) => self.joined[usize::from(join.rank)] = Some(join),
                    ToSwitch::Leave { life, number } => {
                        assert_eq!(number, FIRST);
                        self.left.push(life);
                    }
                }
            }
        }
    }

    fn until(&mut self, what: &str, mut happened: impl FnMut(&mut Self) -> bool) {
        let since = Instant::now();
        while !happened(self) {
            self.listen();
            self.hosts.iter_mut().flatten().for_each(Host::pump);
            assert!(since.elapsed() < Duration::from_secs(10), "still not: {what}");
        }
    }

    /// Runs only one host.
    fn drive_alone(&mut self, host: ProcessId, what: &str, happened: impl Fn(&Host) -> bool) {
        let since = Instant::now();
        while !happened(self.at(host)) {
            self.at(host).pump();
            assert!(since.elapsed() < Duration::from_secs(10), "still not: {what}");
        }
    }

    fn pass(&mut self, time: Duration) {
        let since = Instant::now();
        self.until("time", |_| since.elapsed() > time);
    }

    fn line(&mut self, host: ProcessId) -> &mut ControlSession {
        let is_it = |line: &&mut ControlSession| line.peer().is_some_and(|peer| peer.process == Some(host));
        self.lines.iter_mut().rev().find(is_it).unwrap()
    }

    fn tell(&mut self, host: ProcessId, message: &ToHost) {
        let (bytes, length) = message.encode();
        self.line(host).send(&bytes[..length]).unwrap();
    }

    /// Announces a generation to one host, as the answer to the host's last join.
    fn ready(&mut self, host: ProcessId, generation: u64) {
        let Join { life, .. } = self.joined[host.index()].unwrap();
        let [forward, backward] = [Ipv4Addr::new(127, 0, 1, 1), Ipv4Addr::new(127, 0, 1, 2)];
        let ready =
            Ready { number: FIRST, life, generation, gid: 5, forward, backward, mtu: 1024, identified: false, who: 3 };
        self.tell(host, &ToHost::Ready(ready));
    }

    fn both_ready(&mut self, generation: u64) {
        MEMBERS.iter().for_each(|host| self.ready(*host, generation));
        self.until("ready", |three| MEMBERS.iter().all(|host| three.at(*host).state() == QpState::Ready));
    }
}

fn reset(host: &mut Host) {
    host.cm.reset(&mut host.transport, QpId(0)).unwrap();
}

const PATIENT: Duration = Duration::from_secs(60);

#[test]
fn each_process_connects_its_one_queue_pair_to_the_switch() {
    let mut three = Three::new(PATIENT);
    let [sends, receives] = three.joined.map(Option::unwrap);
    assert_eq!((sends.sends.qpn, sends.sends.first_psn.get(), sends.receives.qpn), (101, 1001, 0));
    assert_eq!((receives.sends.qpn, receives.receives.qpn, receives.receives.first_psn.get()), (0, 101, 1001));
    assert_eq!([sends.sends.ip, receives.receives.ip], [PACKETS; 2]);
    assert_eq!((sends.number, receives.number), (FIRST, FIRST));
    assert_eq!((sends.size, sends.rank, receives.rank, sends.life), (2, 0, 1, 1));
    three.both_ready(7);
    assert_eq!(three.at(A).transport.log, ["begin", "meet 0x500 127.0.1.1 1001", "ready"]);
    assert_eq!(
        three.at(B).transport.log,
        ["begin", "meet 0x501 127.0.1.2 1001"],
        "a receiver does not get ready to send"
    );
    for host in MEMBERS {
        assert_eq!(three.at(host).events, [Event::Connected { qp: QpId(0), peer: host }]);
    }
    let cm = &three.at(A).cm;
    assert!(SwitchSets::reaches(cm, QpId(0), B) && !SwitchSets::reaches(cm, QpId(0), A));
    assert!(matches!(three.at(B).post(1), Err(PostError::NotReached { .. } | PostError::Unsupported(_))));
}

/// The sender leaves a generation. The receivers leave, too, and only then confirm that they have left.
#[test]
fn receiver_leaves_and_confirms_when_the_sender_asks() {
    let mut three = Three::new(PATIENT);
    three.both_ready(7);
    let life = three.joined[0].unwrap().life;
    three.tell(A, &ToHost::Renew { number: FIRST, life });
    three.drive_alone(A, "broken", |host| host.state() == QpState::Error);
    for _ in 0..100 {
        three.at(A).pump();
    }
    assert!(!SwitchSets::is_settled(&three.at(A).cm, QpId(0), B));
    assert_eq!(three.at(A).events.last(), Some(&Event::Disconnected { qp: QpId(0), peer: A }));
    three.until("settled", |three| SwitchSets::is_settled(&three.at(A).cm, QpId(0), B));
    assert_eq!(three.at(B).transport.log.last().unwrap(), "fail RetryExceeded");
    assert_eq!(three.at(B).state(), QpState::Error);
    three.until("the switch knows", |three| three.left.len() == 2);
}

/// The sender has left a generation that the receiver does not know yet. The receiver must not enter it.
#[test]
fn receiver_does_not_enter_a_generation_that_the_sender_left() {
    let mut three = Three::new(PATIENT);
    three.ready(A, 7);
    three.until("ready", |three| three.at(A).state() == QpState::Ready);
    let life = three.joined[0].unwrap().life;
    three.tell(A, &ToHost::Renew { number: FIRST, life });
    three.until("broken", |three| three.at(A).state() == QpState::Error);
    three.until("settled", |three| SwitchSets::is_settled(&three.at(A).cm, QpId(0), B));
    assert_eq!(three.at(B).state(), QpState::Connecting);
    three.ready(B, 7);
    three.until("another life", |three| three.joined[1].unwrap().life == 2);
    assert_eq!(three.at(B).transport.log, ["begin", "fail Flushed", "begin"], "the queue pair was not connected");
    reset(three.at(A));
    three.until("joined", |three| three.joined[0].unwrap().life == 2);
    three.both_ready(8);
}

/// A switch that never executes a change of the member list does not block the sender forever.
#[test]
fn member_list_change_times_out() {
    let mut three = Three::new(Duration::from_millis(100));
    three.both_ready(7);
    for id in 1..=4 {
        three.at(A).post(id).unwrap();
    }
    assert_eq!(three.at(A).post(5), Err(PostError::SendQueueFull { qp: QpId(0), depth: 4 }));
    let posted = three.at(A).transport.posted.clone();
    assert!(posted.len() == 1 && posted[0].1 == CONTROL_VA, "{posted:?}");
    three.until("broken", |three| three.at(A).state() == QpState::Error);
    let host = three.at(A);
    let ended: Vec<_> =
        std::iter::from_fn(|| SwitchSets::next_flushed(&mut host.cm)).map(|done| (done.id, done.status)).collect();
    let flushed = |id| (id, Status::Flushed);
    assert_eq!(ended, [(1, Status::RetryExceeded), flushed(2), flushed(3), flushed(4)]);
    assert_eq!(host.completed(posted[0].0, Status::Flushed), None, "this write was reported already");
    // A change of the member list that completes before its timeout does not break the set later.
    reset(three.at(A));
    reset(three.at(B));
    three.until("joined", |three| three.joined.iter().all(|joined| joined.unwrap().life == 2));
    three.both_ready(8);
    let host = three.at(A);
    host.post(6).unwrap();
    let token = host.transport.posted.last().unwrap().0;
    assert_eq!(host.completed(token, Status::Success), None);
    let token = host.transport.posted.last().unwrap().0;
    assert_eq!(host.completed(token, Status::Success).map(|done| done.id), Some(6));
    three.pass(Duration::from_millis(300));
    assert_eq!(three.at(A).state(), QpState::Ready);
}

/// One request fails: requests before it are done, and those after it are flushed.
#[test]
fn first_failed_request_reports_the_cause() {
    let mut three = Three::new(PATIENT);
    three.both_ready(7);
    let host = three.at(A);
    (1..=3).for_each(|id| host.post(id).unwrap());
    host.completed(host.transport.posted[0].0, Status::Success);
    let tokens: Vec<u64> = host.transport.posted.iter().map(|(token, _)| *token).collect();
    assert_eq!(tokens.len(), 4);
    let first = host.completed(tokens[2], Status::RemoteAccess).map(|done| (done.id, done.status));
    assert_eq!(first, Some((2, Status::RemoteAccess)));
    let second = host.completed(tokens[3], Status::Flushed).map(|done| (done.id, done.status));
    assert_eq!(second, Some((3, Status::Flushed)));
    assert_eq!(SwitchSets::next_flushed(&mut host.cm), None);
}

/// The sender stops and starts again. Its receivers leave before they receive a message of its next life.
#[test]
fn receiver_leaves_when_it_loses_the_sender() {
    let mut three = Three::new(PATIENT);
    three.both_ready(7);
    three.hosts[0] = None;
    three.until("left", |three| three.at(B).state() == QpState::Error);
    // Both hosts join again, and the set breaks at the sender. The receiver ends before it has replied to the sender,
    // which then no longer waits for that reply.
    reset(three.at(B));
    three.start(A);
    three.at(A).join().unwrap();
    three.until("joined", |three| three.joined[0].unwrap().life == 1 && three.joined[1].unwrap().life == 2);
    three.until("linked", |three| three.at(A).cm.is_linked(B));
    three.both_ready(8);
    let life = three.joined[0].unwrap().life;
    three.tell(A, &ToHost::Renew { number: FIRST, life });
    three.drive_alone(A, "broken", |host| host.state() == QpState::Error);
    assert!(!SwitchSets::is_settled(&three.at(A).cm, QpId(0), B), "B has not replied");
    three.hosts[1] = None;
    three.until("settled", |three| SwitchSets::is_settled(&three.at(A).cm, QpId(0), B));
}

/// A refusal is reported once. The join is retried with growing pauses.
#[test]
#[ignore = "slow: cargo xtask test --only slow"]
fn refusal_is_reported_once_and_retried() {
    let mut three = Three::new(PATIENT);
    for (life, pause) in [(1, 1), (2, 2)] {
        let since = Instant::now();
        three.tell(B, &ToHost::Refused { number: FIRST, life, why: Refusal::Full });
        three.until("another life", |three| three.joined[1].unwrap().life == life + 1);
        assert!(since.elapsed() >= Duration::from_secs(pause), "{:?} after refusal {life}", since.elapsed());
    }
    let said = three.at(B).notes.iter().filter(|note| note.contains("raise `sets`")).count();
    assert_eq!(said, 1, "{:?}", three.at(B).notes);
    // A host that cannot connect its queue pair sends the switch a leave, and joins again.
    three.at(B).transport.refuses_to_meet = true;
    three.ready(B, 7);
    three.until("left", |three| three.left.contains(&3));
    three.at(B).transport.refuses_to_meet = false;
    three.until("another life", |three| three.joined[1].unwrap().life == 4);
    three.both_ready(8);
}

/// A session that ends, or that carries an invalid message, ends all generations.
#[test]
fn end_of_a_session_ends_the_generation() {
    let mut three = Three::new(PATIENT);
    three.both_ready(7);
    three.line(A).send(b"nonsense").unwrap();
    three.until("both broken", |three| MEMBERS.iter().all(|host| three.at(*host).state() == QpState::Error));
    let said = MEMBERS
        .iter()
        .filter(|host| three.at(**host).notes.iter().any(|note| note.contains("does not answer like a switch")));
    assert_eq!(said.collect::<Vec<_>>().len(), 1);
    MEMBERS.iter().for_each(|host| reset(three.at(*host)));
    three.until("joined", |three| three.joined.iter().all(|joined| joined.unwrap().life == 2));
    // A host that waits for its generation when the session ends joins with another life: the switch may have announced
    // the old life to other hosts.
    three.lines.clear();
    three.until("joined", |three| three.joined.iter().all(|joined| joined.unwrap().life == 3));
    three.both_ready(8);
}

#[test]
fn invalid_sets_are_refused() {
    let mut three = Three::new(PATIENT);
    let host = three.at(A);
    let join = |host: &mut Host, number, members: &[ProcessId]| {
        let spec = SetSpec { number, members };
        SwitchSets::join(&mut host.cm, &mut host.transport, (spec, CONFIG), 64, |_, _, _, _| Ok(()))
    };
    let odd = |number, members| Err(ConnectError::Set { number, members });
    assert_eq!(join(host, 0, &MEMBERS), odd(0, 2), "the set exists already");
    assert_eq!(join(host, 2, &MEMBERS), odd(2, 2), "the sender is not a member");
    assert_eq!(join(host, 1, &[B]), odd(1, 1));
    assert_eq!(join(host, 1, &[B, B, A]), odd(1, 3));
    assert_eq!(join(host, 1, &[B, ProcessId(9)]), Err(ConnectError::UnknownProcess(ProcessId(9))));
    assert_eq!(join(host, 1, &[B, A]), Ok(QpId(1)));
    assert!(host.cm.set_of(QpId(1)).is_some() && host.cm.set_of(QpId(2)).is_none());
    assert_eq!(host.cm.peer(QpId(1)), Some(A));
}

/// Joining fails, so the process writes to each peer separately. The operator who configured a switch sees the reason.
#[test]
fn set_with_too_many_members_is_refused_and_reported_once() {
    let mut three = Three::new(PATIENT);
    let many: Vec<_> = (0..=SetSpec::MOST as u16).map(ProcessId).collect();
    let Host { cm, transport, .. } = three.at(A);
    for number in [0, 1] {
        let made =
            SwitchSets::join(cm, transport, (SetSpec { number, members: &many }, CONFIG), 4096, |_, _, _, _| Ok(()));
        assert_eq!(made, Err(ConnectError::Set { number, members: 33 }));
    }
    three.pass(Duration::from_millis(20));
    let said = |notes: &[String]| notes.iter().filter(|note| note.contains("a set has 32 processes at most")).count();
    assert_eq!(said(&three.at(A).notes), 1, "{:?}", three.at(A).notes);
}
