//! A whole cluster on shared memory. Each process is a thread of this test. The histories are checked.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use stentor::runtime::{
    ClientId, ClusterRuntime, Delivered, GroupId, Housekeeper, RecordSent, Recorder, Stop, WaitMode, client_round,
    now_ns, run_member, stateless,
};
use stentor_fabric::{Backoff, ProcessId};
use stentor_testutil::TempDir;

use crate::common::cluster;

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
    let mut member = plan.member(me, directory).expect("the member starts");
    let mut recorder = Recorder::new(plan, me, sink).expect("the recorder can write");
    let mut last = Duration::ZERO;
    let deliver = |delivered: &stentor::runtime::Delivered<'_>| {
        recorder.deliver(now_ns(), delivered).expect("the recorder can write");
        last = Duration::from_nanos(delivered.timestamp.time);
    };
    run_member(&mut member, WaitMode::ADAPTIVE, stop, &mut stateless(deliver), |_, _, _| ()).expect("the member runs");
    recorder.complete().expect("the recorder can write");
    assert_eq!(member.counts().rejected, 0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("the time is after 1970");
    let lately = now.saturating_sub(Duration::from_secs(120))..now + Duration::from_secs(1);
    assert!(lately.contains(&last), "the times of groups are physical: {last:?}, and it is {now:?}");
}

fn client(plan: &ClusterRuntime, place: ClientId, directory: PathBuf, messages: u64, sink: Sink) {
    let me = plan.topology().client_process(place);
    let mut client = plan.client(place, directory).expect("the client starts");
    let mut recorder = Recorder::new(plan, me, sink).expect("the recorder can write");
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
            recorder.multicast(before, submitted.id, to, &payload).expect("the recorder can write");
            sent += 1;
            worked = true;
        }
        client_round(&mut client, &mut backoff, &mut housekeeper, worked).expect("the client waits without an error");
        assert!(Instant::now() < deadline, "stuck: {sent} sent, {} delivered", client.delivered_up_to());
    }
    recorder.complete().expect("the recorder can write");
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

/// Runs a member that sends each message back to its client, preceded by its own number and followed by `padding`.
fn echo(plan: &ClusterRuntime, me: ProcessId, directory: PathBuf, stop: &Stop, padding: &[u8]) {
    let mut member = plan.member(me, directory).expect("the member starts");
    let owed = RefCell::new(VecDeque::new());
    let deliver = |delivered: &Delivered<'_>| {
        owed.borrow_mut().push_back((delivered.id.client, delivered.number, delivered.payload.to_vec()));
    };
    let mut app = stateless(deliver);
    run_member(&mut member, WaitMode::BLOCK, stop, &mut app, |member, _, _| {
        let mut owed = owed.borrow_mut();
        while let Some((client, number, payload)) = owed.front()
            && member.reply(*client, &[&number.to_le_bytes(), payload, padding]) == RecordSent::Sent
        {
            owed.pop_front();
        }
    })
    .expect("the member runs");
}

/// Three members reply to each message of a client. All processes sleep when there is nothing to do.
fn all_reply(reply_bytes: usize, messages: u64, padding: &[u8]) {
    let directory = TempDir::new();
    let limits = format!("clients = 1\nreply_bytes = {reply_bytes}\nreply_ring_kib = 1");
    let (plan, stop) = (cluster("echoes", 1, "", &limits), Stop::default());
    thread::scope(|scope| {
        for me in 0..3_u16 {
            let (plan, stop, path) = (&plan, &stop, directory.to_path_buf());
            scope.spawn(move || echo(plan, ProcessId(me), path, stop, padding));
        }
        let mut client = plan.client(ClientId(0), directory.to_path_buf()).expect("the client starts");
        let (mut backoff, mut housekeeper) = (Backoff::new(WaitMode::BLOCK), Housekeeper::default());
        let payload = |number: u64| vec![number as u8; (number * 37 % 492) as usize];
        let deadline = Instant::now() + Duration::from_secs(60);
        let (mut sent, mut next, mut begun) = (0, [1_u64; 3], false);
        while next.iter().any(|next| *next <= messages) {
            begun = begun || client.reaches_all(&[GroupId(0)]);
            let mut worked = false;
            while begun && sent < messages && client.submit(&[GroupId(0)], &payload(sent + 1), false).is_ok() {
                (sent, worked) = (sent + 1, true);
            }
            client_round(&mut client, &mut backoff, &mut housekeeper, worked)
                .expect("the client waits without an error");
            while let Some(reply) = client.next_reply() {
                let next = &mut next[reply.member.index()];
                let (number, rest) = reply.bytes.split_at(8);
                let (echoed, behind) = rest.split_at(rest.len() - padding.len());
                assert_eq!((number, echoed), (&next.to_le_bytes()[..], &payload(*next)[..]));
                assert!(behind == padding);
                *next += 1;
            }
            assert!(Instant::now() < deadline, "stuck: {sent} sent, and next are {next:?}");
        }
        stop.stop();
    });
}

/// The rings hold only a few replies.
#[test]
fn every_member_replies_to_every_message_through_small_rings() {
    all_reply(500, 2_000, b"");
}

/// The longest replies that can be configured are far longer than all messages.
#[test]
fn the_longest_replies_arrive() {
    let padding: Vec<u8> = (0..(1 << 20) - 500_u32).map(|at| (at / 3) as u8).collect();
    all_reply(1 << 20, 5, &padding);
}
