//! All queue pairs of a process.

use std::ops::{Deref, DerefMut};

use stentor_fabric::{Completion, Event, Fabric, QpId};

use crate::Link;

/// A change of a link, which is identified by its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// The queue pair is connected.
    Up(usize),
    /// A connection ended. The queue pair was reset, unless the link is closed. This event is repeated while the fabric
    /// refuses the reset.
    Down(usize),
}

/// Value of [`Links::by_qp`] for a queue pair that belongs to no link.
const NONE: u32 = u32::MAX;

/// The links of a process in the order in which they were opened, each with the state that its protocol adds.
#[derive(Debug)]
pub struct Links<L> {
    list: Vec<L>,
    /// Index of each queue pair's link in `list`, or [`NONE`] for a queue pair that belongs to no link.
    by_qp: Vec<u32>,
}

impl<L> Default for Links<L> {
    fn default() -> Self {
        Links { list: Vec::new(), by_qp: Vec::new() }
    }
}

impl<L> Deref for Links<L> {
    type Target = [L];

    #[inline]
    fn deref(&self) -> &[L] {
        &self.list
    }
}

impl<L> DerefMut for Links<L> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [L] {
        &mut self.list
    }
}

impl<L: DerefMut<Target = Link>> Links<L> {
    /// Adds a link. Returns its index.
    pub fn push(&mut self, link: L) -> usize {
        let (index, qp) = (self.list.len(), link.qp().index());
        self.by_qp.resize(self.by_qp.len().max(qp + 1), NONE);
        self.by_qp[qp] = index as u32;
        self.list.push(link);
        index
    }

    /// Returns the index of the link with this queue pair.
    #[inline]
    #[must_use]
    pub fn of(&self, qp: QpId) -> Option<usize> {
        self.by_qp.get(qp.index()).filter(|index| **index != NONE).map(|index| *index as usize)
    }

    /// Returns the index of a completion's link, and the number of the request if it was posted for the present
    /// connection (see [`Link::number`]). Returns `None` if the queue pair belongs to no link.
    #[inline]
    #[must_use]
    pub fn find(&self, completion: &Completion) -> Option<(usize, Option<u64>)> {
        let index = *self.by_qp.get(completion.qp.index())? as usize;
        Some((index, self.list.get(index)?.number(completion.id)))
    }

    /// Returns the same as [`find`](Self::find), with the link in place of its index.
    #[inline]
    pub fn find_mut(&mut self, completion: &Completion) -> Option<(&mut L, Option<u64>)> {
        let link = self.list.get_mut(*self.by_qp.get(completion.qp.index())? as usize)?;
        let number = link.number(completion.id);
        Some((link, number))
    }

    /// Processes an event of the fabric. Returns `None` if the event changes no link.
    pub fn happened<F: Fabric>(&mut self, fabric: &mut F, event: &Event) -> Option<LinkEvent> {
        match *event {
            Event::Connected { qp, .. } => {
                let link = self.of(qp)?;
                self.list[link].connected(fabric.state(qp)).then_some(LinkEvent::Up(link))
            }
            Event::Disconnected { qp, .. } => self.of(qp).and_then(|link| self.check(fabric, link)),
            Event::Revoked { .. } => None,
        }
    }

    /// Checks a link's queue pair. If it is broken, ends the connection, resets the queue pair unless the link is
    /// closed, and returns [`LinkEvent::Down`].
    pub fn check<F: Fabric>(&mut self, fabric: &mut F, link: usize) -> Option<LinkEvent> {
        self.list[link].deref_mut().check(fabric).then_some(LinkEvent::Down(link))
    }

    /// Calls [`check`](Self::check) if the link is neither up nor closed, and returns its result. Otherwise returns
    /// `None`.
    ///
    /// Owners call this regularly for every link, for two reasons. The fabric may have refused an earlier reset, which
    /// must be repeated. And a refused post may be the only sign that a queue pair broke.
    pub fn check_down<F: Fabric>(&mut self, fabric: &mut F, link: usize) -> Option<LinkEvent> {
        let checked = &self.list[link];
        if checked.is_ready() || checked.is_closed() { None } else { self.check(fabric, link) }
    }
}
