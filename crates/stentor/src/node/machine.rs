//! A state machine as the application of a member.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use stentor_fabric::WaitMode;
use stentor_multicast::{self as multicast, Application, ClientId, Delivered, Readiness, RestoreError, StateReader};

use super::apply::{Applier, ApplyThread, Bounds, Looks, Progress, Queue, Record, Replies};
use crate::Group;
use crate::state_machine::StateMachine;

/// The place of a command in the global order, as one group applies it. Places compare as the global order does. A command has the same
/// time and the same group of its time in all groups that apply it; the index is each group's own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub struct Position {
    /// The time at which the command was ordered, nanoseconds since 1970 where the clocks of most members are right.
    pub time: u64,
    /// The group that gave the time. Commands of two groups may have the same time, and this tells them apart.
    pub group: Group,
    /// The number of the command in the group that applies it, from 1.
    pub index: u64,
}

/// A machine, as the protocol's thread sees it.
pub(super) struct Machine<S> {
    side: Side<S>,
    progress: Arc<Progress>,
    looks: Looks<S>,
}

/// Where the machine runs.
enum Side<S> {
    /// Behind a queue, on a thread of its own.
    Own(Queue<S>),
    /// On this thread. What it replied in this round is kept.
    Here(Box<Applier<S>>, Vec<u8>),
}

impl<S: StateMachine> Machine<S> {
    pub(super) fn start(applier: Applier<S>, on: ApplyThread, bounds: Bounds, wait: WaitMode) -> io::Result<Self> {
        let (progress, looks) = (Arc::clone(applier.progress()), applier.looks().clone());
        let side = match on {
            ApplyThread::Own => Side::Own(Queue::start(applier, bounds, wait)?),
            ApplyThread::Protocol => Side::Here(Box::new(applier), Vec::new()),
        };
        Ok(Machine { side, progress, looks })
    }

    pub(super) fn progress(&self) -> &Progress {
        &self.progress
    }

    pub(super) fn looks(&self) -> &Looks<S> {
        &self.looks
    }

    /// Takes what was applied, before a round of the protocol.
    #[inline]
    pub(super) fn begin_round(&mut self, replied: impl FnMut(Replies<'_>)) {
        if let Side::Own(queue) = &mut self.side {
            queue.begin_round(replied);
        }
    }

    /// Hands over what was delivered, after a round of the protocol.
    #[inline]
    pub(super) fn end_round(&mut self, mut replied: impl FnMut(Replies<'_>)) {
        match &mut self.side {
            Side::Own(queue) => queue.end_round(),
            Side::Here(applier, replies) => {
                applier.answer();
                if !replies.is_empty() {
                    replied(Replies(replies));
                    replies.clear();
                }
            }
        }
    }

    /// Answers who asks, if the machine is on this thread.
    pub(super) fn answer(&self) {
        if let Side::Here(applier, _) = &self.side {
            applier.answer();
        }
    }

    /// Returns how long this thread may sleep, as far as the machine goes.
    #[inline]
    pub(super) fn longest_sleep(&self) -> std::time::Duration {
        match &self.side {
            Side::Own(queue) => queue.longest_sleep(),
            Side::Here(..) => std::time::Duration::MAX,
        }
    }

    /// Has the replies said again that this client has not acknowledged.
    pub(super) fn say_again(&mut self, client: ClientId) {
        match &mut self.side {
            Side::Own(queue) => queue.say_again(client),
            Side::Here(applier, replies) => applier.say_again(client, replies),
        }
    }

    /// Begins with the first value, after a panic.
    pub(super) fn start_over(&mut self) {
        match &mut self.side {
            Side::Own(queue) => queue.start_over(),
            Side::Here(applier, _) => applier.restore(0, VecDeque::new()),
        }
    }

    /// Returns the applier after everything that was delivered.
    ///
    /// # Errors
    /// The number of commands that are not applied, if that takes too long.
    pub(super) fn stop(self) -> Result<Applier<S>, usize> {
        match self.side {
            Side::Own(queue) => queue.stop(),
            Side::Here(applier, _) => Ok(*applier),
        }
    }
}

impl<S: StateMachine> Application for Machine<S> {
    #[inline]
    fn deliver(&mut self, delivered: &Delivered<'_>) {
        let record = Record::of(delivered);
        match &mut self.side {
            Side::Own(queue) => queue.push(&record),
            Side::Here(applier, replies) => applier.apply(&record, replies),
        }
    }

    #[inline]
    fn has_room(&self) -> bool {
        match &self.side {
            Side::Own(queue) => queue.has_room(),
            Side::Here(..) => !self.progress.is_ill(),
        }
    }

    fn freeze(&mut self) -> Box<dyn multicast::Frozen> {
        match &mut self.side {
            Side::Own(queue) => queue.freeze(),
            Side::Here(applier, _) => {
                applier.freeze().map_or_else(|| Box::new(Unfrozen) as _, |state| Box::new(state) as _)
            }
        }
    }

    /// Has the state taken over. A failure ends the node, which finds it in the [`Progress`].
    fn restore_from(&mut self, number: u64, state: &mut StateReader<'_>) -> Result<(), RestoreError> {
        let chunks = std::iter::from_fn(|| state.next_chunk()).collect();
        match &mut self.side {
            Side::Own(queue) => queue.restore(number, chunks),
            Side::Here(applier, _) => applier.restore(number, chunks),
        }
        Ok(())
    }
}

/// The state of a machine that is poisoned.
struct Unfrozen;

impl multicast::Frozen for Unfrozen {
    fn read(&mut self, _: &mut Vec<u8>, _: usize) {}

    fn readiness(&mut self) -> Readiness {
        Readiness::Failed
    }
}
