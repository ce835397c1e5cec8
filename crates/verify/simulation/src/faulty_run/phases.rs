//! The two phases of a run under a nemesis: one with faults, and one without, in which all work must complete.

use std::cell::RefCell;

use stentor_fabric_sim::{Due, World};

use crate::nemesis::Nemesis;
use crate::scenario::DEADLINE_NS;

/// Maximum number of steps of all processes until all messages are delivered after the faults have stopped.
pub const RECOVERY_STEPS: u64 = 300_000;

/// The progress of a run through its phases.
#[derive(Debug, Default)]
pub(crate) struct Phases {
    /// Number of steps of all processes.
    steps: u64,
    /// Number of steps when the faults stopped.
    stopped_at: Option<u64>,
}

impl Phases {
    /// Lets the nemesis act until another event is due, and returns that event. Stops the faults at the end of the
    /// first phase. Returns `None` if nothing is due before the deadline.
    pub(crate) fn next(&mut self, world: &World, nemesis: &RefCell<Nemesis>) -> Option<Due> {
        loop {
            let now = world.now_ns();
            if self.stopped_at.is_none() && now >= Nemesis::UNTIL_NS {
                self.stopped_at = Some(self.steps);
                nemesis.borrow_mut().stop(now);
            }
            let end = if self.stopped_at.is_none() { Nemesis::UNTIL_NS } else { DEADLINE_NS };
            let acts = nemesis.borrow().next_at().filter(|at| *at <= end);
            match world.next(acts.unwrap_or(end)) {
                Some(due) => return Some(due),
                None if acts.is_some() => nemesis.borrow_mut().act(),
                None if self.stopped_at.is_some() => return None,
                None => world.advance(Nemesis::UNTIL_NS.saturating_sub(now).max(1)),
            }
        }
    }

    /// Counts a step of a process.
    pub(crate) fn stepped(&mut self) {
        self.steps += 1;
    }

    /// Returns the number of steps of all processes.
    pub(crate) fn steps(&self) -> u64 {
        self.steps
    }

    /// Returns the number of steps since the faults stopped, or `None` in the first phase.
    pub(crate) fn recovery_steps(&self) -> Option<u64> {
        self.stopped_at.map(|at| self.steps - at)
    }
}
