//! Which records of a run were given: where one is missing, what it would say is not known.

use std::collections::{HashMap, HashSet};

use crate::ids::{MessageId, Process};
use crate::log::{Delivery, Log};
use crate::runs::Start;

/// What is known of the files of a run besides their events.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// Processes that have a record among them.
    pub(crate) recorded: HashSet<Process>,
    /// Some file says whose record it is, so each process has one of its own, also one to which nothing happened.
    pub(crate) by_process: bool,
    /// Processes whose record ends before they did; `None`: the record of everybody.
    pub(crate) ended_early: HashSet<Option<Process>>,
    /// The lives of processes whose order is not that of their numbers, the first one first.
    pub(crate) orders: HashMap<Process, Vec<u64>>,
    /// Why the lives of some process have no order.
    pub(crate) unordered: Option<String>,
    /// The lives of all processes, file by file.
    pub(crate) starts: Vec<Start>,
}

/// Bits of a sequence that count the messages of one life of a client, as far as a reader can tell: another life may
/// have begun where the bits above them differ.
const LIFE_BITS: u32 = 32;

/// Whose records are there.
#[derive(Debug)]
pub(crate) struct Records<'a> {
    /// `None`: events were given one by one, and those are all.
    given: Option<&'a Given>,
    /// Of which lives of clients there are multicasts, by client and upper bits of their sequences. Looked at only where a
    /// message has none.
    multicasts: HashSet<(Process, u64)>,
}

fn life(id: MessageId) -> (Process, u64) {
    (id.client, id.sequence >> LIFE_BITS)
}

impl Given {
    /// Takes each process of an ended history as recorded if the process that it stands for is. `doubles`: pairs of both.
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

    /// Whether everything that happened was given.
    pub(crate) fn are_all(&self) -> bool {
        self.given.is_none()
    }

    /// Whether a multicast of this message would be among what was given.
    pub(crate) fn would_have(&self, id: MessageId) -> bool {
        self.given.is_none_or(|given| self.multicasts.contains(&life(id)) && !given.ends_early(id.client))
    }

    /// Whether the multicasts that were given of the life of this message's client all have smaller numbers, and are in another
    /// file than this delivery of it: the client's file may have been cut between two lines, which nothing in it shows.
    pub(crate) fn may_lack_the_end(&self, id: MessageId, delivery: &Delivery, log: &Log) -> bool {
        let of_life = log.messages.iter().filter(|message| life(message.id) == life(id));
        let mut sent =
            of_life.filter_map(|message| message.sent.map(|sent| (message.id.sequence, sent.origin.source())));
        let here = delivery.origin.source();
        self.given.is_some() && sent.all(|(sequence, source)| sequence < id.sequence && source != here)
    }

    /// Whether broadcasts of this process would be among what was given.
    pub(crate) fn would_have_broadcasts(&self, sender: Process) -> bool {
        self.given.is_none_or(|given| given.recorded.contains(&sender) && !given.ends_early(sender))
    }

    /// Whether deliveries at this process would be among what was given. Files that do not say whose they are may be of
    /// somebody who watched everybody: then a process without events did nothing.
    pub(crate) fn would_have_deliveries(&self, process: Process) -> bool {
        let has = |given: &Given| !given.by_process || given.recorded.contains(&process);
        self.given.is_none_or(|given| has(given) && !given.ends_early(process))
    }

    /// Whether the record of this process ends before it did.
    pub(crate) fn end_early(&self, process: Process) -> bool {
        self.given.is_some_and(|given| given.ends_early(process))
    }
}
