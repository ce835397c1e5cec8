//! Two live processes use the same client id. The simulator has one process per id, so the second one's messages are
//! sent through the first one's queue pairs.

use stentor_fabric::{Fabric, ProcessId, QpId, Source, Verb, WorkRequest};
use stentor_fabric_sim::{Fault, NetworkModel};
use stentor_multicast::{ClientId, GroupId, SubmitError, forged_hello};

use crate::bed::{Bed, RECONNECTED_NS, SALT, SETTLED_NS, limits};

const CLIENT: ProcessId = ProcessId(3);

impl Bed {
    /// Another process with the client id sends its hello to a member. Each member has one of the client's queue pairs.
    fn greet_in_its_place(&mut self, member: u16) {
        let (hello, _) = forged_hello(CLIENT, 99, SALT);
        let source: Vec<u8> = hello.iter().flat_map(|word| word.to_le_bytes()).collect();
        let verb = Verb::Send { source: Source::Inline(&source), imm: None };
        let fabric = self.clients[0].fabric_mut();
        let request = WorkRequest { id: u64::MAX, verb, signalled: false };
        fabric.post(QpId(u32::from(member)), request).expect("a queue pair that is ready");
        fabric.flush();
        self.world.wake_at(CLIENT, self.world.now_ns());
    }
}

#[test]
fn client_that_reconnects_after_its_successor_is_superseded() {
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    let first = bed.submit(0, &[0], b"first").expect("the client is connected to all destinations");
    bed.run(SETTLED_NS);
    for member in 0..3 {
        bed.greet_in_its_place(member);
    }
    bed.run(SETTLED_NS);
    assert!(!bed.clients[0].is_superseded(), "no member has notified it yet");
    // All later writes of the client have the earlier process's seal.
    let lost = bed.submit(0, &[0], b"lost").expect("the client has not noticed its successor");
    bed.run(SETTLED_NS);
    bed.cut(1, 3, RECONNECTED_NS);
    let _ = bed.submit(0, &[0], b"breaks the link");
    bed.run(3 * RECONNECTED_NS);
    assert!(bed.clients[0].is_superseded(), "it reconnected to a member that knows its successor");
    assert_eq!(bed.submit(0, &[0], b"late"), Err(SubmitError::Superseded { client: 0 }));
    assert!(bed.clients[0].delivered_up_to() < lost.sequence, "other processes' messages in its slots are not its own");
    for delivered in &bed.delivered {
        assert_eq!(*delivered, [(first, b"first".to_vec())]);
    }
}

/// Slots that are freed now may be no-ops, or belong to another process. The client cannot distinguish these cases. So
/// it does not report its messages as delivered, even where they were.
#[test]
fn superseded_client_reports_no_more_deliveries() {
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    let first = bed.submit(0, &[0], b"first").expect("the client is connected to all destinations");
    bed.run(SETTLED_NS);
    assert_eq!(bed.clients[0].delivered_up_to(), first.sequence);
    // The leader does not run: nothing is delivered, and the successor gets no generation.
    bed.world.inject(bed.world.now_ns(), Fault::Stall { process: ProcessId(0), for_ns: 4 * RECONNECTED_NS });
    bed.run(1_000);
    let second = bed.submit(0, &[0], b"second").expect("the client has not noticed its successor");
    bed.run(SETTLED_NS);
    bed.greet_in_its_place(1);
    bed.run(14 * RECONNECTED_NS);
    assert!(bed.clients[0].is_superseded());
    let delivered = bed.delivered.iter().filter(|delivered| delivered.last() == Some(&(second, b"second".to_vec())));
    assert_eq!(delivered.count(), 3, "all held it before: {:?}", bed.delivered);
    let known = bed.clients[0].delivered_up_to();
    bed.run(RECONNECTED_NS);
    assert_eq!((bed.clients[0].delivered_up_to(), bed.submit(0, &[0], b"late").is_err()), (known, true));
}

#[test]
fn a_client_that_only_lost_its_connections_is_not_superseded() {
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    bed.submit(0, &[0], b"first").expect("the client is connected to all destinations");
    for member in 0..3 {
        bed.cut(member, 3, RECONNECTED_NS);
    }
    let _ = bed.submit(0, &[0], b"breaks the links");
    bed.run(4 * RECONNECTED_NS);
    assert!(!bed.clients[0].is_superseded());
    assert!(bed.clients[0].is_connected(&[GroupId(0)]));
    bed.submit(0, &[0], b"next").expect("the client continues");
}

/// A member that is away while a client id changes hands holds messages of the earlier process, and forwards them after
/// it has returned. By then these messages are no-ops, and their slots are reused.
#[test]
fn messages_held_by_an_absent_member_while_a_client_id_changes_hands_are_no_ops() {
    for late in [1, 4, 10] {
        let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
        bed.run(RECONNECTED_NS);
        let holder = 2;
        for member in [0, 1] {
            bed.cut(member, CLIENT.0, 3 * RECONNECTED_NS);
            bed.cut(member, holder, 8 * RECONNECTED_NS);
        }
        bed.run(1);
        let _left = [b"one", b"two"]
            .map(|payload| bed.submit(0, &[0], payload).expect("the client has not noticed the partition"));
        bed.run(2 * SETTLED_NS);
        bed.cut(holder, CLIENT.0, 20 * RECONNECTED_NS);
        bed.restart_client(0);
        bed.run(5 * RECONNECTED_NS);
        assert_eq!(bed.members[usize::from(holder)].replica().end_of_held(ClientId(0)), 2);
        let mut sent = vec![bed.submit(0, &[0], b"new").expect("the others hold nothing")];
        bed.run(late * RECONNECTED_NS);
        sent.push(bed.submit(0, &[0], b"new").expect("two of three are there"));
        bed.run(40 * RECONNECTED_NS);
        sent.push(bed.submit(0, &[0], b"new").expect("the client is connected to all destinations"));
        bed.run(RECONNECTED_NS);
        assert_eq!(bed.clients[0].delivered_up_to(), sent[2].sequence);
        for delivered in &bed.delivered {
            assert!(delivered.iter().map(|(id, _)| *id).eq(sent.iter().copied()), "{:?}", bed.delivered);
        }
    }
}
