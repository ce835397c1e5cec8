//! What is kept of broadcasts, in the order in which it was recorded.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use crate::event::{Broadcast, Event, EventKind};
use crate::ids::Process;
use crate::log::{Kept, Origin};
use crate::view::View;

/// A stream's index: sender and number.
pub(crate) type Index = (Process, u64);

/// A delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delivered {
    pub(crate) broadcast: Broadcast,
    pub(crate) kept: Kept,
}

/// One step of a stream at one process.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// A delivery, by its place in [`Broadcasts::deliveries`].
    Delivered(u32),
    /// Indices skipped, by the place in [`Broadcasts::skips`].
    Skipped(u32),
    /// Evidence against the sender, by the place in [`Broadcasts::evidence`].
    Convicted(u32),
    /// The sender was removed, by the place in [`Broadcasts::removals`].
    Removed(u32),
}

/// Everything about broadcasts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Broadcasts {
    /// First record of each broadcast.
    pub(crate) sent: BTreeMap<Index, Kept>,
    /// Further records of an index, with the same payload or another.
    pub(crate) again: Vec<Kept>,
    pub(crate) deliveries: Vec<Delivered>,
    pub(crate) skips: Vec<Kept>,
    pub(crate) evidence: Vec<Kept>,
    pub(crate) removals: Vec<Kept>,
    /// By process and incarnation, and sender.
    pub(crate) streams: BTreeMap<(Process, u64, Process), Vec<Step>>,
    /// Deliveries of each index.
    pub(crate) by_index: HashMap<Index, Vec<u32>>,
    /// The last index that a sender is known to have broadcast.
    last: HashMap<Process, u64>,
}

impl Broadcasts {
    /// Takes in an event, if it is about broadcasts.
    pub(crate) fn record(&mut self, event: &Event, origin: Origin) {
        let kept = Kept { event: *event, origin };
        match event.kind {
            EventKind::Broadcast(broadcast) => {
                match self.sent.entry((broadcast.sender, broadcast.index)) {
                    Entry::Vacant(vacant) => {
                        vacant.insert(kept);
                    }
                    Entry::Occupied(_) => self.again.push(kept),
                }
                let last = self.last.entry(broadcast.sender).or_default();
                *last = (*last).max(broadcast.index);
            }
            EventKind::Bdeliver(broadcast) => {
                let place = self.deliveries.len() as u32;
                self.deliveries.push(Delivered { broadcast, kept });
                self.by_index.entry((broadcast.sender, broadcast.index)).or_default().push(place);
                self.step(event, broadcast.sender, Step::Delivered(place));
            }
            EventKind::Skip { sender, .. } => {
                self.skips.push(kept);
                self.step(event, sender, Step::Skipped(self.skips.len() as u32 - 1));
            }
            EventKind::Equivocation { sender, .. } => {
                self.evidence.push(kept);
                self.step(event, sender, Step::Convicted(self.evidence.len() as u32 - 1));
            }
            EventKind::Removed { sender, .. } => {
                self.removals.push(kept);
                self.step(event, sender, Step::Removed(self.removals.len() as u32 - 1));
            }
            _ => {}
        }
    }

    /// Who was removed, and from which index on: as a process says that does not lie.
    pub(crate) fn removed<'a>(&'a self, view: &'a View<'_>) -> impl Iterator<Item = (Process, u64, &'a Kept)> {
        let honest = self.removals.iter().filter(|kept| !view.cluster.is_faulty(kept.event.process));
        honest.filter_map(|kept| match kept.event.kind {
            EventKind::Removed { sender, upto } => Some((sender, upto, kept)),
            _ => None,
        })
    }

    /// Whether an operator removed a process.
    pub(crate) fn is_removed(&self, view: &View<'_>, process: Process) -> bool {
        self.removed(view).any(|(removed, ..)| removed == process)
    }

    fn step(&mut self, event: &Event, sender: Process, step: Step) {
        self.streams.entry((event.process, event.incarnation, sender)).or_default().push(step);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.deliveries.is_empty() && self.skips.is_empty() && self.evidence.is_empty()
    }

    pub(crate) fn sent_count(&self) -> u64 {
        self.sent.len() as u64
    }

    /// The last index that a sender broadcast.
    pub(crate) fn last_of(&self, sender: Process) -> Option<u64> {
        self.last.get(&sender).copied()
    }

    /// The range of a skip.
    pub(crate) fn range(&self, skip: u32) -> (u64, u64) {
        match self.skips[skip as usize].event.kind {
            EventKind::Skip { from, to, .. } => (from, to),
            _ => (1, 0),
        }
    }
}

/// Whether a process keeps to the protocol, and was up and a member at the end.
pub(crate) fn is_correct(view: &View<'_>, broadcasts: &Broadcasts, process: Process) -> bool {
    !view.cluster.is_faulty(process) && view.log.is_up(process) && !broadcasts.is_removed(view, process)
}

/// A stream's index as text.
pub(crate) fn text(view: &View<'_>, (sender, index): Index) -> String {
    format!("[{},{index}]", view.name(sender))
}
