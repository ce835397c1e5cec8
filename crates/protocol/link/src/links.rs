//! All queue pairs of a process.

use std::ops::{Deref, DerefMut};

use stentor_fabric::{Completion, Event, Fabric, QpId};

use crate::Link;

/// What happened to a link, which is named by its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkEvent {
    /// The queue pair is connected.
    Up(usize),
    /// A connection ended. The queue pair was reset, unless it is closed. Reported again while the fabric refuses the reset.
    Down(usize),
}

/// No index of a link.
const NONE: u32 = u32::MAX;

/// The links of a process in the order in which they were opened, each with what its protocol keeps about it.
#[derive(Debug)]
pub struct Links<L> {
    list: Vec<L>,
    /// Index by queue pair; [`NONE`] for one that is no link's.
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

    /// The index of the link with this queue pair.
    #[inline]
    #[must_use]
    pub fn of(&self, qp: QpId) -> Option<usize> {
        self.by_qp.get(qp.index()).filter(|index| **index != NONE).map(|index| *index as usize)
    }

    /// The link of a completion, and the number of the request if it was posted for the present connection: see
    /// [`Link::number`]. `None`: the queue pair is no link's.
    #[inline]
    #[must_use]
    pub fn find(&self, completion: &Completion) -> Option<(usize, Option<u64>)> {
        let index = *self.by_qp.get(completion.qp.index())? as usize;
        Some((index, self.list.get(index)?.number(completion.id)))
    }

    /// The same as [`find`](Self::find), with the link in place of its index.
    #[inline]
    pub fn find_mut(&mut self, completion: &Completion) -> Option<(&mut L, Option<u64>)> {
        let link = self.list.get_mut(*self.by_qp.get(completion.qp.index())? as usize)?;
        let number = link.number(completion.id);
        Some((link, number))
    }

    /// Takes an event of the fabric. `None`: it is no link's, or about a connection that is over.
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

    /// Ends the connection of a link whose queue pair is broken, and resets the queue pair.
    pub fn check<F: Fabric>(&mut self, fabric: &mut F, link: usize) -> Option<LinkEvent> {
        self.list[link].deref_mut().check(fabric).then_some(LinkEvent::Down(link))
    }

    /// The same for a link that is neither up nor closed: call it for every link now and then, because a reset may have been
    /// refused and a refused post may be all that says that a queue pair broke.
    pub fn check_down<F: Fabric>(&mut self, fabric: &mut F, link: usize) -> Option<LinkEvent> {
        let checked = &self.list[link];
        if checked.is_ready() || checked.is_closed() { None } else { self.check(fabric, link) }
    }
}
