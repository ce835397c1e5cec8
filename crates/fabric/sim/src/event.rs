//! The calendar of events. Events with equal times happen in the order in which they were scheduled.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use stentor_fabric::{QpId, Service};

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Event {
    /// A process may run, unless a newer `Step` of the process, with another token, has replaced this one.
    Step { process: u16, token: u32 },
    /// A message reaches the responder's NIC.
    Arrive { message: u32 },
    /// A message on an unreliable queue pair left the initiator's NIC.
    Departed { message: u32 },
    /// Part `part` of a landing becomes visible.
    Land { landing: u32, part: u8 },
    /// The second half of a READ is sampled.
    Sample { message: u32 },
    /// The answer to a message reaches the initiator's NIC.
    Answer { message: u32 },
    /// All data of an operation with a local target is visible.
    Done { message: u32 },
    /// A receive completes.
    Received { delivery: u32 },
    /// A message is tried again after "receiver not ready".
    Rnr { end: End },
    /// A request has had no answer for too long.
    Timeout { end: End, seq: u64 },
    /// The peer's end of this connection is broken.
    PeerGone { end: End, silent: bool },
    /// Both ends of a connection may have been created.
    Match { a: u16, b: u16, service: Service },
    /// A queue pair becomes ready.
    Ready { end: End },
    /// A grant reaches the peer.
    Granted { key: u32 },
    /// A revocation takes effect.
    Revoked { key: u32 },
    /// A revocation of access that the peer did not have takes effect.
    RevokedNothing { process: u16, life: u32, region: u32, peer: u16 },
    /// A fault begins.
    Fault { index: u32 },
    /// A partition ends.
    Heal { index: u32 },
    /// The network receives a process's request to join a set's next life.
    SetJoined { number: u16, process: u16, life: u32 },
    /// The next life of a set may begin.
    SetForms { number: u16 },
    /// The network releases the copies that it has held back from one process to another.
    CopiesGo { from: u16, to: u16 },
    /// A process is notified that another one has left a life of a set.
    SetLeft { number: u16, who: u16, to: u16, life: u64 },
}

/// One end of one connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct End {
    pub(crate) process: u16,
    pub(crate) qp: QpId,
    pub(crate) connection: u64,
}

#[derive(Default)]
pub(crate) struct Calendar {
    heap: BinaryHeap<Reverse<(u64, u64, Event)>>,
    scheduled: u64,
}

impl Calendar {
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.scheduled += 1;
        self.heap.push(Reverse((at, self.scheduled, event)));
    }

    pub(crate) fn next_at(&self) -> Option<u64> {
        self.heap.peek().map(|Reverse((at, _, _))| *at)
    }

    pub(crate) fn pop(&mut self) -> Option<(u64, Event)> {
        self.heap.pop().map(|Reverse((at, _, event))| (at, event))
    }
}

/// A table with reusable indices.
pub(crate) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        if let Some(place) = self.free.pop() {
            self.places[place as usize] = Some(value);
            return place;
        }
        self.places.push(Some(value));
        (self.places.len() - 1) as u32
    }

    pub(crate) fn remove(&mut self, place: u32) -> T {
        self.free.push(place);
        self.places[place as usize].take().expect("the place holds a value")
    }

    pub(crate) fn get(&self, place: u32) -> &T {
        self.places[place as usize].as_ref().expect("the place holds a value")
    }

    pub(crate) fn get_mut(&mut self, place: u32) -> &mut T {
        self.places[place as usize].as_mut().expect("the place holds a value")
    }

    /// Returns the indices in use.
    pub(crate) fn in_use(&self) -> Vec<u32> {
        (0..self.places.len() as u32).filter(|i| self.places[*i as usize].is_some()).collect()
    }
}
