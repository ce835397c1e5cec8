//! The order of undelivered messages: a heap whose keys only rise.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{ClientId, Timestamp};

/// A message in the order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Entry {
    /// What it counted as when it was put here; its key now is this or higher.
    pub(super) key: Timestamp,
    /// 0, but for the planted bug that breaks ties by arrival.
    pub(super) arrival: u64,
    pub(super) client: ClientId,
    pub(super) slot: u64,
}

/// Undelivered messages that are known from the stream, smallest key first.
#[derive(Clone, Debug)]
pub(super) struct Order(BinaryHeap<Reverse<Entry>>);

impl Order {
    pub(super) fn with_capacity(messages: usize) -> Self {
        Order(BinaryHeap::with_capacity(messages))
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.0.push(Reverse(entry));
    }

    pub(super) fn first(&self) -> Option<Entry> {
        self.0.peek().map(|entry| entry.0)
    }

    /// Puts the first entry back with a higher key.
    pub(super) fn raise_first(&mut self, key: Timestamp) {
        if let Some(mut first) = self.0.peek_mut() {
            first.0.key = key;
        }
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn pop(&mut self) {
        self.0.pop();
    }
}
