//! Reads at leaders: in every state that is judged, every leader is asked what a read would return.
//!
//! A read begins in the state, and is answered there if it need not wait. The leader is confirmed by each member that
//! has the leader's ballot installed and has promised no larger one: a write to such a member would complete now. Then
//! the leader must have delivered everything that any member of its group has delivered. It must also have delivered
//! every message to its group that is delivered anywhere with a time that the read must follow. Messages that are
//! delivered only later, with an earlier time, are not detected here; the simulation of sessions checks that (X10).

use stentor_multicast::{ReadProgress, Replica};

use super::member::{Context, Member};
use crate::verdict::{Entry, Flaws, READ};

/// Judges what reads at leaders would return now.
pub(super) fn judge(context: &Context, members: &[&Member]) -> Flaws {
    let wrong = members.iter().any(|leader| {
        leader.replica.as_ref().is_some_and(|replica| {
            is_confirmed(context, replica, members) && is_wrong(context, leader, replica, members)
        })
    });
    if wrong { READ.0 } else { 0 }
}

/// Returns whether this replica leads and a majority of its group follows it.
fn is_confirmed(context: &Context, leader: &Replica, members: &[&Member]) -> bool {
    let ballot = leader.ballot();
    let follows = |replica: &Replica| {
        replica.group() == leader.group()
            && !replica.is_joining()
            && replica.ballot() == ballot
            && replica.promised() == ballot
    };
    let following = members.iter().filter(|member| member.replica.as_ref().is_some_and(follows)).count();
    leader.is_leader() && following >= context.channels.topology.majority(leader.group()) as usize
}

fn is_wrong(context: &Context, leader: &Member, replica: &Replica, members: &[&Member]) -> bool {
    let all = |member: &Member| -> Vec<Entry> { member.before.iter().chain(&member.log).copied().collect() };
    let here = all(leader);
    let has = |message: u8| here.iter().any(|(known, _)| *known == message);
    let reached = here.last().map_or(0, |(_, at)| at.time);
    let elsewhere: Vec<(u16, Entry)> =
        members.iter().flat_map(|member| all(member).into_iter().map(|entry| (member.process, entry))).collect();
    let group = context.group(leader.process);
    let destined = context.destined[usize::from(leader.process)];
    let mut times: Vec<u64> = elsewhere.iter().map(|(_, (_, at))| at.time).chain([0]).collect();
    times.sort_unstable();
    times.dedup();
    // `read_progress` updates the replica, so a copy is asked.
    let mut replica = replica.clone();
    times.into_iter().any(|after| {
        let Some(read) = replica.begin_read(after) else { return false };
        let is_ready = replica.read_progress(&read, reached) == ReadProgress::Ready;
        let is_due = |(process, (message, at)): &(u16, Entry)| {
            let is_ours = destined >> message & 1 == 1;
            is_ours && !has(*message) && (context.group(*process) == group || at.time <= after)
        };
        is_ready && elsewhere.iter().any(is_due)
    })
}
