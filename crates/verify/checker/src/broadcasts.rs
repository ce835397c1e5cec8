//! What is kept of broadcasts, in the order in which it was recorded.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use crate::event::{Broadcast, Event, EventKind};
use crate::ids::Process;
use crate::log::{Kept, Origin};
use crate::view::View;

/// A stream's index: sender and number.
pub(crate) type Index = (Process, u64);

/// Everything about broadcasts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Broadcasts {
    /// First record of each broadcast.
    pub(crate) sent: BTreeMap<Index, Kept>,
    /// Further records of an index, with the same payload or another.
    pub(crate) again: Vec<Kept>,
    /// What processes made of streams: deliveries, skips, evidence and removals.
    steps: Vec<Kept>,
    removals: Vec<Kept>,
    /// By process and incarnation, and sender: the places of its steps.
    pub(crate) streams: BTreeMap<(Process, u64, Process), Vec<u32>>,
    /// Deliveries of each index, by their places.
    pub(crate) by_index: HashMap<Index, Vec<u32>>,
    /// The last index that a sender is known to have broadcast.
    last: HashMap<Process, u64>,
}

impl Broadcasts {
    /// Takes in an event, if it is about broadcasts.
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

    /// The steps at these places.
    pub(crate) fn steps<'a>(&'a self, places: &'a [u32]) -> impl Iterator<Item = &'a Kept> {
        places.iter().map(|place| &self.steps[*place as usize])
    }

    /// All steps.
    pub(crate) fn all_steps(&self) -> &[Kept] {
        &self.steps
    }

    /// All deliveries.
    pub(crate) fn deliveries(&self) -> impl Iterator<Item = (Broadcast, &Kept)> {
        self.steps.iter().filter_map(|kept| delivered(kept).map(|broadcast| (broadcast, kept)))
    }

    pub(crate) fn has_deliveries(&self) -> bool {
        !self.by_index.is_empty()
    }

    /// Number of steps of a kind.
    pub(crate) fn count(&self, is_one: impl Fn(&EventKind) -> bool) -> u64 {
        self.steps.iter().filter(|kept| is_one(&kept.event.kind)).count() as u64
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

    pub(crate) fn is_empty(&self) -> bool {
        self.sent.is_empty() && self.steps.len() == self.removals.len()
    }

    pub(crate) fn sent_count(&self) -> u64 {
        self.sent.len() as u64
    }

    /// The last index that a sender broadcast.
    pub(crate) fn last_of(&self, sender: Process) -> Option<u64> {
        self.last.get(&sender).copied()
    }
}

/// What a step delivered, if it is a delivery.
pub(crate) fn delivered(kept: &Kept) -> Option<Broadcast> {
    if let EventKind::Bdeliver(broadcast) = kept.event.kind { Some(broadcast) } else { None }
}

/// Whether a process keeps to the protocol, and was up and a member at the end.
pub(crate) fn is_correct(view: &View<'_>, broadcasts: &Broadcasts, process: Process) -> bool {
    !view.cluster.is_faulty(process) && view.log.is_up(process) && !broadcasts.is_removed(view, process)
}

/// A stream's index as text.
pub(crate) fn text(view: &View<'_>, (sender, index): Index) -> String {
    format!("[{},{index}]", view.name(sender))
}
