//! Reads outside the order that the workload requests.

use std::rc::Rc;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_multicast::GroupId;
use stentor_session::{ReadGuarantee, ReadOutcome, ReplyRecord};

use super::client::{ClientActor, in_words};
use super::client_reads::{MOST_SCRIPTED, UnderWay};
use super::told::Told;
use super::workload::Begun;

/// Time after which a read is given up, in nanoseconds.
const PATIENCE_NS: u64 = 1_000_000;

impl ClientActor {
    /// Begins a read if it can be sent now.
    pub(super) fn submit_read(&mut self, now_ns: u64, (group, guarantee): (GroupId, ReadGuarantee)) -> bool {
        let is_connected = |member| self.client.is_connected_to(member);
        if !self.shared.topology.members(group).any(is_connected) || self.scripted.reader.under_way() == MOST_SCRIPTED {
            self.scripted.next = Some((group, guarantee));
            // A group that has not sent its hello yet is asked to admit this client.
            let _ = self.client.next_id(&[group], &[]);
            return false;
        }
        let shared = Rc::clone(&self.shared);
        let Some(caller) = &self.caller else { return false };
        let (token, session, generation) = (shared.next_token(), caller.id(), caller.generation());
        let mut disk = shared.disks[usize::from(self.id.0)].borrow_mut();
        disk.left -= 1;
        disk.reads.push(token);
        drop(disk);
        let begun = Begun { token, client: self.id, session, generation, to: &[group], stamp: shared.next_stamp() };
        shared.workload.borrow_mut().begun(&begun);
        shared.tell(|| {
            format!("client {} begins call {token} under session {:08x}.{generation}", self.id.0, session.0 >> 96)
        });
        shared.record("read begins", now_ns, self.me, &[token, group.0.into()]);
        let mut query = Vec::new();
        shared.workload.borrow().command(token, &mut query);
        let guarantee = match guarantee {
            ReadGuarantee::Leader { not_before } => {
                let heard = if shared.mutant.reads_forget_time() { 0 } else { self.order_time };
                ReadGuarantee::Leader { not_before: not_before.max(heard) }
            }
            other => other,
        };
        let furthest = shared.ledger.borrow().reads.furthest(group);
        shared.counts.borrow_mut().reads += 1;
        let now = Duration::from_nanos(now_ns);
        if let Ok(name) = self.scripted.reader.begin(&mut self.client, now, (group, guarantee), &query) {
            let guarantee = match guarantee {
                ReadGuarantee::Leader { not_before } => {
                    ReadGuarantee::Leader { not_before: not_before.max(self.order_time) }
                }
                other => other,
            };
            let read = UnderWay { group, guarantee, furthest, since_ns: now_ns };
            self.scripted.under_way.insert(name, (token, read));
        } else {
            shared.disks[usize::from(self.id.0)].borrow_mut().left += 1;
            self.read_ended(now_ns, token, (None, &Told::NotApplied));
        }
        self.pause(now_ns);
        true
    }

    /// Repeats lost reads, and gives up unanswered ones.
    pub(super) fn look_for_scripted(&mut self, now_ns: u64) {
        self.forget_lost_reads(now_ns);
        if self.scripted.under_way.is_empty() {
            return;
        }
        self.scripted.reader.look(&mut self.client, Duration::from_nanos(now_ns), true);
        let late = self.scripted.under_way.iter().filter(|(_, (_, read))| now_ns - read.since_ns > PATIENCE_NS);
        let late: Vec<(u64, u64)> = late.map(|(name, (token, _))| (*name, *token)).collect();
        for (name, token) in late {
            self.scripted.under_way.remove(&name);
            self.scripted.reader.give_up(name);
            self.shared.counts.borrow_mut().reads_given_up += 1;
            self.read_ended(now_ns, token, (None, &Told::NotApplied));
        }
    }

    /// Reports the outcome of earlier processes' reads, whose answers no process receives.
    fn forget_lost_reads(&mut self, now_ns: u64) {
        let disk = self.shared.disks[usize::from(self.id.0)].borrow();
        let is_own = |token: &u64| self.scripted.under_way.values().any(|(own, _)| own == token);
        let lost: Vec<u64> = disk.reads.iter().copied().filter(|token| !is_own(token)).collect();
        drop(disk);
        lost.into_iter().for_each(|token| self.read_ended(now_ns, token, (None, &Told::NotApplied)));
    }

    /// Handles the answer to a read.
    pub(super) fn take_scripted(&mut self, now_ns: u64, from: ProcessId, record: &ReplyRecord<'_>) {
        let (shared, now) = (Rc::clone(&self.shared), Duration::from_nanos(now_ns));
        let Some((name, outcome)) = self.scripted.reader.on_reply(now, from, &shared.topology, record) else { return };
        let Some((token, read)) = self.scripted.under_way.remove(&name) else { return };
        let UnderWay { group, guarantee, furthest, .. } = read;
        let told = match outcome {
            ReadOutcome::Answered { position, heard, bytes, .. } => {
                shared.counts.borrow_mut().reads_answered += 1;
                let mut ledger = shared.ledger.borrow_mut();
                if let Err(why) = ledger.reads.answered(group, (guarantee, furthest), (&position, heard), None) {
                    ledger.violate("X10", why);
                }
                shared.workload.borrow_mut().comes_after(token, heard);
                Told::Applied(vec![(group, position, bytes.map(<[u8]>::to_vec))])
            }
            _ => Told::NotApplied,
        };
        self.read_ended(now_ns, token, (Some(from), &told));
    }

    /// Handles the end of a read. `from` is the process that answered.
    fn read_ended(&mut self, now_ns: u64, token: u64, (from, told): (Option<ProcessId>, &Told)) {
        let shared = &self.shared;
        shared.disks[usize::from(self.id.0)].borrow_mut().reads.retain(|read| *read != token);
        shared.record("read ends", now_ns, self.me, &[token, matches!(told, Told::Applied(_)).into()]);
        shared.tell(|| {
            let by = from.map_or_else(String::new, |from| format!(", from {from}"));
            format!("client {} {}{by}", self.id.0, in_words(told, token))
        });
        shared.workload.borrow_mut().told(token, told, shared.next_stamp());
    }
}
