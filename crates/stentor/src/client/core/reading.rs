//! Reads that have no place in the global order.

use std::sync::Arc;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_multicast::{GroupId, Topology};
use stentor_session::{ReadOutcome, Reader, ReaderError, ReplyRecord};

use super::{Core, Finished, Name};
use crate::Group;
use crate::client::leaders::Leaders;
use crate::client::{Consistency, Outcome, Refused, Why, fates};
use crate::runtime::FabricDiagnostics;

/// A client's reads in flight, the random word in their names, and the members that answered as leaders.
pub(super) struct Reading {
    reader: Reader,
    word: u64,
    pub(super) leaders: Arc<Leaders>,
}

impl Reading {
    /// Creates the state of a client with at most `most` reads in flight. `word` is random.
    pub(super) fn new(topology: &Topology, most: usize, word: u64) -> Self {
        Reading { reader: Reader::new(topology, most, word), word, leaders: Arc::new(Leaders::new(topology.groups())) }
    }

    fn name(&self, request: u64) -> Name {
        Name { generation: Name::READ, word: self.word, request }
    }

    /// Processes an answer to a read, and notes the leader that has answered it.
    #[inline]
    pub(super) fn take(
        &mut self,
        now: Duration,
        (topology, from): (&Topology, ProcessId),
        record: &ReplyRecord<'_>,
        each: &mut impl FnMut(Finished<'_>),
    ) {
        if let Some((name, outcome)) = self.reader.on_reply(now, from, topology, record) {
            if let ReadOutcome::Answered { group, is_led: true, .. } = outcome {
                self.leaders.note(group, from);
            }
            each(Finished { name: self.name(name), outcome: fates::read(outcome) });
        }
    }

    /// Ends the reads of the matching groups as not applied, for the reason `why`.
    pub(super) fn give_up(
        &mut self,
        is_meant: impl Fn(GroupId) -> bool,
        why: Why,
        each: &mut impl FnMut(Finished<'_>),
    ) {
        let refused = match why {
            Why::GroupReset(group) => Refused::GroupReset(group),
            Why::Halted(group) => Refused::Halted(group),
            Why::Superseded => Refused::Superseded,
            _ => Refused::Closed,
        };
        let word = self.word;
        self.reader.give_up_all(is_meant, |request| {
            let name = Name { generation: Name::READ, word, request };
            each(Finished { name, outcome: Outcome::NotApplied(refused) });
        });
    }
}

impl Name {
    /// The generation number of reads. No session has this generation.
    const READ: u32 = 0;

    /// Returns whether this is the name of a read outside the order.
    #[inline]
    pub(in crate::client) fn is_read(&self) -> bool {
        self.generation == Name::READ
    }
}

impl<F: FabricDiagnostics> Core<F> {
    /// Sends a query outside the order. Returns its name.
    pub(in crate::client) fn read(&mut self, how: Consistency, to: &[GroupId], query: &[u8]) -> Result<Name, Refused> {
        let [group] = *to else { return Err(if to.is_empty() { Refused::NoGroups } else { Refused::OneGroupOnly }) };
        if !self.plan.topology().has_group(group) {
            return Err(Refused::NoGroups);
        }
        if query.len() > self.longest {
            return Err(Refused::TooLong { bytes: query.len(), limit: self.longest });
        }
        let now = self.housekeeper.now();
        if let Some(group) = self.halts.find(to, now) {
            return Err(Refused::Halted(Group(group)));
        }
        let guarantee = how.guarantee(group, self.order_time);
        match self.reading.reader.begin(&mut self.client, now, (group, guarantee), query) {
            Ok(name) => Ok(self.reading.name(name)),
            Err(ReaderError::TooLong(bytes)) => Err(Refused::TooLong { bytes, limit: self.longest }),
            Err(ReaderError::Busy) => Err(Refused::Busy(Group(group))),
            Err(_) => {
                // No member of the group is connected. Request admission.
                self.opens(group);
                Err(Refused::Unavailable(Group(group)))
            }
        }
    }

    /// Forgets a read for whose answer no caller waits any more.
    pub(in crate::client) fn forget_read(&mut self, name: u64) {
        self.reading.reader.give_up(name);
    }

    /// Sends the queries that are pending. With `all`, also resends those that may have been lost.
    #[inline]
    pub(super) fn look_for_reads(&mut self, all: bool) {
        let now = self.housekeeper.now();
        self.reading.reader.look(&mut self.client, now, all);
    }
}
