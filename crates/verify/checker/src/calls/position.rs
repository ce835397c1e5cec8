//! Where a call stands in the order.

use std::fmt;

use crate::ids::Group;

/// A final timestamp: positions are compared by time, then by group, and those of all groups are one order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// Logical time.
    pub time: u64,
    /// The group whose clock gave the time.
    pub group: Group,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, g{})", self.time, self.group.0)
    }
}
