//! Two processes that connect, with a transport whose results each test controls.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use stentor_fabric::{
    Access, ConnectError, Event, ProcessId, Purpose, QpConfig, QpId, QpKind, QpState, Service, Status,
};
use stentor_fabric_net::{ConnectionManager, End, NetConfig, NoSets, Pair, RemoteKey, Transport};

const A: ProcessId = ProcessId(0);
const B: ProcessId = ProcessId(1);
const SERVICE: Service = Service(7);
const CONFIG: QpConfig = QpConfig::reliable(4, 4);

/// A transport that records its calls.
#[derive(Default)]
struct Script {
    log: Vec<String>,
    lives: u32,
    opaque: bool,
    refuses: Option<&'static str>,
    broken: Vec<QpId>,
    granted: Vec<(ProcessId, u64)>,
}

impl Script {
    fn obey(&mut self, what: &'static str) -> Result<(), String> {
        self.log.push(what.to_owned());
        if self.refuses == Some(what) { Err(format!("no {what} today")) } else { Ok(()) }
    }
}

impl Transport for Script {
    fn begin(&mut self, _: QpId) -> Result<End, String> {
        self.obey("begin")?;
        self.lives += 1;
        let gid = Ipv4Addr::LOCALHOST.to_ipv6_mapped();
        let pair =
            Pair { number: self.lives, psn: 5, mtu: 1024, gid, lid: 0, reads: 16, runs: false, identified: false };
        Ok(if self.opaque { End::Opaque(vec![self.lives as u8; 100]) } else { End::QueuePair(pair) })
    }

    fn meet(&mut self, _: QpId, ours: &End, theirs: &End) -> Result<(), String> {
        if matches!((ours, theirs), (End::QueuePair(_), End::Opaque(_)) | (End::Opaque(_), End::QueuePair(_))) {
            return Err("another kind".to_owned());
        }
        self.obey("meet")
    }

    fn ready(&mut self, _: QpId, _: &End, _: &End) -> Result<(), String> {
        self.obey("ready")
    }

    fn drive(&mut self) {}

    fn fail(&mut self, _: QpId, status: Status) {
        self.log.push(format!("fail {status:?}"));
    }

    fn next_broken(&mut self) -> Option<QpId> {
        self.broken.pop()
    }

    fn withdrawn(&mut self, _: QpId) {
        self.log.push("withdrawn".to_owned());
    }

    fn granted(&mut self, peer: ProcessId, key: u64) {
        self.granted.push((peer, key));
    }
}

struct Process {
    cm: ConnectionManager<NoSets<Script>>,
    transport: Script,
    events: Vec<Event>,
    refusals: Vec<String>,
}

impl Process {
    fn pump(&mut self) {
        self.cm.pump(&mut self.transport);
        self.events.extend(std::iter::from_fn(|| self.cm.next_event()));
        let refusals = std::iter::from_fn(|| self.cm.next_refusal());
        self.refusals.extend(refusals.map(|refusal| refusal.to_string()));
    }

    fn connect(&mut self, peer: ProcessId, config: QpConfig) -> Result<QpId, ConnectError> {
        self.cm.connect(&mut self.transport, (peer, SERVICE), config, |_, _| Ok(()))
    }
}

/// Two processes and their configurations.
struct Pairing {
    fabrics: [&'static str; 2],
    configs: [NetConfig; 2],
    processes: [Option<Process>; 2],
}

impl Pairing {
    fn new(change: impl Fn(&mut NetConfig)) -> Pairing {
        Pairing::of(["test"; 2], change)
    }

