//! What delivers to the application.

use thiserror::Error;

use super::frozen::{Frozen, FrozenBytes};
use super::transfer::StateReader;
use crate::{Ballot, DestinationGroups, Incarnation, MessageId, Timestamp};

/// A message as it is handed to the application.
#[derive(Clone, Copy, Debug)]
pub struct Delivered<'a> {
    /// The message.
    pub id: MessageId,
    /// Its place in the global order. Where the clocks of most members are right, `timestamp.time` is nanoseconds since 1970,
    /// within the bound of clocks of the moment at which the message was ordered (see
    /// [`PhysicalClock`](crate::PhysicalClock)); it is a count where members are told no clock. It is the same in all
    /// destination groups and at every member, never changes, and does not fall from one delivery to the next. It may be
    /// the same in two messages: the group tells those apart.
    pub timestamp: Timestamp,
    /// Number of this delivery at this process, from 1.
    pub number: u64,
    /// The own group's ballot; the message was decided under it, or was known by then to be decided.
    pub ballot: Ballot,
    /// Where the history of the own group began that this is part of: the group was founded or reset there last. The same at
    /// every member of the group.
    pub origin: Incarnation,
    /// The destination groups, the own one among them.
    pub groups: DestinationGroups<'a>,
    /// Whether the client said that the payload begins with a session's envelope. The multicast does not look at that.
    pub enveloped: bool,
    /// The bytes; valid during the call.
    pub payload: &'a [u8],
}

/// Why an application could not take over another member's state. The member stops: it never goes on with half of a
/// state.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{0}")]
pub struct RestoreError(pub String);

/// The state machine that messages are delivered to.
///
/// A member whose state does not follow from deliveries alone (it came back, or fell behind) is given another member's
/// state, and then the deliveries that the other member made meanwhile. An application without a state needs only
/// [`stateless`].
///
/// # Small and large states
/// An application with a small state implements [`snapshot`](Application::snapshot) and [`restore`](Application::restore).
/// Both see all bytes at once.
///
/// An application with a large state, say 1 GiB, implements [`freeze`](Application::freeze) and
/// [`restore_from`](Application::restore_from). `freeze` runs between two deliveries on the thread that serves the group,
/// so everybody waits for it: it should take microseconds. Keep the state in parts behind `Arc`s, and clone the `Arc`s;
/// `deliver` then copies a part only if a freeze still holds it (`Arc::make_mut`). Copying the state is the other way: it
/// takes about 0.2 s for each GiB, and as much memory again for as long as the transfer lasts. `restore_from` reads the
/// bytes in the chunks in which they came. A chunk is freed when it has been read, so the state does not lie in memory
/// twice.
pub trait Application {
    /// Takes a message, in the global order.
    fn deliver(&mut self, message: &Delivered<'_>);

    /// Returns whether the application takes one more message, of any length. While it does not, nothing is delivered: what is
    /// decided waits in its order, and everything else goes on. Clients are slowed down, because their slots are not freed. The
    /// member asks again in each step. An application that takes over a state on another thread has no room until it has done so:
    /// the donor is told then.
    #[inline]
    fn has_room(&self) -> bool {
        true
    }

    /// Appends the state after everything delivered so far.
    fn snapshot(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Freezes the state after everything delivered so far. Its bytes are read later, in pieces, while deliveries go on.
    fn freeze(&mut self) -> Box<dyn Frozen> {
        let mut bytes = Vec::new();
        self.snapshot(&mut bytes);
        Box::new(FrozenBytes::new(bytes))
    }

    /// Takes over the state that another member's [`snapshot`](Application::snapshot) gave after `number` deliveries. After
    /// 0 deliveries there are no bytes: the state is the one with which a group begins.
    fn restore(&mut self, number: u64, state: &[u8]) {
        let _ = (number, state);
    }

    /// Takes over the state that another member's [`freeze`](Application::freeze) gave after `number` deliveries. After 0
    /// deliveries there are no bytes: the state is the one with which a group begins.
    ///
    /// # Errors
    /// [`RestoreError`] if the bytes are no state. The member stops.
    fn restore_from(&mut self, number: u64, state: &mut StateReader<'_>) -> Result<(), RestoreError> {
        self.restore(number, &state.read_to_end());
        Ok(())
    }
}

/// An application without a state of its own.
#[derive(Debug)]
pub struct Stateless<D>(D);

/// Makes an application that only delivers.
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
