//! A whole cluster on RoCEv2 in user space, on a good network and on a lossy one. Each process is a thread of this test
//! with its own address. The histories are checked.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use stentor::runtime::{
    Application, ClientId, ClusterRuntime, Delivered, GroupId, Housekeeper, Recorder, Stop, WaitMode, client_round,
    now_ns, run_member,
};
use stentor_fabric::{Backoff, ProcessId};
use stentor_fabric_roce::driver::Chances;
use stentor_fabric_roce::{NetConfig, RoceConfig, RoceFabric};

use crate::common::cluster;

const PROCESSES: u16 = 6;

/// The cluster, and the addresses of its processes.
struct Stage {
    plan: ClusterRuntime,
    addresses: Vec<Option<SocketAddr>>,
    chances: Chances,
}

impl Stage {
    fn new(name: &str, net: u8, chances: Chances) -> Stage {
        let plan = cluster(name, 2, "", "clients = 2");
        let second = 64 + (std::process::id() % 128) as u8;
        let address = |n| SocketAddr::new(Ipv4Addr::new(127, second, net, n as u8 + 1).into(), 4791);
        let addresses = (0..PROCESSES).map(|n| Some(address(n))).collect();
        Stage { plan, addresses, chances }
    }

    fn fabric(&self, me: ProcessId) -> RoceFabric {
        let net = NetConfig::new(self.plan.config().cluster(), me, self.addresses.clone());
        let net = net.key(*b"a key of this test").fingerprint(self.plan.config().fingerprint());
        let config = RoceConfig { chances: self.chances, seed: me.0.into(), ..RoceConfig::default() };
        RoceFabric::start(net, config).expect("the fabric starts")
    }
}

#[derive(Clone, Default)]
struct Sink(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Records the deliveries of a member. A member that is far behind may restore another member's state instead of
/// delivering.
struct Told<'a> {
    name: &'a str,
    recorder: Recorder<Sink>,
    /// Number of the last delivery that was made, or that the restored state contains.
    number: u64,
    /// `true` if the member restored a state that was ahead of its own.
    restored: bool,
    /// Number of deliveries of all members together.
    delivered: &'a AtomicU64,
}

impl Application for Told<'_> {
    fn deliver(&mut self, message: &Delivered<'_>) {
        self.recorder.deliver(now_ns(), message).expect("the recorder can write");
        self.number = message.number;
        self.delivered.fetch_add(1, Ordering::Relaxed);
    }

    fn restore(&mut self, number: u64, _: &[u8]) {
        println!("{} takes over the state after {number}, after {} deliveries", self.name, self.number);
        self.recorder.recover(now_ns(), number).expect("the recorder can write");
        self.restored |= number > self.number;
        self.delivered.fetch_add(number - self.number, Ordering::Relaxed);
        self.number = number;
    }
}

/// Runs a member. Returns the number of packets that the lossy network dropped.
fn member(stage: &Stage, me: ProcessId, stop: &Stop, delivered: &AtomicU64, sink: Sink) -> u64 {
    let mut member = stage.plan.member_on(stage.fabric(me), me).expect("the member starts");
    let recorder = Recorder::new(&stage.plan, me, sink).expect("the recorder can write");
    let mut told = Told { name: stage.plan.name(me), recorder, number: 0, restored: false, delivered };
    run_member(&mut member, WaitMode::ADAPTIVE, stop, &mut told, |_, _, _| ()).expect("the member runs");
    told.recorder.complete().expect("the recorder can write");
    let replica = member.replica();
    // These figures explain a failure.
    println!(
        "{}: {} delivered, {} undelivered, ballot {:?}, {:?}",
        told.name,
        replica.delivered(),
        replica.undelivered().count(),
        replica.ballot(),
        member.counts()
    );
    // A member that falls behind a majority because of lost packets rejects messages beyond its window, and restores a
    // state.
    assert!(member.counts().rejected == 0 || told.restored && stage.chances.drop > 0.0, "{}", told.name);
    member.fabric_mut().device().injected()[0]
}

