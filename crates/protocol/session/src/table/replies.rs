//! The replies of one generation of a session.

use std::collections::VecDeque;

use crate::{Outcome, Position};

/// Outcome of a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Kept {
    /// One of `Applied`, `Overflow`, `Skipped`, `Closed`.
    pub(crate) outcome: Outcome,
    /// Position at which the outcome was decided.
    pub(crate) position: Position,
    /// Reply to the request.
    pub(crate) bytes: Vec<u8>,
}

/// The outcomes of requests, with one element for each request from `low` on, or `None` while the outcome is not
/// decided. The last element is never `None`, so equal contents are equal values.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Replies {
    low: u64,
    kept: VecDeque<Option<Kept>>,
}

impl Replies {
    /// Creates the replies of a generation without a request.
    pub(crate) fn new() -> Self {
        Replies { low: 1, kept: VecDeque::new() }
    }

    /// Returns the first request that may be unanswered. Outcomes before it are forgotten.
    pub(crate) fn low(&self) -> u64 {
        self.low
    }

    /// Returns the outcome of a request, if it is decided and not forgotten.
    pub(crate) fn get(&self, request: u64) -> Option<&Kept> {
        let index = usize::try_from(request.checked_sub(self.low)?).ok()?;
        self.kept.get(index)?.as_ref()
    }

    /// Drops the replies below `responded`. Their buffers go to `spare`.
    pub(crate) fn acknowledge(&mut self, responded: u64, spare: &mut Vec<Vec<u8>>) {
        while self.low < responded {
            let Some(first) = self.kept.pop_front() else {
                self.low = responded;
                return;
            };
            self.low += 1;
            spare.extend(first.map(|kept| kept.bytes));
        }
    }

    /// Keeps the outcome of a request. The caller has checked that the request is inside the window.
    pub(crate) fn put(&mut self, request: u64, kept: Kept) {
        let Some(index) = request.checked_sub(self.low).and_then(|index| usize::try_from(index).ok()) else { return };
        if index >= self.kept.len() {
            self.kept.resize(index + 1, None);
        }
        self.kept[index] = Some(kept);
    }

    /// Returns the number of requests from `low` to the last one that is kept.
    pub(crate) fn span(&self) -> usize {
        self.kept.len()
    }

    /// Returns the kept outcomes with their request numbers, in ascending order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Kept)> {
        (self.low..).zip(&self.kept).filter_map(|(request, kept)| Some((request, kept.as_ref()?)))
    }
}
