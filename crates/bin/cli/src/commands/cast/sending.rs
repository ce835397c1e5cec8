//! The messages in flight.

use std::collections::VecDeque;
use std::time::Instant;

/// The messages in flight, in the order in which they were sent. A request of type `R` identifies each message. No more
/// memory is allocated once the queue has grown to its largest size.
pub(super) struct Sending<R> {
    /// For each message, the time at which it was sent, or `None` if the message has ended. The first message has not
    /// ended.
    all: VecDeque<(R, Option<Instant>)>,
    /// Number of messages that have not ended.
    under_way: usize,
}

impl<R> Default for Sending<R> {
    fn default() -> Self {
        Sending { all: VecDeque::new(), under_way: 0 }
    }
}

impl<R: Copy + Ord> Sending<R> {
    pub(super) fn len(&self) -> usize {
        self.under_way
    }

    pub(super) fn is_empty(&self) -> bool {
        self.under_way == 0
    }

    /// Adds a message, whose request is later than all before.
    pub(super) fn sent(&mut self, request: R, now: Instant) {
        self.all.push_back((request, Some(now)));
        self.under_way += 1;
    }

    /// Ends a message. Returns the time at which the message was sent, or `None` if no such message is in flight.
    pub(super) fn ended(&mut self, request: R) -> Option<Instant> {
        let at = match self.all.front()? {
            (first, _) if *first == request => 0,
            _ => self.all.binary_search_by_key(&request, |(request, _)| *request).ok()?,
        };
        let since = self.all[at].1.take()?;
        self.under_way -= 1;
        while self.all.front().is_some_and(|(_, since)| since.is_none()) {
            self.all.pop_front();
        }
        Some(since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_message_completes_once_in_any_order_and_is_forgotten() {
        let (mut sending, now) = (Sending::default(), Instant::now());
        [2, 3, 5, 7].into_iter().for_each(|request| sending.sent(request, now));
        assert_eq!((sending.ended(5), sending.ended(5), sending.ended(4)), (Some(now), None, None));
        assert_eq!((sending.ended(2), sending.ended(2)), (Some(now), None));
        assert_eq!((sending.len(), sending.all.len()), (2, 3));
        assert_eq!(
            (sending.ended(3), sending.all.len()),
            (Some(now), 1),
            "messages before the first outstanding one are removed"
        );
        assert_eq!((sending.ended(7), sending.is_empty(), sending.all.len()), (Some(now), true, 0));
        assert_eq!(sending.ended(7), None);
    }
}
