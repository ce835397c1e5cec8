//! An index of the recorded broadcast events, in the order in which they were recorded. The B properties read it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use crate::event::{Broadcast, Event, EventKind};
use crate::ids::Process;
use crate::log::{Kept, Origin};
use crate::view::View;

/// An index in a stream: the sender and the number of the broadcast.
pub(crate) type Index = (Process, u64);

/// All recorded events of the broadcast.
#[derive(Clone, Debug, Default)]
pub(crate) struct Broadcasts {
    /// The first record of each broadcast.
    pub(crate) sent: BTreeMap<Index, Kept>,
    /// Further records of an index that was already broadcast, with the same payload or with another.
    pub(crate) again: Vec<Kept>,
    /// The events of receivers on streams: deliveries, skips, evidence and removals.
    steps: Vec<Kept>,
    removals: Vec<Kept>,
    /// Indices into `steps`, by process, its life, and sender.
    pub(crate) streams: BTreeMap<(Process, u64, Process), Vec<u32>>,
    /// Indices of the deliveries in `steps`, by sender and number.
    pub(crate) by_index: HashMap<Index, Vec<u32>>,
    /// The last index that each sender is known to have broadcast.
    last: HashMap<Process, u64>,
}

impl Broadcasts {
    /// Records an event if it is a broadcast event.
    pub(crate) fn record(&mut self, event: &Event, origin: Origin) {
        let (kept, place) = (Kept { event: *event, origin }, self.steps.len() as u32);
        let sender = match event.kind {
            EventKind::Broadcast(Broadcast { sender, index, .. }) => {
                match self.sent.entry((sender, index)) {
                    Entry::Vacant(vacant) => {
                        vacant.insert(kept);
                    }
                    Entry::Occupied(_) => self.again.push(kept),
                }
                let last = self.last.entry(sender).or_default();
                *last = (*last).max(index);
                return;
            }
            EventKind::Bdeliver(Broadcast { sender, index, .. }) => {
                self.by_index.entry((sender, index)).or_default().push(place);
                sender
            }
            EventKind::Removed { sender, .. } => {
                self.removals.push(kept);
                sender
            }
            EventKind::Skip { sender, .. } | EventKind::Equivocation { sender, .. } => sender,
            _ => return,
        };
        self.steps.push(kept);
        self.streams.entry((event.process, event.incarnation, sender)).or_default().push(place);
    }

    /// Returns the steps at these indices.
    pub(crate) fn steps<'a>(&'a self, places: &'a [u32]) -> impl Iterator<Item = &'a Kept> {
        places.iter().map(|place| &self.steps[*place as usize])
    }

    /// Returns all steps.
    pub(crate) fn all_steps(&self) -> &[Kept] {
        &self.steps
    }

    /// Returns all deliveries.
    pub(crate) fn deliveries(&self) -> impl Iterator<Item = (Broadcast, &Kept)> {
        self.steps.iter().filter_map(|kept| delivered(kept).map(|broadcast| (broadcast, kept)))
    }

    pub(crate) fn has_deliveries(&self) -> bool {
        !self.by_index.is_empty()
    }

    /// Returns the number of steps of a kind.
    pub(crate) fn count(&self, is_one: impl Fn(&EventKind) -> bool) -> u64 {
        self.steps.iter().filter(|kept| is_one(&kept.event.kind)).count() as u64
    }

    /// Returns the removed processes, each with its first undelivered index, as recorded by processes that are not
    /// faulty.
    pub(crate) fn removed<'a>(&'a self, view: &'a View<'_>) -> impl Iterator<Item = (Process, u64, &'a Kept)> {
        let honest = self.removals.iter().filter(|kept| !view.cluster.is_faulty(kept.event.process));
        honest.filter_map(|kept| match kept.event.kind {
            EventKind::Removed { sender, upto } => Some((sender, upto, kept)),
            _ => None,
        })
    }

    /// Returns whether an operator removed the process.
    pub(crate) fn is_removed(&self, view: &View<'_>, process: Process) -> bool {
        self.removed(view).any(|(removed, ..)| removed == process)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.steps.len() == self.removals.len()
    }

    pub(crate) fn sent_count(&self) -> u64 {
        self.sent.len() as u64
    }

    /// Returns the last index that the sender broadcast.
    pub(crate) fn last_of(&self, sender: Process) -> Option<u64> {
        self.last.get(&sender).copied()
    }
}

/// Returns the broadcast that a step delivered, or `None` if the step is no delivery.
pub(crate) fn delivered(kept: &Kept) -> Option<Broadcast> {
    if let EventKind::Bdeliver(broadcast) = kept.event.kind { Some(broadcast) } else { None }
}

/// Returns whether the process follows the protocol, and was up and a member at the end.
pub(crate) fn is_correct(view: &View<'_>, broadcasts: &Broadcasts, process: Process) -> bool {
    !view.cluster.is_faulty(process) && view.log.is_up(process) && !broadcasts.is_removed(view, process)
}

/// Formats the index of a stream.
pub(crate) fn text(view: &View<'_>, (sender, index): Index) -> String {
    format!("[{},{index}]", view.name(sender))
}
