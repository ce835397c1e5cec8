//! The application's interface to a member: deliveries, snapshots, restores.

use thiserror::Error;

use super::frozen::{Frozen, FrozenBytes};
use super::transfer::StateReader;
use crate::{Ballot, DestinationGroups, Incarnation, MessageId, Timestamp};

/// A message as it is delivered to the application.
#[derive(Clone, Copy, Debug)]
pub struct Delivered<'a> {
    /// Id of the message.
    pub id: MessageId,
    /// Position in the global order. The timestamp is the same in all destination groups and at every member, never
    /// changes, and increases from one delivery to the next. Two messages may have the same time; their groups then
    /// differ.
    ///
    /// If the clocks of most members are right, `timestamp.time` is in nanoseconds since 1970, within the clock bound
    /// of the moment at which the message was ordered (see [`PhysicalClock`](crate::PhysicalClock)). Without wall
    /// clocks, the time is a count.
    pub timestamp: Timestamp,
    /// Number of this delivery in the group's history, from 1. It is the same at every member of the group.
    pub number: u64,
    /// This group's ballot that was installed at this member when it delivered the message.
    pub ballot: Ballot,
    /// The incarnation in which the history of the delivery began: the last one that was founded or reset before the
    /// delivery. It is the same at every member of the group.
    pub origin: Incarnation,
    /// The destination groups, including this one.
    pub groups: DestinationGroups<'a>,
    /// `true` if the client declared that the payload begins with a session's envelope. The multicast does not check
    /// that.
    pub enveloped: bool,
    /// The payload; valid during the call.
    pub payload: &'a [u8],
}

/// The reason why an application could not restore another member's state. The member stops, because it must not
/// continue with half of a state.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{0}")]
pub struct RestoreError(pub String);

/// The state machine to which messages are delivered.
///
/// A member whose state does not follow from its deliveries alone, because it restarted or fell behind, receives
/// another member's state and then the deliveries that the other member made meanwhile. An application without a state
/// needs only [`stateless`].
///
/// # Small and large states
/// An application with a small state implements [`snapshot`](Application::snapshot) and
/// [`restore`](Application::restore). Both handle all bytes at once.
///
/// An application with a large state, say 1 GiB, implements [`freeze`](Application::freeze) and
/// [`restore_from`](Application::restore_from). `freeze` runs between two deliveries on the thread that serves the
/// group and delays the whole group, so it should take microseconds. Keep the state in parts behind `Arc`s, and clone
/// the `Arc`s; `deliver` then copies a part only if a freeze still holds it (`Arc::make_mut`). The alternative is to
/// copy the state: that takes about 0.2 s per GiB, and the same amount of memory again for the duration of the
/// transfer. `restore_from` reads the bytes in the chunks in which they arrived. A chunk is freed when it has been
/// read, so the state is never in memory twice.
pub trait Application {
    /// Delivers a message, in the global order.
    fn deliver(&mut self, message: &Delivered<'_>);

    /// Returns whether the application accepts one more message, of any length. While it does not, no message is
    /// delivered: decided messages wait in their order, and all other work proceeds. Clients are slowed down, because
    /// their slots are not freed. The member asks again in each step. An application that restores a state on another
    /// thread has no room until it has finished; only then the donor gets an acknowledgement.
    #[inline]
    fn has_room(&self) -> bool {
        true
    }

    /// Ends the deliveries of a step. The step sends its results afterwards, which may take some microseconds. So an
    /// application that works on another thread passes on the deliveries now.
    #[inline]
    fn end_deliveries(&mut self) {}

    /// Appends the state after all deliveries so far to `out`.
    fn snapshot(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Freezes the state after all deliveries so far. Its bytes are read later, in pieces, while deliveries continue.
    fn freeze(&mut self) -> Box<dyn Frozen> {
        let mut bytes = Vec::new();
        self.snapshot(&mut bytes);
        Box::new(FrozenBytes::new(bytes))
    }

    /// Restores the state that another member's [`snapshot`](Application::snapshot) returned after `number` deliveries.
    /// With `number` 0, `state` is empty: the application must return to the state with which a group begins.
    fn restore(&mut self, number: u64, state: &[u8]) {
        let _ = (number, state);
    }

    /// Restores the state that another member's [`freeze`](Application::freeze) returned after `number` deliveries.
    /// With `number` 0, `state` is empty: the application must return to the state with which a group begins.
    ///
    /// # Errors
    /// Returns [`RestoreError`] if the bytes are not a valid state. The member then stops.
    fn restore_from(&mut self, number: u64, state: &mut StateReader<'_>) -> Result<(), RestoreError> {
        self.restore(number, &state.read_to_end());
        Ok(())
    }
}

/// An application without state.
#[derive(Debug)]
pub struct Stateless<D>(D);

/// Creates an application without state that passes each delivery to `deliver`.
pub fn stateless<D: FnMut(&Delivered<'_>)>(deliver: D) -> Stateless<D> {
    Stateless(deliver)
}

impl<D: FnMut(&Delivered<'_>)> Application for Stateless<D> {
    #[inline]
    fn deliver(&mut self, message: &Delivered<'_>) {
        (self.0)(message);
    }
}

impl<A: Application> Application for &mut A {
    #[inline]
    fn deliver(&mut self, message: &Delivered<'_>) {
        (**self).deliver(message);
    }

    #[inline]
    fn has_room(&self) -> bool {
        (**self).has_room()
    }

    #[inline]
    fn end_deliveries(&mut self) {
        (**self).end_deliveries();
    }

    fn snapshot(&mut self, out: &mut Vec<u8>) {
        (**self).snapshot(out);
    }

    fn freeze(&mut self) -> Box<dyn Frozen> {
        (**self).freeze()
    }

    fn restore(&mut self, number: u64, state: &[u8]) {
        (**self).restore(number, state);
    }

    fn restore_from(&mut self, number: u64, state: &mut StateReader<'_>) -> Result<(), RestoreError> {
        (**self).restore_from(number, state)
    }
}