fn client(stage: &Stage, place: ClientId, messages: u64, sink: Sink) {
    let me = stage.plan.topology().client_process(place);
    let mut client = stage.plan.client_on(stage.fabric(me), place).expect("the client starts");
    let mut recorder = Recorder::new(&stage.plan, me, sink).expect("the recorder can write");
    let (mut backoff, mut housekeeper) = (Backoff::new(WaitMode::ADAPTIVE), Housekeeper::default());
    let sets = [vec![GroupId(0)], vec![GroupId(1)], vec![GroupId(0), GroupId(1)]];
    let deadline = Instant::now() + Duration::from_secs(100);
    let mut sent = 0;
    let mut begun = false;
    while !begun || client.delivered_up_to() < messages || !client.is_delivered_everywhere() {
        let mut worked = false;
        begun = begun || client.reaches_all(&[GroupId(0), GroupId(1)]);
        while begun && sent < messages {
            let payload = vec![sent as u8; (sent * 37 % 300) as usize];
            let to = &sets[sent as usize % 3];
            let before = now_ns();
            let Ok(submitted) = client.submit(to, &payload, sent + 64 > messages) else { break };
            recorder.multicast(before, submitted.id, to, &payload).expect("the recorder can write");
            sent += 1;
            worked = true;
        }
        client_round(&mut client, &mut backoff, &mut housekeeper, worked).expect("the client waits without an error");
        assert!(Instant::now() < deadline, "stuck: {sent} sent, {} delivered", client.delivered_up_to());
    }
    recorder.complete().expect("the recorder can write");
}

fn run(stage: &Stage, messages: u64) -> u64 {
    let (stop, delivered) = (Stop::default(), AtomicU64::new(0));
    // Each client sends its messages in turn to the first group (3 deliveries), to the second (1) and to both (4). The
    // remaining one or two messages follow the same sequence.
    let expected = 2 * (messages / 3 * 8 + [0, 3, 4][messages as usize % 3]);
    let sinks: Vec<Sink> = (0..PROCESSES).map(|_| Sink::default()).collect();
    let lost = thread::scope(|scope| {
        let members: Vec<_> = (0..4_u16)
            .map(|me| {
                let (stop, delivered, sink) = (&stop, &delivered, sinks[usize::from(me)].clone());
                scope.spawn(move || member(stage, ProcessId(me), stop, delivered, sink))
            })
            .collect();
        let clients: Vec<_> = (0..2_u16)
            .map(|place| {
                let sink = sinks[4 + usize::from(place)].clone();
                scope.spawn(move || client(stage, ClientId(place), messages, sink))
            })
            .collect();
        let finished: Vec<_> = clients.into_iter().map(thread::ScopedJoinHandle::join).collect();
        // A client waits for a majority only, so the other members are waited for here.
        let deadline = Instant::now() + Duration::from_secs(30);
        while delivered.load(Ordering::Relaxed) < expected && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        stop.stop();
        assert!(finished.iter().all(Result::is_ok), "a client did not finish");
        members.into_iter().map(|member| member.join().expect("the member ends")).sum()
    });
    let histories: Vec<Vec<u8>> = sinks.iter().map(|sink| sink.0.lock().unwrap().clone()).collect();
    let inputs = histories.iter().enumerate().map(|(n, bytes)| (format!("history {n}"), bytes.as_slice()));
    let report = stentor_checker::check_inputs(inputs, true).expect("histories are well-formed");
    assert!(report.ok(), "{:?}", report.counter_example);
    assert_eq!(report.counts.messages, 2 * messages);
    lost
}

#[test]
fn two_clients_and_four_members_on_a_good_network() {
    assert_eq!(run(&Stage::new("good", 201, Chances::default()), 1000), 0);
}

#[test]
fn two_clients_and_four_members_with_one_percent_of_packets_lost() {
    let chances = Chances { drop: 0.01, ..Chances::default() };
    let lost = run(&Stage::new("lossy", 202, chances), 300);
    assert!(lost > 0, "nothing was lost");
}
