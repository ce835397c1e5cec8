//! The sequence of deliveries of one process across its lives.

use crate::cluster::Cluster;
use crate::ids::{Group, Process};
use crate::log::Log;

/// A sequence of deliveries that one application observed. A process has one chain, unless it recovered at a point
/// before its last delivery. In that case its deliveries before the crash form an ended chain, and the part up to the
/// point of recovery begins another one.
#[derive(Clone, Debug)]
pub(crate) struct Chain {
    pub(crate) process: Process,
    /// The group that the process is a member of.
    pub(crate) group: Option<Group>,
    /// Indices into [`Log::deliveries`].
    pub(crate) deliveries: Vec<u32>,
    /// Snapshots that replaced deliveries: the index in `deliveries` before which each was installed, and the number of
    /// the last delivery that it contains, in ascending order.
    pub(crate) snapshots: Vec<(usize, u64)>,
    /// `true` if the chain lasts to the end of the history.
    pub(crate) is_last: bool,
}

impl Chain {
    /// Returns the number of the last delivery, including those in snapshots.
    fn last_number(&self, log: &Log) -> u64 {
        match self.snapshots.last() {
            Some((at, from)) if *at == self.deliveries.len() => *from,
            _ => self.deliveries.last().map_or(0, |d| log.deliveries[*d as usize].deliver.number),
        }
    }

    /// Drops all deliveries after delivery `from`.
    fn roll_back(&mut self, from: u64, log: &Log) {
        while self.last_number(log) > from {
            let at_end = self.snapshots.last().is_some_and(|(at, _)| *at == self.deliveries.len());
            if at_end {
                self.snapshots.pop();
            } else {
                self.deliveries.pop();
            }
        }
    }

    /// Returns the number of the last delivery that a snapshot contained.
    pub(crate) fn covered_by_snapshot(&self) -> u64 {
        self.snapshots.iter().map(|(_, from)| *from).max().unwrap_or(0)
    }

    /// Returns the number that the delivery at this index must follow.
    pub(crate) fn number_before(&self, at: usize, log: &Log) -> u64 {
        let snapshot = self.snapshots.partition_point(|(place, _)| *place <= at).checked_sub(1);
        match snapshot.map(|index| self.snapshots[index]) {
            Some((place, from)) if place == at => from,
            _ if at == 0 => 0,
            _ => log.deliveries[self.deliveries[at - 1] as usize].deliver.number,
        }
    }
}

/// Returns the chains, by process, of all processes that delivered anything or installed a snapshot.
pub(crate) fn chains(log: &Log, cluster: &Cluster) -> Vec<Chain> {
    let mut chains = Vec::new();
    for (index, lives) in log.lives.iter().enumerate() {
        let process = Process(index as u32);
        let group = cluster.group_of(process);
        let mut chain = Chain { process, group, deliveries: Vec::new(), snapshots: Vec::new(), is_last: false };
        for life in lives {
            if let Some(from) = life.recovered.map(|recovered| recovered.from) {
                if from < chain.last_number(log) {
                    chains.push(chain.clone());
                    chain.roll_back(from, log);
                }
                if from > chain.last_number(log) {
                    chain.snapshots.push((chain.deliveries.len(), from));
                }
            }
            chain.deliveries.extend_from_slice(&life.deliveries);
        }
        if !chain.deliveries.is_empty() || !chain.snapshots.is_empty() {
            chains.push(Chain { is_last: true, ..chain });
        }
    }
    chains
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Deliver, Event, EventKind};
    use crate::ids::{MessageId, Timestamp};
    use crate::log::Origin;

    fn log(events: &[(u64, EventKind)]) -> (Log, Cluster) {
        let cluster = Cluster::builder().group("g", ["p"]).build().unwrap();
        let mut log = Log::default();
        for (incarnation, kind) in events {
            let event = Event { t: 0, process: Process(0), incarnation: *incarnation, kind: *kind };
            log.record(&event, Origin::new(0, 0));
        }
        (log, cluster)
    }

    fn delivery(number: u64) -> EventKind {
        let m = MessageId { client: Process(0), sequence: number };
        let ts = Timestamp { time: number, group: Group(0) };
        EventKind::Deliver(Deliver { m, group: Group(0), number, ts, hash: 0, len: None, ballot: None })
    }

    #[test]
    fn a_process_that_resumes_where_it_was_has_one_chain() {
        let recover = EventKind::Recover { from: 2 };
        let (log, cluster) =
            log(&[(1, delivery(1)), (1, delivery(2)), (1, EventKind::Crash), (2, recover), (2, delivery(3))]);
        let chains = chains(&log, &cluster);
        assert_eq!(chains.len(), 1);
        assert_eq!((chains[0].deliveries.len(), chains[0].snapshots.len()), (3, 0));
        assert!(log.is_up(Process(0)));
    }

    #[test]
    fn a_snapshot_ahead_replaces_deliveries() {
        let (log, cluster) = log(&[(1, delivery(1)), (2, EventKind::Recover { from: 5 }), (2, delivery(6))]);
        let chains = chains(&log, &cluster);
        assert_eq!(chains[0].snapshots, [(1, 5)]);
        assert_eq!((chains[0].number_before(1, &log), chains[0].number_before(0, &log)), (5, 0));
        assert_eq!(chains[0].covered_by_snapshot(), 5);
    }

    #[test]
    fn resuming_earlier_ends_one_chain_and_begins_another() {
        let (log, cluster) =
            log(&[(1, delivery(1)), (1, delivery(2)), (2, EventKind::Recover { from: 1 }), (2, delivery(2))]);
        let chains = chains(&log, &cluster);
        assert_eq!(
            chains.iter().map(|c| (&c.deliveries[..], c.is_last)).collect::<Vec<_>>(),
            [(&[0, 1][..], false), (&[0, 2][..], true)]
        );
    }
}
