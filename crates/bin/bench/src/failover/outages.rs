//! What the histories say about the time without deliveries after a leader was killed.

use std::path::PathBuf;

use stentor_checker::{Event, EventKind};
use stentor_support::Failure;
use stentor_support::live::read_history;

use super::rounds::{Kill, Role};

/// What was read.
#[derive(Debug)]
pub(super) struct Outages {
    /// From the last delivery in the dead leader's group before the first one in a later ballot, until that one.
    pub(super) ns: Vec<u64>,
    /// Kills of processes that were taken for a leader and led no more.
    pub(super) unobserved: u64,
}

/// What happened in one group, by time.
#[derive(Default)]
struct Group {
    /// Time and number of the ballot.
    deliveries: Vec<(u64, u64)>,
    /// Time, number of the ballot, who leads.
    epochs: Vec<(u64, u64, u32)>,
}

impl Outages {
    pub(super) fn read(files: &[PathBuf], kills: &[Kill]) -> Result<Self, Failure> {
        let mut groups: Vec<Group> = Vec::new();
        for path in files {
            let (mut reader, mut cluster) = read_history(path)?;
            while let Some(Event { t, kind, .. }) = reader.next_event(&mut cluster)? {
                let group = match &kind {
                    EventKind::Deliver(deliver) => deliver.group.index(),
                    EventKind::Epoch { group, .. } => group.index(),
                    _ => continue,
                };
                if groups.len() <= group {
                    groups.resize_with(group + 1, Group::default);
                }
                match kind {
                    EventKind::Deliver(deliver) => {
                        let ballot = deliver.ballot.map_or(0, |ballot| ballot.number);
                        groups[group].deliveries.push((t, ballot));
                    }
                    EventKind::Epoch { ballot, leader, .. } => groups[group].epochs.push((t, ballot, leader.0)),
                    _ => {}
                }
            }
        }
        for group in &mut groups {
            group.deliveries.sort_unstable();
            group.epochs.sort_unstable();
        }
        let leaders = kills.iter().filter(|kill| kill.role == Role::Leader);
        let found: Vec<_> = leaders.map(|kill| groups.get(kill.group).and_then(|group| group.outage(kill))).collect();
        let ns: Vec<u64> = found.iter().copied().flatten().collect();
        Ok(Outages { unobserved: (found.len() - ns.len()) as u64, ns })
    }
}

impl Group {
    /// `None`, if the process did not lead when it was killed.
    fn outage(&self, kill: &Kill) -> Option<u64> {
        let (_, ballot, leader) = self.epochs.iter().copied().filter(|(t, ..)| *t <= kill.at).max_by_key(|e| e.1)?;
        if leader != u32::from(kill.process.0) {
            return None;
        }
        let first = self.deliveries.iter().find(|(t, number)| *t > kill.at && *number > ballot)?.0;
        let last = self.deliveries.iter().rev().find(|(t, _)| *t < first)?.0;
        Some(first - last)
    }
}

#[cfg(test)]
mod tests {
    use stentor_fabric::ProcessId;

    use super::*;

    #[test]
    fn an_outage_ends_with_the_first_delivery_of_a_later_ballot() {
        let group = Group {
            deliveries: vec![(10, 1), (20, 1), (24, 1), (90, 2), (95, 2), (99, 1)],
            epochs: vec![(1, 1, 0), (80, 2, 1)],
        };
        let kill =
            |process, at| Kill { role: Role::Leader, group: 0, process: ProcessId(process), at, restarted: 0, back: 0 };
        // What was decided before still arrived after the kill.
        assert_eq!(group.outage(&kill(0, 22)), Some(90 - 24));
        assert_eq!(group.outage(&kill(1, 22)), None, "it did not lead");
        assert_eq!(group.outage(&kill(1, 92)), None, "nothing came after");
    }
}
