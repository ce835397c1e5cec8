//! Reads at a leader, and the confirmation that it led when they began.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::NetworkModel;
use stentor_multicast::{Limits, Mutant, ReadBarrier, ReadProgress, Step};

use crate::bed::{Bed, RECONNECTED_NS, SETTLED_NS, limits};

const MEMBERS: u16 = 3;
/// Process id of the first client.
const CLIENT: u16 = MEMBERS;

fn connected(groups: &[usize], mutant: Mutant) -> Bed {
    let limits = Limits { reply_bytes: 300, ..limits() };
    let mut bed = Bed::planted(groups, 2, limits, NetworkModel::calm(), (1, mutant));
    bed.run(2 * RECONNECTED_NS);
    bed
}

impl Bed {
    fn leads(&self, member: u16) -> bool {
        self.members[usize::from(member)].replica().is_leader()
    }

    /// Begins a read at a member, and a round that covers it.
    fn begin_read(&mut self, member: u16) -> (ReadBarrier, u64) {
        let read = self.members[usize::from(member)].begin_read(0).expect("the member leads");
        let round = self.members[usize::from(member)].confirm().expect("the member is connected to its group");
        self.world.wake_at(ProcessId(member), self.world.now_ns());
        (read, round)
    }

    fn is_confirmed(&mut self, member: u16, round: u64) -> bool {
        self.members[usize::from(member)].confirmed() >= round
    }

    fn progress(&mut self, member: u16, read: &ReadBarrier) -> ReadProgress {
        self.members[usize::from(member)].read_progress(read)
    }

    /// Makes a member begin a campaign.
    fn campaign(&mut self, member: u16) {
        self.members[usize::from(member)].campaign().expect("the member can campaign");
        self.world.wake_at(ProcessId(member), self.world.now_ns());
    }
}

#[test]
fn leader_with_its_followers_is_confirmed_and_other_members_are_not() {
    let mut bed = connected(&[3], Mutant::None);
    assert!(bed.leads(0) && !bed.leads(1));
    assert_eq!(bed.members[1].begin_read(0), None);
    assert_eq!(bed.members[1].confirm(), None);
    for number in 1..=20 {
        let (read, round) = bed.begin_read(0);
        assert_eq!(round, number);
        assert!(!bed.is_confirmed(0, round), "nothing has come back");
        bed.run(SETTLED_NS);
        assert!(bed.is_confirmed(0, round) && !bed.members[0].is_confirming());
        assert_eq!(bed.progress(0, &read), ReadProgress::Ready);
    }
    assert_eq!(bed.members[0].counts().writes(Step::Confirm), 40, "one to each follower");
    assert_eq!(bed.rejected(), 0, "followers read nothing of it");
}

#[test]
fn rounds_under_way_are_bounded_and_a_member_alone_needs_no_other() {
    let mut bed = connected(&[3, 1], Mutant::None);
    let rounds = std::iter::from_fn(|| bed.members[0].confirm()).take(100).count();
    assert!((2..20).contains(&rounds), "{rounds}");
    bed.run(SETTLED_NS);
    assert!(bed.is_confirmed(0, rounds as u64));
    let (_, round) = bed.begin_read(3);
    assert!(bed.is_confirmed(3, round));
}

#[test]
fn one_follower_is_enough_and_none_is_not() {
    let mut bed = connected(&[3], Mutant::None);
    bed.world.crash(ProcessId(1));
    let (_, round) = bed.begin_read(0);
    bed.run(SETTLED_NS);
    assert!(bed.is_confirmed(0, round));
    bed.run(RECONNECTED_NS);
    let (_, round) = bed.begin_read(0);
    bed.run(SETTLED_NS);
    assert!(bed.is_confirmed(0, round), "the other one is written alone");
    bed.cut(0, 2, 4 * RECONNECTED_NS);
    let (_, round) = bed.begin_read(0);
    bed.run(2 * RECONNECTED_NS);
    assert!(!bed.is_confirmed(0, round) && !bed.members[0].is_confirming(), "the round came to nothing");
    assert_eq!(bed.members[0].confirm(), None, "nobody can be written");
    bed.run(8 * RECONNECTED_NS);
    let (_, round) = bed.begin_read(0);
    bed.run(SETTLED_NS);
    assert!(bed.is_confirmed(0, round));
}

