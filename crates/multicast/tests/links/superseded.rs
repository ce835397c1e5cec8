//! Two processes live with one client place: the simulator has one process of a place, so what the second one says is
//! said through the first one's queue pairs.

use stentor_fabric::{Fabric, ProcessId, QpId, Source, Verb, WorkRequest};
use stentor_fabric_sim::NetworkModel;
use stentor_multicast::{GroupId, SubmitError, forged_hello};

use crate::bed::{Bed, RECONNECTED_NS, SALT, SETTLED_NS, limits};

const CLIENT: ProcessId = ProcessId(3);

impl Bed {
    /// Another process greets a member in the client's place. Each member has one of the client's queue pairs.
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
fn a_client_that_comes_back_after_its_successor_is_told_so_and_multicasts_no_more() {
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    let first = bed.submit(0, &[0], b"first").expect("all are connected");
    bed.run(SETTLED_NS);
    for member in 0..3 {
        bed.greet_in_its_place(member);
    }
    bed.run(SETTLED_NS);
    assert!(!bed.clients[0].is_superseded(), "nobody has told it yet");
    // What it writes now is sealed as the earlier process's.
    let lost = bed.submit(0, &[0], b"lost").expect("it does not know");
    bed.run(SETTLED_NS);
    bed.cut(1, 3, RECONNECTED_NS);
    let _ = bed.submit(0, &[0], b"breaks the link");
    bed.run(3 * RECONNECTED_NS);
    assert!(bed.clients[0].is_superseded(), "it came back to a member that has met its successor");
    assert_eq!(bed.submit(0, &[0], b"late"), Err(SubmitError::Superseded { client: 0 }));
    assert!(bed.clients[0].delivered_up_to() < lost.sequence, "what others have in its slots is not its own");
    for delivered in &bed.delivered {
        assert_eq!(*delivered, [(first, b"first".to_vec())]);
    }
}

#[test]
fn a_client_that_only_lost_its_connections_is_not_superseded() {
    let mut bed = Bed::new(&[3], 1, limits(), NetworkModel::calm(), 1);
    bed.run(RECONNECTED_NS);
    bed.submit(0, &[0], b"first").expect("all are connected");
    for member in 0..3 {
        bed.cut(member, 3, RECONNECTED_NS);
    }
    let _ = bed.submit(0, &[0], b"breaks the links");
    bed.run(4 * RECONNECTED_NS);
    assert!(!bed.clients[0].is_superseded());
    assert!(bed.clients[0].is_connected(&[GroupId(0)]));
    bed.submit(0, &[0], b"next").expect("it goes on");
}
