//! A client whose client id another process acquires while the client runs.
//!
//! On one host each client id is locked, so the hello of the other process is sent through the client's queue pairs.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use stentor::runtime::{Client as Sender, ClientId, FabricDiagnostics};
use stentor::{CallError, ClientErrorKind, Cluster, NodeHandle, OnSender, Outcome, Refused, Why};
use stentor_fabric::{QpId, Source, Verb, WorkRequest};
use stentor_multicast::forged_hello;
use stentor_testutil::TempDir;

use crate::common;
use crate::log::{Log, until};

const NAMES: [&str; 3] = ["g1.1", "g1.2", "g1.3"];
/// The client's queue pairs, one to each member.
const QUEUE_PAIRS: std::ops::Range<u32> = 0..3;

/// Sends the hello of another process with the client's id to each member.
struct GreetInItsPlace(Vec<u8>);

impl OnSender for GreetInItsPlace {
    type Output = ();

    fn on<F: FabricDiagnostics>(self, sender: &mut Sender<F>) {
        let fabric = sender.fabric_mut();
        for qp in QUEUE_PAIRS.map(QpId) {
            let verb = Verb::Send { source: Source::Inline(&self.0), imm: None };
            let request = WorkRequest { id: u64::MAX, verb, signalled: false };
            fabric.post(qp, request).expect("the client is connected");
        }
        fabric.flush();
    }
}

/// Breaks the connections with all members. The client connects again.
struct Disconnect;

impl OnSender for Disconnect {
    type Output = ();

    fn on<F: FabricDiagnostics>(self, sender: &mut Sender<F>) {
        QUEUE_PAIRS.map(QpId).for_each(|qp| sender.fabric_mut().disconnect(qp).expect("the queue pair was created"));
    }
}

#[test]
fn client_whose_id_another_process_acquires_ends_and_its_session_can_be_resumed() {
    let directory = TempDir::new();
    let plan = Arc::new(common::cluster("superseded", 1, "", ""));
    let cluster = Cluster::of(Arc::clone(&plan)).in_directory(&directory);
    let nodes: Vec<NodeHandle<Log>> =
        NAMES.map(|name| cluster.node(name, Log::default()).spawn().expect("the node starts")).into();
    let group = cluster.group("g1").expect("the group is in the configuration");
    let mut first = cluster.client().connect_local().expect("the client connects");
    first.submit(group, b"one").expect("the command is sent");
    let mut applied = false;
    while !applied {
        let _ =
            first.turn(|_, outcome| applied = matches!(outcome, Outcome::Applied(_))).expect("the client still runs");
    }

    let me = plan.topology().client_process(ClientId(0));
    let (hello, _) = forged_hello(me, 99, plan.config().salt());
    first.on_sender(GreetInItsPlace(hello.iter().flat_map(|word| word.to_le_bytes()).collect()));
    // A node answers between two rounds. After several answers it has completed a round, and has read the hello.
    for node in nodes.iter().cycle().take(3 * nodes.len()) {
        node.status().expect("the node runs");
        thread::sleep(Duration::from_millis(10));
    }
    let lost = first.submit(group, b"two").expect("the client has not noticed its successor");
    let ticket = first.ticket(lost).expect("the command is not settled");
    first.on_sender(Disconnect);
    let mut told = Vec::new();
    let error = until("its end", || {
        first.turn(|request, outcome| told.push((request, matches!(outcome, Outcome::Unknown(Why::Superseded))))).err()
    });
    assert_eq!(told, [(lost, true)]);
    assert_eq!(error.kind(), ClientErrorKind::Superseded);
    let text = error.to_string();
    assert!(text.contains("another process has acquired the client id"), "{text}");
    assert!(text.contains("connect again, and resume the session"), "{text}");

    let second = cluster.client().session(first.leave()).connect().expect("the client resumes the session");
    let resolved = second.resolve(&ticket).wait();
    assert!(matches!(resolved, Err(CallError::NotApplied(Refused::Closed))), "{resolved:?}");
    second.call(group, b"three").wait().expect("the command is applied");
    let log = until("the command at the first node", || {
        let log = nodes[0].inspect(|log| log.0.clone()).expect("the node runs");
        (log.len() == 2).then_some(log)
    });
    assert_eq!(log, [b"one".to_vec(), b"three".to_vec()]);
}