/// Partitions a leader from its group, so that the leader does not learn that another member leads by now. Returns
/// whether the first leader is confirmed, and whether the other one is.
fn stale_leader(mutant: Mutant) -> (bool, bool) {
    let mut bed = connected(&[3], mutant);
    let long = 8 * RECONNECTED_NS;
    // The second client continues with the other two members. The first client has nothing in flight.
    for other in [1, 2, CLIENT + 1] {
        bed.cut(0, other, long);
    }
    bed.campaign(1);
    bed.run(RECONNECTED_NS);
    assert!(bed.leads(0) && bed.leads(1), "neither knows of the other");
    bed.submit(1, &[0], b"new").expect("a majority is there");
    bed.run(RECONNECTED_NS);
    assert_eq!((bed.delivered[0].len(), bed.delivered[1].len()), (0, 1));
    let read = bed.members[0].begin_read(0).expect("the stale leader still considers itself the leader");
    assert_eq!(bed.progress(0, &read), ReadProgress::Ready, "it knows of nothing that it waits for");
    let round = bed.members[0].confirm();
    bed.run(RECONNECTED_NS);
    let stale = round.is_some_and(|round| bed.is_confirmed(0, round));
    bed.run(2 * long);
    assert_eq!(bed.progress(0, &read), ReadProgress::Over, "it has learnt of the new leader");
    let (read, round) = bed.begin_read(1);
    bed.run(SETTLED_NS);
    (stale, bed.is_confirmed(1, round) && bed.progress(1, &read) == ReadProgress::Ready)
}

#[test]
fn a_leader_that_another_one_has_replaced_is_not_confirmed() {
    assert_eq!(stale_leader(Mutant::None), (false, true));
}

#[cfg(feature = "plants")]
#[test]
fn mutant_answers_although_another_leader_has_replaced_it() {
    assert!(stale_leader(Mutant::ReadUnconfirmed).0);
}

/// The follower promises another leader while the write is in flight.
#[test]
fn write_after_a_promise_confirms_nothing() {
    let mut bed = connected(&[3], Mutant::None);
    for _ in 0..10 {
        let leader = (0..3).find(|member| bed.leads(*member)).expect("a member leads");
        let next = (leader + 1) % 3;
        bed.campaign(next);
        // Just long enough for promises, and not for the leader to learn of them.
        let before = bed.members[usize::from(leader)].replica().ballot();
        while bed.leads(leader) && !bed.leads(next) {
            bed.run(500);
        }
        if bed.leads(leader)
            && let Some(round) = bed.members[usize::from(leader)].confirm()
        {
            bed.run(RECONNECTED_NS);
            assert!(!bed.is_confirmed(leader, round), "in ballot {before}");
        }
        bed.run(4 * RECONNECTED_NS);
        assert!(bed.leads(next));
    }
}

/// A member that restarts counts when it has installed the ballot, and not before.
#[test]
fn restarted_member_counts_when_it_has_the_ballot() {
    let mut bed = connected(&[3], Mutant::None);
    bed.submit(0, &[0], b"old").expect("the client is connected to all destinations");
    bed.run(SETTLED_NS);
    bed.restart_member(1);
    // The other follower does not answer, and the restarted one has no memory yet.
    bed.cut(0, 2, RECONNECTED_NS);
    let early = bed.members[0].confirm();
    bed.run(4 * RECONNECTED_NS);
    assert!(early.is_none_or(|round| !bed.is_confirmed(0, round)), "its memory is lost");
    assert!(!bed.members[1].replica().is_joining(), "it has been admitted");
    let leader = (0..2).find(|member| bed.leads(*member)).expect("a member leads");
    bed.world.crash(ProcessId(2));
    bed.run(RECONNECTED_NS);
    let (_, round) = bed.begin_read(leader);
    bed.run(SETTLED_NS);
    assert!(bed.is_confirmed(leader, round), "by the one that restarted");
}

/// A message to two groups that lacks a timestamp does not block a read; a complete one does.
#[test]
fn read_waits_for_complete_messages_and_not_for_those_without_a_time() {
    let mut bed = connected(&[1, 1], Mutant::None);
    bed.world
        .inject(bed.world.now_ns(), stentor_fabric_sim::Fault::Stall { process: ProcessId(1), for_ns: 4 * SETTLED_NS });
    bed.submit(0, &[0, 1], b"both").expect("the client is connected to all destinations");
    bed.run(SETTLED_NS);
    assert_eq!(bed.delivered[0].len(), 0, "the other group has not given its time");
    let (read, round) = bed.begin_read(0);
    assert!(bed.is_confirmed(0, round));
    assert_eq!(bed.progress(0, &read), ReadProgress::Ready, "nobody can have delivered it");
    let after = bed.members[0].begin_read(bed.members[0].replica().clock()).expect("the member leads");
    assert_eq!(bed.progress(0, &after), ReadProgress::Waits, "it may come before that time");
    bed.room[0] = 0;
    bed.run(8 * SETTLED_NS);
    assert_eq!(bed.delivered[1].len(), 1, "it is delivered elsewhere");
    let late = bed.members[0].begin_read(0).expect("the member leads");
    assert_eq!(bed.progress(0, &late), ReadProgress::Waits, "others have delivered it");
    bed.room[0] = u64::MAX;
    bed.world.wake_at(ProcessId(0), bed.world.now_ns());
    bed.run(SETTLED_NS);
    for read in [read, after, late] {
        assert_eq!(bed.progress(0, &read), ReadProgress::Ready);
    }
    let ahead = bed.members[0].replica().clock() + 1000;
    let ahead = bed.members[0].begin_read(ahead).expect("the member leads");
    assert_eq!(bed.progress(0, &ahead), ReadProgress::Early, "nothing here has such a late time");
}
