//! The order of undelivered messages: a heap whose keys only rise.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::{ClientId, Timestamp};

/// An undelivered message in the order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Undelivered {
    /// The message's key when it was inserted or last raised. Its current key is equal or larger.
    pub(super) key: Timestamp,
    /// Order of arrival, for the mutant that breaks ties by it; otherwise 0.
    pub(super) arrival: u64,
    pub(super) client: ClientId,
    pub(super) slot: u64,
}

/// Undelivered messages that are known from the stream, smallest key first.
///
/// # Invariants
/// A message counts with its own group's tentative timestamp until it is decided itself. Keys only rise.
#[derive(Clone, Debug)]
pub(super) struct Order(BinaryHeap<Reverse<Undelivered>>);

impl Order {
    pub(super) fn with_capacity(messages: usize) -> Self {
        Order(BinaryHeap::with_capacity(messages))
    }

    pub(super) fn push(&mut self, message: Undelivered) {
        self.0.push(Reverse(message));
    }

    pub(super) fn first(&self) -> Option<Undelivered> {
        self.0.peek().map(|message| message.0)
    }

    /// Raises the key of the first message.
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
