//! The description of a delivered message (its groups, and whether the payload is enveloped) is the same on every path
//! to a member.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Fault, NetworkModel};
use stentor_multicast::{GroupId, MessageId, TransferOutcome, TransferRole, Wants};

use crate::bed::{Bed, RECONNECTED_NS, SETTLED_NS, limits};

/// Process id of the client; the groups have three members and one.
const CLIENT: u16 = 4;

/// A message as its client described it.
type Described = (MessageId, Vec<GroupId>, bool);

fn bed() -> Bed {
    let mut bed = Bed::new(&[3, 1], 1, limits(), NetworkModel::calm(), 1);
    bed.run(2 * RECONNECTED_NS);
    bed
}

impl Bed {
    /// Multicasts messages one after the other: to either group and to both, enveloped and not, with and without a time
    /// before which they are not ordered.
    fn send_described(&mut self, messages: usize) -> Vec<Described> {
        let mut sent = Vec::new();
        for n in 0..messages {
            let to: &[GroupId] = [&[GroupId(0)][..], &[GroupId(0), GroupId(1)], &[GroupId(1)]][n % 3];
            let wants = Wants {
                notify: true,
                enveloped: n / 3 % 2 == 0,
                not_before: u64::from(n % 5 == 0),
                ..Wants::default()
            };
            let parts: [&[u8]; 2] = [b"envelope", &[n as u8; 13]];
            let mut tries = 0;
            let submitted = loop {
                match self.clients[0].submit_parts(to, &parts, wants) {
                    Ok(submitted) => break submitted,
                    Err(error) => assert!(tries < 20_000, "message {n}: {error}"),
                }
                tries += 1;
                self.run(20_000);
            };
            self.world.wake_at(ProcessId(CLIENT), self.world.now_ns());
            sent.push((submitted.id, to.to_vec(), wants.enveloped));
            self.run(10_000);
        }
        sent
    }

    /// Requires that a member of the first group delivered exactly the messages of `sent` that are addressed to its
    /// group, with the same descriptions.
    fn assert_described(&self, member: usize, sent: &[Described]) {
        let meant: Vec<_> = sent.iter().filter(|(_, to, _)| to.contains(&GroupId(0))).cloned().collect();
        assert_eq!(self.described[member], meant, "member {member}");
        let payload_bytes = |delivered: &(MessageId, Vec<u8>)| delivered.1.len();
        assert!(self.delivered[member].iter().all(|delivered| payload_bytes(delivered) == 21), "member {member}");
    }
}

#[test]
fn messages_of_a_clients_ring_are_described_as_they_were_multicast() {
    let mut bed = bed();
    let sent = bed.send_described(30);
    bed.run(SETTLED_NS);
    (0..3).for_each(|member| bed.assert_described(member, &sent));
    let others: Vec<_> = sent.iter().filter(|(_, to, _)| to.contains(&GroupId(1))).cloned().collect();
    assert_eq!(bed.described[3], others);
}

/// The client does not reach one member while it multicasts: the others forward to it.
#[test]
fn forwarded_messages_are_described_as_they_were_multicast() {
    let mut bed = bed();
    bed.cut(2, CLIENT, 100 * RECONNECTED_NS);
    bed.run(RECONNECTED_NS);
    let mut sent = Vec::new();
    for _ in 0..4 {
        // If more messages were sent at a time, member 2 would receive the others' state instead of the messages.
        sent.extend(bed.send_described(6));
        bed.run(10 * RECONNECTED_NS);
    }
    assert!(!bed.clients[0].counts_on(ProcessId(2)) && bed.handed[2].restores.is_empty());
    (0..3).for_each(|member| bed.assert_described(member, &sent));
}

/// The connection breaks while a member holds undelivered messages, which move to the side store when the ring
/// restarts.
#[test]
fn messages_that_move_aside_are_described_as_they_were_multicast() {
    let mut bed = bed();
    // Nothing is ordered.
    for process in [0, 3].map(ProcessId) {
        bed.world.inject(bed.world.now_ns(), Fault::Stall { process, for_ns: 12 * RECONNECTED_NS });
    }
    bed.run(1_000);
    let sent = bed.send_described(12);
    bed.run(SETTLED_NS);
    let queued = bed.members[1].memory_use().most_queued;
    bed.cut(1, CLIENT, RECONNECTED_NS);
    let more = bed.send_described(1);
    bed.run(4 * RECONNECTED_NS);
    assert!(bed.described[1].is_empty() && bed.members[1].memory_use().most_queued > queued, "they lie aside");
    bed.run(20 * RECONNECTED_NS);
    let sent = [sent, more].concat();
    (0..3).for_each(|member| bed.assert_described(member, &sent));
}

/// A member restarts, and gets the deliveries made meanwhile from the donor's backlog.
#[test]
fn deliveries_of_a_backlog_are_described_as_they_were_multicast() {
    let mut bed = bed();
    bed.padding = 400 << 10;
    let first = bed.send_described(12);
    bed.restart_member(2);
    while bed.members[2].transfer_received() < 40 << 10 {
        bed.run(10_000);
    }
    let sent = bed.send_described(60);
    bed.run(20 * RECONNECTED_NS);
    let outcomes: Vec<_> = bed.handed[2].reports.iter().map(|report| (report.role, report.outcome)).collect();
    assert!(outcomes.contains(&(TransferRole::Receiver, TransferOutcome::Complete)), "{outcomes:?}");
    let restored = bed.handed[2].restores.last().copied().expect("the member was handed a state");
    assert!(restored < (first.len() * 2 / 3 + 10) as u64, "{restored}: most deliveries came after it");
    let handed = bed.described[2].clone();
    let meant: Vec<_> = [first, sent].concat().into_iter().filter(|(_, to, _)| to.contains(&GroupId(0))).collect();
    assert_eq!(handed, meant[meant.len() - handed.len()..]);
    assert!(handed.len() > 30, "{}", handed.len());
}
