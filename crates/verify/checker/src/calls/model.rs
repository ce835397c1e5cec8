//! The sequential specification of the service.

use std::hash::Hash;

use crate::ids::Group;

/// The sequential service: one state per group, changed by one command at a time.
pub trait Model {
    /// The state of one group.
    type State: Clone + Eq + Hash;

    /// Returns the initial state of a group.
    fn initial(&self, group: Group) -> Self::State;

    /// Applies a command to the state of one of its groups and returns the group's reply. The result must be
    /// deterministic.
    fn apply(&self, state: &mut Self::State, group: Group, operation: &[u8]) -> Vec<u8>;

    /// Answers a read from the state of one of its groups.
    fn read(&self, state: &Self::State, group: Group, operation: &[u8]) -> Vec<u8>;
}
