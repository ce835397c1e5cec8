//! The operations of a connection that the fabric has.

use std::collections::VecDeque;

use crate::command::{Op, Way};
use crate::config::CONTROLS;
use crate::{Config, Kind};

/// The operations of a connection that the fabric has.
///
/// # Invariants
/// - `recvs` is the number of places in `posted`, unless the fabric gives back what it was not given.
/// - What is to be asked back is posted.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Lent {
    /// Receives, by kind and place.
    posted: [Box<[bool]>; 4],
    /// Receives to ask back.
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

    /// All of them.
    pub(crate) fn total(&self) -> u32 {
        self.sends + self.recvs
    }

    /// Sends among them.
    pub(crate) fn sends(&self) -> u32 {
        self.sends
    }

    /// The fabric is given another send.
    #[inline]
    pub(crate) fn send(&mut self) {
        self.sends += 1;
    }

    /// The fabric is given another receive.
    #[inline]
    pub(crate) fn recv(&mut self, op: Op) {
        self.posted[op.kind.index()][usize::from(op.place)] = true;
        self.recvs += 1;
    }

    /// The fabric gives back a receive for lengths, which it has.
    #[inline]
    pub(crate) fn length_came(&mut self, place: u16) {
        self.recvs -= 1;
        self.posted[Kind::Length.index()][usize::from(place)] = false;
    }

    /// The fabric gives back an operation.
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

    /// Whether the fabric has this receive.
    #[inline]
    pub(crate) fn has(&self, op: Op) -> bool {
        op.way == Way::Recv && self.posted[op.kind.index()].get(usize::from(op.place)).is_some_and(|posted| *posted)
    }

    /// All receives are given back, unused.
    pub(crate) fn give_back_receives(&mut self) {
        for posted in self.posted.iter_mut().flatten() {
            self.recvs -= u32::from(std::mem::take(posted));
        }
    }

    /// Asks all receives back, but for that of the greeting if it is still `awaited`.
    pub(crate) fn ask_back(&mut self, awaited: bool) {
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Greeting || !awaited) {
            let posted = self.posted[kind.index()].iter().enumerate().filter(|(_, posted)| **posted);
            self.to_cancel.extend(posted.map(|(place, _)| Op { way: Way::Recv, kind, place: place as u16 }));
        }
    }

    /// The next receive to ask back.
    pub(crate) fn next_cancel(&mut self) -> Option<Op> {
        self.to_cancel.pop_front()
    }

    /// Nothing is asked back: the fabric gives everything back by itself.
    pub(crate) fn forget_cancels(&mut self) {
        self.to_cancel.clear();
    }
}
