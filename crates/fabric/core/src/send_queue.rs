//! Selective signalling: the accounting of a bounded send queue.

use std::collections::VecDeque;

/// Decides which work requests of one queue pair are signalled, so that the send queue is never overrun, and reports
/// when the source of an unsignalled request may be reused.
///
/// A send queue of depth `d` gets a signalled request at least every `d / 2` posts. The completion of a signalled
/// request proves that this request and the unsignalled ones directly before it are done. It proves nothing about
/// earlier signalled requests, whose completions may come later on fabrics that complete out of order.
#[derive(Clone, Debug)]
pub struct SendQueue {
    depth: u32,
    posted: u64,
    signalled_up_to: u64,
    completed: u64,
    /// Ids of signalled requests that may still be outstanding, or that follow an outstanding one. The flag is `true`
    /// if the request has completed.
    signalled: VecDeque<(u64, bool)>,
}

impl SendQueue {
    /// Creates the accounting of a send queue that is `depth` work requests deep.
    ///
    /// # Panics
    /// Panics if `depth` is 0.
    #[must_use]
    pub fn new(depth: u32) -> Self {
        assert!(depth > 0, "a send queue has at least one slot");
        let signalled = VecDeque::with_capacity(depth as usize);
        SendQueue { depth, posted: 0, signalled_up_to: 0, completed: 0, signalled }
    }

    /// Returns the number of slots that are certainly free.
    #[inline]
    #[must_use]
    pub fn free(&self) -> u32 {
        self.depth - (self.posted - self.completed) as u32
    }

    /// Returns whether the next request must be signalled.
    #[inline]
    #[must_use]
    pub fn signal_next(&self) -> bool {
        self.posted + 1 - self.signalled_up_to >= u64::from((self.depth / 2).max(1))
    }

    /// Returns the id of the next request: its number, from 1. Use it as [`WorkRequest::id`](crate::WorkRequest::id).
    #[inline]
    #[must_use]
    pub fn next_id(&self) -> u64 {
        self.posted + 1
    }

    /// Records that a request was posted, and returns its number.
    #[inline]
    pub fn posted(&mut self, signalled: bool) -> u64 {
        self.posted += 1;
        if signalled {
            self.signalled_up_to = self.posted;
            self.signalled.push_back((self.posted, false));
        }
        self.posted
    }

    /// Records the completion of request `id`. This request and all requests before it are done once all earlier
    /// signalled requests have completed. An id beyond all posted requests marks all of them as done.
    #[inline]
    pub fn completed(&mut self, id: u64) {
        if id > self.posted {
            self.completed = self.posted;
            self.signalled.clear();
        }
        if let Ok(place) = self.signalled.binary_search_by_key(&id, |(number, _)| *number) {
            self.signalled[place].1 = true;
        }
        while let Some((number, true)) = self.signalled.front() {
            self.completed = *number;
            self.signalled.pop_front();
        }
    }

    /// Returns the highest number up to which all requests are certainly done. Their sources may be reused.
    #[inline]
    #[must_use]
    pub fn done(&self) -> u64 {
        self.completed
    }

    /// Resets the accounting after the queue pair was reset.
    pub fn reset(&mut self) {
        (self.posted, self.signalled_up_to, self.completed) = (0, 0, 0);
        self.signalled.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_of_four_is_signalled_every_second_post_and_never_overrun() {
        let mut queue = SendQueue::new(4);
        let mut signals = Vec::new();
        for _ in 0..4 {
            let signalled = queue.signal_next();
            signals.push(signalled);
            queue.posted(signalled);
        }
        assert_eq!(signals, [false, true, false, true]);
        assert_eq!(queue.free(), 0);
        queue.completed(2);
        assert_eq!((queue.free(), queue.done()), (2, 2));
        queue.completed(1);
        assert_eq!(queue.done(), 2, "completions never go back");
    }

    #[test]
    fn completions_in_any_order_free_no_outstanding_request() {
        let mut queue = SendQueue::new(8);
        for signalled in [false, true, false, true, true, false] {
            queue.posted(signalled);
        }
        queue.completed(4);
        assert_eq!((queue.done(), queue.free()), (0, 2), "the second may still read its source");
        queue.completed(5);
        queue.completed(2);
        assert_eq!((queue.done(), queue.free()), (5, 7));
        queue.reset();
        assert_eq!((queue.done(), queue.free(), queue.next_id()), (0, 8, 1));
    }

    #[test]
    fn a_queue_of_one_signals_every_post() {
        let mut queue = SendQueue::new(1);
        assert!(queue.signal_next());
        queue.posted(true);
        assert_eq!(queue.free(), 0);
        queue.completed(1);
        assert!(queue.signal_next());
        assert_eq!(queue.free(), 1);
    }
}
