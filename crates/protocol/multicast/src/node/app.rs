//! What delivers to the application.

use crate::{Ballot, MessageId, Timestamp};

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
    /// The bytes; valid during the call.
    pub payload: &'a [u8],
}

/// The state machine that messages are delivered to.
///
/// A member whose state does not follow from deliveries alone (it came back, or fell behind) is given another member's
/// state. Whoever keeps none needs [`stateless`] only.
pub trait Application {
    /// A message, in the global order.
    fn deliver(&mut self, message: &Delivered<'_>);

    /// Appends the state after everything delivered so far.
    fn snapshot(&mut self, out: &mut Vec<u8>) {
        let _ = out;
    }

    /// Takes over the state that another member's [`snapshot`](Application::snapshot) gave after `number` deliveries.
    fn restore(&mut self, number: u64, state: &[u8]) {
        let _ = (number, state);
    }
}

/// An application without a state of its own.
#[derive(Debug)]
pub struct Stateless<D>(D);

/// Only delivers.
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

    fn snapshot(&mut self, out: &mut Vec<u8>) {
        (**self).snapshot(out);
    }

    fn restore(&mut self, number: u64, state: &[u8]) {
        (**self).restore(number, state);
    }
}
