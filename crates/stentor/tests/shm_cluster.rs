//! A whole cluster on shared memory, each process a thread of this test, its histories checked.

mod common;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use stentor::runtime::{
    ClientId, ClusterRuntime, GroupId, Housekeeper, Recorder, Stop, WaitMode, client_round, now_ns, run_member,
    stateless,
};
use stentor_fabric::{Backoff, ProcessId};
use stentor_testutil::TempDir;

use common::cluster;

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

fn member(plan: &ClusterRuntime, me: ProcessId, directory: PathBuf, stop: &Stop, sink: Sink) {
    let mut member = plan.member(me, directory).expect("starts");
    let mut recorder = Recorder::new(plan, me, sink).expect("records");
    let mut last = Duration::ZERO;
    let deliver = |delivered: &stentor::runtime::Delivered<'_>| {
        recorder.deliver(now_ns(), delivered).expect("records");
        last = Duration::from_nanos(delivered.timestamp.time);
    };
    run_member(&mut member, WaitMode::ADAPTIVE, stop, &mut stateless(deliver), |_, _, _| ()).expect("runs");
    recorder.complete().expect("records");
    assert_eq!(member.counts().rejected, 0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("it is after 1970");
    let lately = now.saturating_sub(Duration::from_secs(120))..now + Duration::from_secs(1);
    assert!(lately.contains(&last), "the times of groups are physical: {last:?}, and it is {now:?}");
}

fn client(plan: &ClusterRuntime, place: ClientId, directory: PathBuf, messages: u64, sink: Sink) {
    let me = plan.topology().client_process(place);
    let mut client = plan.client(place, directory).expect("starts");
    let mut recorder = Recorder::new(plan, me, sink).expect("records");
    let (mut backoff, mut housekeeper) = (Backoff::new(WaitMode::ADAPTIVE), Housekeeper::default());
    let sets = [vec![GroupId(0)], vec![GroupId(1)], vec![GroupId(0), GroupId(1)]];
    let deadline = Instant::now() + Duration::from_secs(60);
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
            recorder.multicast(before, submitted.id, to, &payload).expect("records");
            sent += 1;
            worked = true;
        }
        client_round(&mut client, &mut backoff, &mut housekeeper, worked).expect("waits");
        assert!(Instant::now() < deadline, "stuck: {sent} sent, {} delivered", client.delivered_up_to());
    }
    recorder.complete().expect("records");
}

#[test]
fn two_clients_and_four_members_deliver_everything_in_one_order() {
    let directory = TempDir::new();
    let (plan, stop) = (cluster("threads", 2, "", "clients = 2"), Stop::default());
    let sinks: Vec<Sink> = (0..6).map(|_| Sink::default()).collect();
    thread::scope(|scope| {
        for me in 0..4_u16 {
            let (plan, stop, path, sink) = (&plan, &stop, directory.to_path_buf(), sinks[usize::from(me)].clone());
            scope.spawn(move || member(plan, ProcessId(me), path, stop, sink));
        }
        let clients: Vec<_> = (0..2_u16)
            .map(|place| {
                let (plan, path, sink) = (&plan, directory.to_path_buf(), sinks[4 + usize::from(place)].clone());
                scope.spawn(move || client(plan, ClientId(place), path, 3000, sink))
            })
            .collect();
        for client in clients {
            client.join().expect("the client finishes");
        }
        stop.stop();
    });
    let histories: Vec<Vec<u8>> = sinks.iter().map(|sink| sink.0.lock().unwrap().clone()).collect();
    let inputs = histories.iter().enumerate().map(|(n, bytes)| (format!("history {n}"), bytes.as_slice()));
    let report = stentor_checker::check_inputs(inputs, true).expect("histories are well-formed");
    assert!(report.ok(), "{:?}", report.counter_example);
    assert_eq!(report.counts.messages, 6000);
}
