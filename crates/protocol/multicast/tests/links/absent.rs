//! Clients that die, or are partitioned, while no other process takes over their client ids.

use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Fault, NetworkModel};
use stentor_multicast::{ClientId, GroupId, MessageId, SubmitError};

use crate::bed::{Bed, RECONNECTED_NS, limits};

/// A timeout that exceeds the time until a broken link is noticed and re-established.
const TIMEOUT: Duration = Duration::from_millis(40);
const LONG_NS: u64 = 8 * TIMEOUT.as_nanos() as u64;
/// The second group, in a cluster of two groups of three members and two clients.
const GROUP: [u16; 3] = [3, 4, 5];
const CLIENT: u16 = 6;

fn bed(seed: u64) -> Bed {
    let mut bed = Bed::new(&[3, 3], 2, limits(), NetworkModel::calm(), seed);
    for member in &mut bed.members {
        member.set_client_timeout(TIMEOUT);
    }
    bed.run(RECONNECTED_NS);
    bed
}

impl Bed {
    /// Partitions the client from the second group, and multicasts a message to that group and then one to both groups.
    /// Returns their ids.
    fn leave_a_gap(&mut self, cut_ns: u64) -> [MessageId; 2] {
        for member in GROUP {
            self.cut(member, CLIENT, cut_ns);
        }
        self.run(1);
        let lost = self.submit(0, &[1], b"lost").expect("the client has not noticed the partition");
        let behind = self.submit(0, &[0, 1], b"behind").expect("the client has not noticed the partition");
        self.run(RECONNECTED_NS);
        [lost, behind]
    }

    fn kill_client(&mut self) {
        self.world.inject(self.world.now_ns(), Fault::Crash(ProcessId(CLIENT)));
    }

    fn payloads(&self, member: u16) -> Vec<&[u8]> {
        self.delivered[usize::from(member)].iter().map(|(_, payload)| &payload[..]).collect()
    }
}

#[test]
fn half_written_messages_of_a_dead_client_block_nobody_without_a_successor() {
    for seed in 0..5 {
        let mut bed = bed(seed);
        bed.leave_a_gap(LONG_NS);
        bed.kill_client();
        bed.submit(1, &[0], b"next").expect("the client is connected to all destinations");
        bed.run(RECONNECTED_NS);
        assert!(bed.delivered.iter().all(Vec::is_empty), "the message after the gap has the earlier timestamp");
        bed.run(LONG_NS);
        for member in 0..3 {
            assert_eq!(bed.payloads(member), [b"next"], "p{member} {:?}", bed.delivered);
        }
        bed.submit(1, &[0, 1], b"last").expect("the client is connected to all destinations");
        bed.run(RECONNECTED_NS);
        assert!((0..3).all(|member| bed.payloads(member) == [&b"next"[..], b"last"]));
        assert!(GROUP.iter().all(|member| bed.payloads(*member) == [b"last"]));
        // The client id works as before.
        bed.restart_client(0);
        bed.run(2 * RECONNECTED_NS);
        bed.submit(0, &[0, 1], b"again").expect("the client is connected to all destinations");
        bed.run(RECONNECTED_NS);
        assert!(bed.delivered.iter().all(|delivered| delivered.last().is_some_and(|(_, last)| last == b"again")));
    }
}

#[test]
fn client_without_a_gap_is_never_given_up() {
    let mut bed = bed(1);
    for member in 0..6 {
        bed.cut(member, CLIENT, LONG_NS);
    }
    bed.run(1);
    let _ = bed.submit(0, &[0], b"breaks the links");
    let _ = bed.submit(0, &[1], b"of both groups");
    bed.submit(1, &[0, 1], b"meanwhile").expect("the client is connected to all destinations");
    bed.run(2 * LONG_NS);
    assert!(!bed.clients[0].is_superseded());
    bed.submit(0, &[0, 1], b"back").expect("the client continues");
    bed.run(RECONNECTED_NS);
    for delivered in &bed.delivered {
        assert!(delivered.iter().any(|(_, payload)| payload == b"back"), "{delivered:?}");
    }
}

#[test]
fn gap_waits_for_a_client_that_reconnects_in_time() {
    let mut bed = bed(1);
    // An earlier absence does not count.
    for member in GROUP {
        bed.cut(member, CLIENT, 2 * RECONNECTED_NS);
    }
    bed.run(1);
    let first = bed.submit(0, &[1], b"first").expect("the client has not noticed the partition");
    bed.run(LONG_NS);
    let [lost, behind] = bed.leave_a_gap(4 * RECONNECTED_NS);
    bed.run(LONG_NS);
    assert!(!bed.clients[0].is_superseded());
    assert!(bed.delivered[3].iter().map(|(id, _)| *id).eq([first, lost, behind]), "{:?}", bed.delivered[3]);
}

