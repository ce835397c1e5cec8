//! Computes from the histories the time that a group took to deliver a new message after its leader was killed.

use std::collections::HashMap;
use std::path::PathBuf;

use stentor_checker::{Event, EventKind, MessageId};
use stentor_support::Failure;
use stentor_support::live::read_history;

use super::rounds::{Kill, Role};

/// The outages of a run.
#[derive(Debug)]
pub(super) struct Outages {
    /// Times from the kill of a leader to the first delivery, in its group and in a later ballot, of a message that was
    /// multicast after the kill. In nanoseconds.
    pub(super) ns: Vec<u64>,
    /// Number of kills of leaders without an outage: the process did not lead any more, or no later message was
    /// delivered in a later ballot.
    pub(super) unobserved: u64,
}

/// A delivery by a member.
#[derive(Clone, Copy, Debug)]
struct Delivery {
    at: u64,
    /// Number of the ballot.
    ballot: u64,
    m: MessageId,
    /// Time at which the message was multicast.
    sent: u64,
}

/// The events of one group, sorted by time.
#[derive(Default)]
struct Group {
    deliveries: Vec<Delivery>,
    /// Time, number of the ballot, and leader of each epoch.
    epochs: Vec<(u64, u64, u32)>,
}

impl Outages {
    pub(super) fn read(files: &[PathBuf], kills: &[Kill]) -> Result<Self, Failure> {
        let mut groups: Vec<Group> = Vec::new();
        let mut sent: HashMap<MessageId, u64> = HashMap::new();
        for path in files {
            let (mut reader, mut cluster) = read_history(path)?;
            while let Some(Event { t, kind, .. }) = reader.next_event(&mut cluster)? {
                let group = match &kind {
                    EventKind::Deliver(deliver) => deliver.group.index(),
                    EventKind::Epoch { group, .. } => group.index(),
                    EventKind::Multicast(multicast) => {
                        sent.insert(multicast.m, t);
                        continue;
                    }
                    _ => continue,
                };
                if groups.len() <= group {
                    groups.resize_with(group + 1, Group::default);
                }
                match kind {
                    EventKind::Deliver(deliver) => {
                        let ballot = deliver.ballot.map_or(0, |ballot| ballot.number);
                        groups[group].deliveries.push(Delivery { at: t, ballot, m: deliver.m, sent: 0 });
                    }
                    EventKind::Epoch { ballot, leader, .. } => groups[group].epochs.push((t, ballot, leader.0)),
                    _ => {}
                }
            }
        }
        for group in &mut groups {
            group.deliveries.sort_unstable_by_key(|delivery| delivery.at);
            group
                .deliveries
                .iter_mut()
                .for_each(|delivery| delivery.sent = sent.get(&delivery.m).copied().unwrap_or(0));
            group.epochs.sort_unstable();
        }
        let leaders = kills.iter().filter(|kill| kill.role == Role::Leader);
        let found: Vec<_> = leaders.map(|kill| groups.get(kill.group).and_then(|group| group.outage(kill))).collect();
        let ns: Vec<u64> = found.iter().copied().flatten().collect();
        Ok(Outages { unobserved: (found.len() - ns.len()) as u64, ns })
    }
}

impl Group {
    /// Returns the outage of a kill. Returns `None` if the process did not lead when it was killed, or if no delivery
    /// ends the outage.
    fn outage(&self, kill: &Kill) -> Option<u64> {
        let (_, ballot, leader) = self.epochs.iter().copied().filter(|(t, ..)| *t <= kill.at).max_by_key(|e| e.1)?;
        if leader != u32::from(kill.process.0) {
            return None;
        }
        let first = self.deliveries.iter().find(|delivery| delivery.sent > kill.at && delivery.ballot > ballot)?;
        Some(first.at - kill.at)
    }
}

#[cfg(test)]
mod tests {
    use stentor_checker::Process;
    use stentor_fabric::ProcessId;

    use super::*;

    #[test]
    fn outage_ends_with_the_first_later_ballot_delivery_sent_after_the_kill() {
        let m = MessageId { client: Process(0), sequence: 1 };
        let delivery = |(at, ballot, sent)| Delivery { at, ballot, m, sent };
        let deliveries = [(10, 1, 9), (20, 1, 9), (24, 1, 23), (90, 2, 21), (95, 2, 30), (99, 1, 30)];
        let group = Group { deliveries: deliveries.map(delivery).into(), epochs: vec![(1, 1, 0), (80, 2, 1)] };
        let kill =
            |process, at| Kill { role: Role::Leader, group: 0, process: ProcessId(process), at, restarted: 0, back: 0 };
        // Deliveries of earlier messages do not count, nor do deliveries in the dead leader's ballot.
        assert_eq!(group.outage(&kill(0, 22)), Some(95 - 22));
        assert_eq!(group.outage(&kill(1, 22)), None, "the process did not lead");
        assert_eq!(group.outage(&kill(1, 92)), None, "nothing was delivered afterwards");
    }
}