    fn of(fabrics: [&'static str; 2], change: impl Fn(&mut NetConfig)) -> Pairing {
        static NEXT: AtomicU16 = AtomicU16::new(1);
        let [high, low] = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let second = (std::process::id() % 200) as u8;
        let address = |n: u8| Some(SocketAddr::new(Ipv4Addr::new(127, 32 + second / 8, low, high + n).into(), 4790));
        let config = |me| {
            let mut config = NetConfig::new("c", me, vec![address(1), address(2)]).key(*b"key").fingerprint(1);
            change(&mut config);
            config
        };
        let mut pairing = Pairing { fabrics, configs: [A, B].map(config), processes: [None, None] };
        [A, B].into_iter().for_each(|process| pairing.start(process));
        pairing
    }

    fn start(&mut self, process: ProcessId) {
        let n = process.index();
        let cm =
            ConnectionManager::start(self.fabrics[n].to_owned(), self.configs[n].clone(), NoSets::default()).unwrap();
        let (transport, events, refusals) = (Script::default(), Vec::new(), Vec::new());
        self.processes[process.index()] = Some(Process { cm, transport, events, refusals });
    }

    fn at(&mut self, process: ProcessId) -> &mut Process {
        self.processes[process.index()].as_mut().unwrap()
    }

    fn until(&mut self, what: &str, mut happened: impl FnMut(&mut Self) -> bool) {
        let since = Instant::now();
        while !happened(self) {
            self.processes.iter_mut().flatten().for_each(Process::pump);
            assert!(since.elapsed() < Duration::from_secs(10), "still not: {what}");
            std::thread::yield_now();
        }
    }

    fn refused(&mut self, words: &str) {
        let heard = |process: &Process| process.refusals.iter().any(|refusal| refusal.contains(words));
        self.until(words, |pairing| pairing.processes.iter().flatten().any(heard));
    }
}

fn connected(event: &Event) -> bool {
    matches!(event, Event::Connected { .. })
}

#[test]
fn ends_of_either_kind_meet_and_a_broken_one_begins_its_next_life() {
    for opaque in [false, true] {
        let mut pairing = Pairing::new(|_| {});
        for process in [A, B] {
            pairing.at(process).transport.opaque = opaque;
        }
        let place = RemoteKey { key: 3 << 40 | 9, base: 0x7000_0000_0000 };
        pairing.at(B).cm.grant(A, Purpose(4), place, 640, Access::Write);
        let qp = pairing.at(A).connect(B, CONFIG).unwrap();
        pairing.at(B).connect(A, CONFIG).unwrap();
        pairing.until("connected", |both| [A, B].iter().all(|p| both.at(*p).events.iter().any(connected)));
        let region = pairing.at(A).cm.remotes().resolve(B, Purpose(4)).expect("granted before");
        assert_eq!((pairing.at(A).cm.remotes().place(&region), region.bytes), (place, 640));
        assert_eq!(pairing.at(A).transport.log, ["begin", "meet", "ready"]);
        // A's end breaks by itself. B's end breaks a little later, and neither begins a new life without a reset.
        pairing.at(A).transport.broken.push(qp);
        let broken = |pairing: &mut Pairing| {
            [A, B].iter().all(|p| matches!(pairing.at(*p).events.last(), Some(Event::Disconnected { .. })))
        };
        pairing.until("both broken", broken);
        assert_eq!(pairing.at(B).transport.log.last().unwrap(), "fail RetryExceeded");
        for process in [B, A] {
            let own = pairing.at(process);
            own.cm.reset(&mut own.transport, QpId(0)).unwrap();
        }
        pairing.until("again", |both| [A, B].iter().all(|p| both.at(*p).events.last().is_some_and(connected)));
        pairing.at(B).cm.revoke(A, Purpose(4), place.key);
        pairing.until("revoked", |both| both.at(A).cm.remotes().resolve(B, Purpose(4)).is_none());
        // The peer ends and restarts.
        pairing.processes[1] = None;
        pairing.until("lost", |both| matches!(both.at(A).events.last(), Some(Event::Disconnected { .. })));
        pairing.start(B);
        pairing.at(B).transport.opaque = opaque;
        let own = pairing.at(A);
        own.cm.reset(&mut own.transport, qp).unwrap();
        pairing.at(B).connect(A, CONFIG).unwrap();
        pairing.until("the next life", |both| both.at(A).events.last().is_some_and(connected));
    }
}

/// A device that chooses keys may use a revoked key again, for the same region or another one.
#[test]
fn every_grant_is_reported_to_the_transport() {
    let mut pairing = Pairing::new(|_| {});
    let grant = |pairing: &mut Pairing, purpose, base| {
        pairing.at(B).cm.grant(A, Purpose(purpose), RemoteKey { key: 9, base }, 64, Access::Write);
        pairing.until("granted", |both| both.at(A).cm.remotes().resolve(B, Purpose(purpose)).is_some());
    };
    grant(&mut pairing, 4, 0x1000);
    pairing.at(B).cm.revoke(A, Purpose(4), 9);
    grant(&mut pairing, 5, 0x2000);
    assert_eq!(pairing.at(A).transport.granted, [(B, 9); 2]);
}

/// Packets of a closed end may arrive after the peer's next grant, as long as this end is not broken.
#[test]
fn transport_hears_of_a_closed_end_before_later_grants() {
    let mut pairing = Pairing::new(|_| {});
    let qp = pairing.at(A).connect(B, CONFIG).unwrap();
    pairing.at(B).connect(A, CONFIG).unwrap();
    pairing.until("connected", |both| [A, B].iter().all(|p| both.at(*p).events.iter().any(connected)));
    let own = pairing.at(A);
    own.transport.broken.push(qp);
    own.cm.pump(&mut own.transport);
    own.cm.grant(B, Purpose(4), RemoteKey { key: 9, base: 0x1000 }, 64, Access::Write);
    pairing.until("granted", |both| !both.at(B).transport.granted.is_empty());
    assert_eq!(pairing.at(B).transport.log[..4], ["begin", "meet", "ready", "withdrawn"]);
    pairing.until("broken", |both| both.at(B).cm.state(QpId(0)) == Some(QpState::Error));
    assert_eq!(pairing.at(B).transport.log[4..], ["fail RetryExceeded"]);
}

#[test]
fn other_fabrics_other_clusters_and_other_keys_are_refused_with_a_reason() {
    Pairing::of(["roce", "ofi"], |_| {}).refused("it has fabric ofi, this process has roce: start both with the same");
    Pairing::new(|config| config.cluster = config.me.to_string()).refused("it has cluster p1, this process has p0");
    Pairing::new(|config| config.version = config.me.0).refused("it has version 1, this process has 0");
    Pairing::new(|config| config.fingerprint = config.me.0.into()).refused(
        "it has configuration 0000000000000001, this process has 0000000000000000: some of these settings differ: ",
    );
    Pairing::new(|config| config.key = vec![config.me.0 as u8]).refused("it has another key than this process");
}

/// A process that connects from another address and only claims to be a peer has proved nothing, so the refusal does
/// not name it as that peer.
#[test]
fn a_claimed_identity_is_distinguished_from_a_known_address() {
    let elsewhere = SocketAddr::new(Ipv4Addr::new(127, 0, 77, 1 + (std::process::id() % 200) as u8).into(), 4790);
    let strange = |config: &mut NetConfig, moves: bool| {
        if config.me == B {
            config.key = b"yek".to_vec();
            config.addresses[1] = if moves { Some(elsewhere) } else { config.addresses[1] };
        }
    };
    let mut stranger = Pairing::new(|config| strange(config, true));
    stranger.refused(&format!("a process at {} that calls itself p1: it has another key", elsewhere.ip()));
    let mut peer = Pairing::new(|config| strange(config, false));
    let at = peer.configs[0].addresses[1].unwrap();
    peer.refused(&format!("p1 at {at}: it has another key"));
}

#[test]
fn verbs_and_roce_connect() {
    let mut pairing = Pairing::of(["roce", "verbs"], |_| {});
    pairing.until("linked", |both| both.at(A).cm.is_linked(B) && both.at(B).cm.is_linked(A));
}

#[test]
fn ends_that_do_not_fit_are_refused_and_wait() {
    let mut pairing = Pairing::new(|_| {});
    pairing.at(A).transport.opaque = true;
    pairing.at(A).connect(B, CONFIG).unwrap();
    pairing.at(B).connect(A, CONFIG).unwrap();
    pairing.refused("offered a queue pair that cannot be connected: another kind");
    let mut pairing = Pairing::new(|_| {});
    pairing.at(A).connect(B, QpConfig { kind: QpKind::Unreliable, ..CONFIG }).unwrap();
    pairing.at(B).connect(A, CONFIG).unwrap();
    pairing.refused("of different kinds: one is unreliable");
    assert_eq!(pairing.at(A).cm.state(QpId(0)), Some(QpState::Connecting));
    // An end that cannot become ready after it was connected breaks at both ends, and is reported.
    let mut pairing = Pairing::new(|_| {});
    pairing.at(A).transport.refuses = Some("ready");
    pairing.at(A).connect(B, CONFIG).unwrap();
    pairing.at(B).connect(A, CONFIG).unwrap();
    pairing.refused("no ready today");
    pairing.until("both broken", |both| [A, B].iter().all(|p| both.at(*p).cm.state(QpId(0)) == Some(QpState::Error)));
}

#[test]
fn a_failed_meet_is_retried_and_reported_once() {
    let mut pairing = Pairing::new(|_| {});
    pairing.at(A).transport.refuses = Some("meet");
    pairing.at(A).connect(B, CONFIG).unwrap();
    pairing.at(B).connect(A, CONFIG).unwrap();
    let tries = |process: &mut Process| process.transport.log.iter().filter(|what| *what == "meet").count();
    pairing.until("three tries", |both| tries(both.at(A)) == 3);
    let said = pairing.at(A).refusals.iter().filter(|refusal| refusal.contains("no meet today")).count();
    assert_eq!(said, 1);
    pairing.at(A).transport.refuses = None;
    pairing.until("connected", |both| [A, B].iter().all(|p| both.at(*p).events.iter().any(connected)));
    let met = tries(pairing.at(A));
    std::thread::sleep(Duration::from_millis(250));
    pairing.at(A).pump();
    assert_eq!(tries(pairing.at(A)), met, "not again");
}

#[test]
fn a_new_life_forgets_that_the_peer_has_met_the_last_one() {
    let mut pairing = Pairing::new(|_| {});
    pairing.at(A).transport.refuses = Some("meet");
    let qp = pairing.at(A).connect(B, CONFIG).unwrap();
    pairing.at(B).connect(A, CONFIG).unwrap();
    let tried = |own: &Process| own.transport.log.iter().any(|what| what == "meet");
    pairing.until("B has met A", |both| both.processes.iter().flatten().all(tried));
    let since = Instant::now();
    pairing.until("A has heard of it", |_| since.elapsed() > Duration::from_millis(20));
    // B's end breaks, and the call `meet` fails in its next life. At A, `meet` now succeeds, but A must wait until B is
    // ready.
    let own = pairing.at(B);
    own.transport.broken.push(qp);
    own.transport.refuses = Some("meet");
    own.cm.pump(&mut own.transport);
    own.cm.reset(&mut own.transport, qp).unwrap();
    let tried = pairing.at(A).transport.log.len();
    pairing.at(A).transport.refuses = None;
    pairing.until("A has met B", |both| both.at(A).transport.log.len() > tried);
    let since = Instant::now();
    pairing.until("a while", |_| since.elapsed() > Duration::from_millis(250));
    assert!(!pairing.at(A).events.iter().any(connected), "{:?}", pairing.at(A).transport.log);
    pairing.at(B).transport.refuses = None;
    pairing.until("connected", |both| [A, B].iter().all(|p| both.at(*p).events.iter().any(connected)));
}

impl Pairing {
    /// Resets both ends whenever they break, until they stay connected.
    fn settle(&mut self) {
        let mut since = None;
        self.until("connected for good", |both| {
            let mut ready = true;
            for process in both.processes.iter_mut().flatten() {
                let state = process.cm.state(QpId(0));
                ready &= state == Some(QpState::Ready);
                if state == Some(QpState::Error) {
                    process.cm.reset(&mut process.transport, QpId(0)).unwrap();
                }
            }
            since = since.filter(|_| ready).or_else(|| ready.then(Instant::now));
            since.is_some_and(|since| since.elapsed() > Duration::from_millis(200))
        });
    }
}

/// A new life waits for a new offer of the peer. If it connected to an end that has met the last life, each end would
/// connect to one that the other has abandoned, and break the other's new connection, for ever.
#[test]
fn a_life_does_not_meet_an_end_that_has_met_the_last_one() {
    let mut pairing = Pairing::new(|_| {});
    pairing.until("linked", |both| both.at(A).cm.is_linked(B) && both.at(B).cm.is_linked(A));
    let qp = pairing.at(A).connect(B, CONFIG).unwrap();
    pairing.at(B).connect(A, CONFIG).unwrap();
    // B meets A's first life, which ends before A receives B's offer.
    let since = Instant::now();
    while !pairing.at(B).transport.log.iter().any(|what| what == "meet") {
        pairing.at(B).pump();
        assert!(since.elapsed() < Duration::from_secs(10));
    }
    let own = pairing.at(A);
    own.transport.broken.push(qp);
    own.cm.reset(&mut own.transport, qp).unwrap();
    pairing.settle();
}

/// A's offer arrives before B has an end for the service, and A's process ends.
#[test]
fn an_offer_received_together_with_the_loss_of_its_process_is_not_met() {
    let mut pairing = Pairing::new(|_| {});
    pairing.until("linked", |both| both.at(A).cm.is_linked(B) && both.at(B).cm.is_linked(A));
    pairing.at(A).connect(B, CONFIG).unwrap();
    pairing.at(A).pump();
    pairing.processes[A.index()] = None;
    let since = Instant::now();
    while pairing.at(B).cm.is_linked(A) {
        pairing.at(B).pump();
        assert!(since.elapsed() < Duration::from_secs(10));
    }
    pairing.at(B).connect(A, CONFIG).unwrap();
    pairing.at(B).pump();
    assert!(!pairing.at(B).transport.log.iter().any(|what| what == "meet"), "{:?}", pairing.at(B).transport.log);
}

/// B receives the last messages of the dead process and its loss at once, while it is connecting to the new process.
#[test]
fn a_stalled_process_connects_after_the_peer_broke_died_and_restarted() {
    let mut pairing = Pairing::new(|_| {});
    let qp = pairing.at(A).connect(B, CONFIG).unwrap();
    pairing.at(B).connect(A, CONFIG).unwrap();
    pairing.settle();
    let own = pairing.at(A);
    own.transport.broken.push(qp);
    own.cm.reset(&mut own.transport, qp).unwrap();
    own.pump();
    pairing.processes[A.index()] = None;
    pairing.start(A);
    pairing.at(A).connect(B, CONFIG).unwrap();
    pairing.settle();
}

#[test]
fn a_life_that_does_not_begin_leaves_nothing() {
    let mut pairing = Pairing::new(|_| {});
    pairing.at(A).transport.refuses = Some("begin");
    let error = pairing.at(A).connect(B, CONFIG).unwrap_err();
    assert_eq!(error, ConnectError::System { peer: B, reason: "no begin today".into() });
    pairing.at(A).transport.refuses = None;
    assert_eq!(pairing.at(A).connect(B, CONFIG), Ok(QpId(0)));
    assert_eq!(pairing.at(A).connect(B, CONFIG), Err(ConnectError::Duplicate { peer: B, service: SERVICE }));
    assert_eq!(pairing.at(A).connect(ProcessId(9), CONFIG), Err(ConnectError::UnknownProcess(ProcessId(9))));
    // A broken end whose next life does not begin stays broken.
    let own = pairing.at(A);
    own.transport.broken.push(QpId(0));
    own.transport.refuses = Some("begin");
    assert!(matches!(own.cm.reset(&mut own.transport, QpId(0)), Err(ConnectError::System { .. })));
    assert_eq!(own.cm.state(QpId(0)), Some(QpState::Error));
    let again = own.cm.reset(&mut own.transport, QpId(0));
    assert!(matches!(again, Err(ConnectError::System { .. })), "reset again, refused again");
    own.pump();
    assert_eq!(own.events.len(), 1, "it broke once: {:?}", own.events);
    own.transport.refuses = None;
    assert_eq!(own.cm.reset(&mut own.transport, QpId(0)), Ok(()));
    // A life that has begun after failures works normally.
    pairing.at(B).connect(A, CONFIG).unwrap();
    pairing.until("connected", |both| [A, B].iter().all(|p| both.at(*p).events.iter().any(connected)));
    assert_eq!(pairing.at(A).events.len(), 2);
}

#[test]
fn a_process_connects_to_itself() {
    let mut pairing = Pairing::new(|_| {});
    let own = pairing.at(A);
    own.connect(A, CONFIG).unwrap();
    own.cm.grant(A, Purpose(1), RemoteKey { key: 4, base: 8 }, 64, Access::Read);
    own.pump();
    assert_eq!(own.events, [Event::Connected { qp: QpId(0), peer: A }]);
    assert!(own.cm.remotes().resolve(A, Purpose(1)).is_some());
}
