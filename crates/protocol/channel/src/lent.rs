//! Bookkeeping of outstanding operations.

use std::collections::VecDeque;

use crate::command::{Op, Way};
use crate::config::CONTROLS;
use crate::{Config, Kind};

/// Operations of a connection that are outstanding at the fabric.
///
/// # Invariants
/// - `recvs` is the number of slots set in `posted`, unless the fabric completes a receive that was not posted.
/// - Every receive in `to_cancel` was posted when it was queued there.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lent {
    /// Posted receives, by kind and slot.
    posted: [Box<[bool]>; 4],
    /// Receives to cancel.
    to_cancel: VecDeque<Op>,
    sends: u32,
    recvs: u32,
}

impl Lent {
    pub(crate) fn new(config: &Config) -> Self {
        let places = [config.lengths + config.spare(), config.pieces, CONTROLS, 1];
        let posted = places.map(|places| vec![false; places as usize].into());
        Lent { posted, to_cancel: VecDeque::new(), sends: 0, recvs: 0 }
    }

    /// Returns the number of outstanding operations.
    pub(crate) fn total(&self) -> u32 {
        self.sends + self.recvs
    }

    /// Returns the number of outstanding sends.
    pub(crate) fn sends(&self) -> u32 {
        self.sends
    }

    /// Counts a send that is posted.
    #[inline]
    pub(crate) fn send(&mut self) {
        self.sends += 1;
    }

    /// Records a receive that is posted.
    #[inline]
    pub(crate) fn recv(&mut self, op: Op) {
        self.posted[op.kind.index()][usize::from(op.place)] = true;
        self.recvs += 1;
    }

    /// Records the completion of a receive for lengths, which must be posted.
    #[inline]
    pub(crate) fn length_came(&mut self, place: u16) {
        self.recvs -= 1;
        self.posted[Kind::Length.index()][usize::from(place)] = false;
    }

    /// Records the completion of an operation.
    pub(crate) fn gave_back(&mut self, op: Op) {
        match op.way {
            Way::Send => self.sends = self.sends.saturating_sub(1),
            Way::Recv => {
                self.recvs = self.recvs.saturating_sub(1);
                if let Some(posted) = self.posted[op.kind.index()].get_mut(usize::from(op.place)) {
                    *posted = false;
                }
            }
        }
    }

    /// Returns whether this receive is posted.
    #[inline]
    pub(crate) fn has(&self, op: Op) -> bool {
        op.way == Way::Recv && self.posted[op.kind.index()].get(usize::from(op.place)).is_some_and(|posted| *posted)
    }

    /// Records that all receives have been returned unused.
    pub(crate) fn give_back_receives(&mut self) {
        for posted in self.posted.iter_mut().flatten() {
            self.recvs -= u32::from(std::mem::take(posted));
        }
    }

    /// Queues all posted receives for cancellation, except the receive for the peer's hello if the hello is still
    /// `awaited`.
    pub(crate) fn ask_back(&mut self, awaited: bool) {
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Greeting || !awaited) {
            let posted = self.posted[kind.index()].iter().enumerate().filter(|(_, posted)| **posted);
            self.to_cancel.extend(posted.map(|(place, _)| Op { way: Way::Recv, kind, place: place as u16 }));
        }
    }

    /// Returns the next receive to cancel.
    pub(crate) fn next_cancel(&mut self) -> Option<Op> {
        self.to_cancel.pop_front()
    }

    /// Discards the queue of receives to cancel, because a broken queue pair flushes all receives.
    pub(crate) fn forget_cancels(&mut self) {
        self.to_cancel.clear();
    }
}
