//! The records of a run that the checker was given. Events of a missing record are unknown, not absent.

use std::collections::{HashMap, HashSet};

use crate::ids::{MessageId, Process};
use crate::log::{Delivery, Log};
use crate::runs::Start;

/// The data about the files of a run besides their events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// Processes with a record.
    pub(crate) recorded: HashSet<Process>,
    /// `true` if some file names its author. Then each process has a record of its own, even if it has no event.
    pub(crate) by_process: bool,
    /// Processes whose record ends before their life did. `None` represents the records of all processes.
    pub(crate) ended_early: HashSet<Option<Process>>,
    /// The lives of processes whose order is not that of their numbers, first life first.
    pub(crate) orders: HashMap<Process, Vec<u64>>,
    /// The reason why the lives of some process have no order.
    pub(crate) unordered: Option<String>,
    /// The lives of all processes, file by file.
    pub(crate) starts: Vec<Start>,
}

/// Number of low bits of a sequence number that count the messages of one life of a client. A reader can only assume
/// that sequence numbers with different upper bits are of different lives.
const LIFE_BITS: u32 = 36;

/// The completeness of the given records.
#[derive(Debug)]
pub(crate) struct Records<'a> {
    /// `None` if events were passed one by one. The passed events are then the complete run.
    given: Option<&'a Given>,
    /// The lives of clients with at least one multicast, by client and upper bits of the sequence numbers. It is filled
    /// only if some message has no multicast.
    multicasts: HashSet<(Process, u64)>,
}

fn life(id: MessageId) -> (Process, u64) {
    (id.client, id.sequence >> LIFE_BITS)
}

impl Given {
    /// Copies the marks `recorded` and `ended_early` of each process to the process that represents it in an ended
    /// history. `doubles` contains pairs of a representing and a represented process.
    pub(crate) fn stand_for(&mut self, doubles: &[(Process, Process)]) {
        for (double, process) in doubles {
            if self.recorded.contains(process) {
                self.recorded.insert(*double);
            }
            if self.ended_early.contains(&Some(*process)) {
                self.ended_early.insert(Some(*double));
            }
        }
    }

    fn ends_early(&self, process: Process) -> bool {
        !self.ended_early.is_empty() && (self.ended_early.contains(&None) || self.ended_early.contains(&Some(process)))
    }
}

impl<'a> Records<'a> {
    pub(crate) fn new(given: Option<&'a Given>, log: &Log) -> Self {
        let lacks = given.is_some() && log.messages.iter().any(|message| message.sent.is_none());
        let sent = log.messages.iter().filter(|message| lacks && message.sent.is_some());
        Records { given, multicasts: sent.map(|message| life(message.id)).collect() }
    }

    /// Returns whether all events of the run were given.
    pub(crate) fn are_all(&self) -> bool {
        self.given.is_none()
    }

    /// Returns whether a multicast of this message would be in the given records.
    pub(crate) fn would_have(&self, id: MessageId) -> bool {
        self.given.is_none_or(|given| self.multicasts.contains(&life(id)) && !given.ends_early(id.client))
    }

    /// Returns whether all given multicasts of the same client's life as message `id` have smaller sequence numbers,
    /// and none of them is in the file of `delivery`. In that case the client's file may have been cut between two
    /// lines, which nothing in the file shows.
    pub(crate) fn may_lack_the_end(&self, id: MessageId, delivery: &Delivery, log: &Log) -> bool {
        let of_life = log.messages.iter().filter(|message| life(message.id) == life(id));
        let mut sent =
            of_life.filter_map(|message| message.sent.map(|sent| (message.id.sequence, sent.origin.source())));
        let here = delivery.origin.source();
        self.given.is_some() && sent.all(|(sequence, source)| sequence < id.sequence && source != here)
    }

    /// Returns whether broadcasts of this process would be in the given records.
    pub(crate) fn would_have_broadcasts(&self, sender: Process) -> bool {
        self.given.is_none_or(|given| given.recorded.contains(&sender) && !given.ends_early(sender))
    }

    /// Returns whether deliveries at this process would be in the given records. Files without an author may be from an
    /// observer of all processes, so a process without events did nothing.
    pub(crate) fn would_have_deliveries(&self, process: Process) -> bool {
        let has = |given: &Given| !given.by_process || given.recorded.contains(&process);
        self.given.is_none_or(|given| has(given) && !given.ends_early(process))
    }

    /// Returns whether the record of this process ends before its life did.
    pub(crate) fn end_early(&self, process: Process) -> bool {
        self.given.is_some_and(|given| given.ends_early(process))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Stentor's sequence numbers have the generation of a client's process above bit 36.
    #[test]
    fn sequence_numbers_of_one_generation_are_of_one_life() {
        let client = Process(0);
        let life = |sequence| life(MessageId { client, sequence });
        assert_eq!(life(0), life((1 << 36) - 1));
        assert_ne!(life(0), life(1 << 36));
    }
}