/// The client is given up by a group that it cannot reach, and does not learn of it. When it reconnects, it is
/// notified. No-ops are not counted as its deliveries.
#[test]
fn client_that_was_given_up_is_superseded_and_counts_no_no_op_as_delivered() {
    for seed in 0..5 {
        let mut bed = bed(seed);
        let [lost, _] = bed.leave_a_gap(LONG_NS);
        bed.run(2 * LONG_NS);
        assert!(bed.clients[0].is_superseded());
        assert_eq!(bed.submit(0, &[0], b"late"), Err(SubmitError::Superseded { client: 0 }));
        assert!(bed.clients[0].delivered_up_to() < lost.sequence);
        assert!(bed.delivered.iter().all(Vec::is_empty), "{:?}", bed.delivered);
    }
}

/// The only member to which a client reconnects after it was given up. That member has not given it up itself.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Meets {
    /// The member has lost its memory of the client, and has its group's state again.
    Forgetful,
    /// The member has lost its memory of the client, and gets its group's state later.
    Memoryless,
    /// The leader could not ask the member.
    Unasked,
}

#[test]
fn client_that_was_given_up_is_superseded_by_members_that_know_its_generation_is_closed() {
    for (seed, case) in [Meets::Forgetful, Meets::Memoryless, Meets::Unasked].into_iter().cycle().take(6).enumerate() {
        let mut bed = bed(seed as u64);
        let [leader, second, third] = GROUP;
        let [lost, _] = bed.leave_a_gap(LONG_NS);
        let meets = if case == Meets::Unasked { third } else { second };
        for member in (0..CLIENT).filter(|member| *member != meets) {
            bed.cut(member, CLIENT, 20 * LONG_NS);
        }
        if case == Meets::Unasked {
            bed.cut(leader, third, LONG_NS - 8 * RECONNECTED_NS);
        }
        bed.run(LONG_NS - 8 * RECONNECTED_NS);
        if case != Meets::Unasked {
            bed.restart_member(usize::from(second));
        }
        if case == Meets::Memoryless {
            for member in [leader, third] {
                bed.cut(member, second, LONG_NS);
            }
        }
        bed.run(6 * RECONNECTED_NS);
        let closed = |bed: &Bed| bed.members[usize::from(meets)].replica().closed_below(ClientId(0));
        assert_eq!(closed(&bed), u64::from(case != Meets::Memoryless), "seed {seed}, {case:?}");
        assert!(!bed.clients[0].is_superseded(), "seed {seed}, {case:?}: they have not met yet");
        if case == Meets::Memoryless {
            bed.run(4 * RECONNECTED_NS);
            assert!(bed.members[usize::from(second)].replica().is_joining());
            assert!(!bed.clients[0].is_superseded(), "seed {seed}, {case:?}: it was let in");
        }
        bed.run(3 * LONG_NS);
        assert!(closed(&bed) == 1 && bed.clients[0].is_superseded(), "seed {seed}, {case:?}");
        assert!(bed.clients[0].delivered_up_to() < lost.sequence);
    }
}

/// Messages that a majority holds are delivered although their client does not reach the leader.
#[test]
fn a_client_is_not_given_up_by_one_group_for_what_another_holds() {
    let mut bed = bed(2);
    let [leader, ..] = GROUP;
    bed.cut(leader, CLIENT, 3 * LONG_NS);
    bed.run(1);
    let sent =
        [b"one", b"two"].map(|payload| bed.submit(0, &[1], payload).expect("the client has not noticed the partition"));
    bed.run(2 * LONG_NS);
    assert!(!bed.clients[0].is_superseded() && bed.clients[0].is_connected(&[GroupId(1)]));
    assert!(bed.delivered[3].iter().map(|(id, _)| *id).eq(sent));
}

/// Forwarded messages reach a leader in any order, so a gap that is soon filled is no client's fault.
#[test]
fn a_client_that_only_a_leader_is_cut_off_from_is_not_given_up() {
    // Members forward messages that their leader lacks after some ticks.
    let timeout_ns = 5 * TIMEOUT.as_nanos() as u64;
    for seed in 0..5 {
        let mut bed = bed(seed);
        for member in &mut bed.members {
            member.set_client_timeout(5 * TIMEOUT);
        }
        bed.cut(GROUP[0], CLIENT, 6 * timeout_ns);
        bed.run(1);
        let mut sent = Vec::new();
        while bed.world.now_ns() < 5 * timeout_ns {
            sent.extend(bed.submit(0, &[1], b"to the group").ok());
            // The other group's leader forwards this one, possibly before the message above.
            sent.extend(bed.submit(0, &[0, 1], b"to both").ok());
            bed.run(4_000_000);
        }
        assert_eq!(bed.members[3].replica().over_below(ClientId(0)), 0, "seed {seed}: it is connected with a majority");
        bed.run(6 * timeout_ns);
        assert!(!bed.clients[0].is_superseded(), "seed {seed}");
        assert!(sent.len() > 40 && bed.delivered[3].iter().map(|(id, _)| *id).eq(sent), "seed {seed}");
    }
}
