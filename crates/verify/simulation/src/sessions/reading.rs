//! Reads outside the order, at a client and at a member.

use std::rc::Rc;
use std::time::Duration;

use stentor_fabric_sim::SimFabric;
use stentor_multicast::{GroupId, Member, Timestamp};
use stentor_session::{Outcome, Position, ReadGuarantee, ReadOutcome, ReadyRead, ReplyRecord};

use super::client::ClientActor;
use super::client_reads::UnderWay;
use super::machine::{Machine, Place};
use super::shared::Shared;
use super::tally::state_in;

/// Time after which a read is given up, in nanoseconds.
const PATIENCE_NS: u64 = 3_000_000;

impl ClientActor {
    /// Records the position in an answer.
    pub(super) fn note_place(&mut self, group: GroupId, position: Position) {
        if let Some(reads) = &mut self.reads {
            reads.known.insert(group, position);
        }
    }

    /// Sends reads, and repeats lost ones.
    pub(super) fn read(&mut self, now_ns: u64) {
        let ClientActor { client, reads: Some(reads), shared, order_time, .. } = self else { return };
        let now = Duration::from_nanos(now_ns);
        reads.reader.look(client, now, true);
        let late = reads.under_way.iter().filter(|(_, read)| now_ns - read.since_ns > PATIENCE_NS);
        let late: Vec<u64> = late.map(|(name, _)| *name).collect();
        for name in late {
            reads.under_way.remove(&name);
            reads.reader.give_up(name);
            shared.counts.borrow_mut().reads_given_up += 1;
        }
        let Some(pause) = shared.scenario.reads_ns.filter(|_| now_ns >= reads.next_ns) else { return };
        reads.next_ns = now_ns + reads.chance.between(0, 2 * pause);
        let group = GroupId(reads.chance.between(0, shared.topology.groups() as u64 - 1) as u16);
        let not_before = if shared.mutant.reads_forget_time() { 0 } else { *order_time };
        let other = reads.known.iter().next_back().map(|(_, position)| position.timestamp);
        let guarantee = match reads.chance.between(0, 7) {
            0 => ReadGuarantee::Local,
            1 | 2 => reads.known.get(&group).map_or(ReadGuarantee::Local, |position| ReadGuarantee::After {
                index: position.index,
                incarnation: position.incarnation,
            }),
            3 => other.map_or(ReadGuarantee::Local, |timestamp| ReadGuarantee::Past { timestamp }),
            _ => ReadGuarantee::Leader { not_before },
        };
        if let Ok(name) = reads.reader.begin(client, now, (group, guarantee), &[]) {
            let heard = ReadGuarantee::Leader { not_before: *order_time };
            let is_led = matches!(guarantee, ReadGuarantee::Leader { .. });
            let guarantee = if is_led { heard } else { guarantee };
            let furthest = shared.ledger.borrow().reads.furthest(group);
            reads.under_way.insert(name, UnderWay { group, guarantee, furthest, since_ns: now_ns });
            shared.counts.borrow_mut().reads += 1;
        }
    }

    /// Handles the answer to a read.
    pub(super) fn take_read(&mut self, now_ns: u64, from: stentor_fabric::ProcessId, record: &ReplyRecord<'_>) {
        let (shared, Some(reads)) = (Rc::clone(&self.shared), &mut self.reads) else { return };
        let now = Duration::from_nanos(now_ns);
        let Some((name, outcome)) = reads.reader.on_reply(now, from, &shared.topology, record) else { return };
        let Some(read) = reads.under_way.remove(&name) else { return };
        let UnderWay { group, guarantee, furthest, .. } = read;
        let (mut counts, mut ledger) = (shared.counts.borrow_mut(), shared.ledger.borrow_mut());
        shared.record("read", now_ns, self.me, &[group.0.into(), record.position.index, record.applied]);
        match outcome {
            ReadOutcome::Answered { position, heard, bytes, .. } => {
                counts.reads_answered += 1;
                let state = state_in(bytes.unwrap_or_default());
                if let Err(why) = ledger.reads.answered(group, (guarantee, furthest), (&position, heard), Some(state)) {
                    ledger.violate("X10", why);
                }
            }
            _ => ledger.violate("X10", format!("a read of group {} is of another history: {guarantee:?}", group.0)),
        }
    }
}

/// Answers a read at a member.
pub(super) fn answer(
    member: &mut Member<SimFabric>,
    machine: &mut dyn Machine,
    (time, read): (u64, &ReadyRead<'_>),
    shared: &Shared,
) {
    let (group, index) = (member.replica().group(), member.applied());
    // Until its next delivery, a member that installed a state knows the time of its last delivery but not the group
    // that assigned it.
    let (client, last) = (read.client, member.last_timestamp());
    let known = shared.ledger.borrow().reads.timestamp(group, index);
    let timestamp = known.unwrap_or(Timestamp { time: last.time.max(time), ..last });
    let place =
        Place { token: 0, group, groups: &[group], timestamp, number: index, client: Some(client), session: None };
    let mut bytes = Vec::new();
    machine.query(&place, read.query, &mut bytes);
    let incarnation = member.replica().origin_of(index);
    let index = if shared.mutant.misplaces_reads() { index.saturating_sub(1) } else { index };
    let position = Position { timestamp, index, incarnation };
    let (outcome, bytes) = match bytes.len() <= shared.scenario.sessions.reply_bytes as usize {
        true => (Outcome::Applied, &bytes[..]),
        false => (Outcome::Overflow, &[][..]),
    };
    let mut record = Vec::new();
    ReplyRecord::read(read.name, outcome, (position, read.time), bytes).write(&mut record);
    // If there is no room, the client asks again.
    let _ = member.reply(client, &[&record]);
}
