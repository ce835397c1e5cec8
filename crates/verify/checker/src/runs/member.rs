//! A member of a group and its lives.

use super::Start;
use super::stay::Stay;
use crate::ids::{Group, Process};
use crate::log::Log;

/// A member of a group, with its lives in order.
pub(super) struct Member<'a> {
    pub(super) process: Process,
    pub(super) group: Group,
    /// The lives, in their true order.
    pub(super) stays: Vec<Stay<'a>>,
}

impl<'a> Member<'a> {
    pub(super) fn new(log: &'a Log, group: Group, process: Process, starts: &'a [Start]) -> Self {
        let lives = log.lives.get(process.index()).map_or(&[][..], Vec::as_slice);
        let own = starts.iter().filter(|start| start.process == process && start.acted);
        let mut stays: Vec<Stay<'a>> = own
            .map(|start| Stay { start, lives: lives.iter().filter(|life| Some(life.number) == start.number).collect() })
            .collect();
        let clock = stays.first().and_then(|stay| stay.start.clock.as_ref());
        if clock.is_some() && stays.iter().all(|stay| stay.start.clock.as_ref() == clock) {
            stays.sort_by_key(|stay| (stay.start.at, stay.start.events.1, stay.start.number));
        } else {
            // Without a common clock, the position of a life without a number is unknown.
            stays.retain(|stay| stay.start.number.is_some());
            stays.sort_by_key(|stay| stay.start.number.map(|number| log.rank(process, number)));
        }
        Member { process, group, stays }
    }

    /// Returns the first life after `from` that holds no earlier state, as far as its records show.
    pub(super) fn anew(&self, from: usize, log: &Log) -> Option<usize> {
        let last = self.stays.len().checked_sub(1).filter(|last| *last > from)?;
        let from_nothing = |stay: &usize| self.stays[*stay].resumed(log) == Some(0);
        let silent = self.stays[last].resumed(log).is_none();
        (from + 1..=last).find(from_nothing).or_else(|| silent.then_some(last))
    }
}
