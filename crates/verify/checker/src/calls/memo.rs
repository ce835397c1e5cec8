//! The memo of the search: configurations from which no order can be completed.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Configurations from which no order can be completed, each with its placed calls and its states. They are compared in
/// full, not by hash only, so the search stays exact.
#[derive(Debug)]
pub(super) struct Memo<S> {
    /// Dead configurations, by hash.
    dead: HashMap<u64, Vec<Dead<S>>>,
}

/// The placed calls and the states of a dead configuration.
type Dead<S> = (Box<[u32]>, Vec<S>);

impl<S: Clone + Eq + Hash> Memo<S> {
    pub(super) fn new() -> Self {
        Memo { dead: HashMap::new() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.dead.is_empty()
    }

    pub(super) fn contains(&self, placed: &[u32], states: &[S]) -> bool {
        let same = self.dead.get(&hash(placed, states));
        same.is_some_and(|same| same.iter().any(|(p, s)| **p == *placed && s == states))
    }

    pub(super) fn insert(&mut self, placed: Vec<u32>, states: &[S]) {
        let same = self.dead.entry(hash(&placed, states)).or_default();
        same.push((placed.into_boxed_slice(), states.to_vec()));
    }
}

fn hash<S: Hash>(placed: &[u32], states: &[S]) -> u64 {
    let mut hasher = DefaultHasher::new();
    (placed, states).hash(&mut hasher);
    hasher.finish()
}
