//! The position of a call in the order.

use std::fmt;

use crate::ids::Group;

/// A final timestamp. Positions are compared by time, then by group; the positions of all groups form one total order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Position {
    /// Logical time.
    pub time: u64,
    /// The group whose clock assigned the time.
    pub group: Group,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({}, g{})", self.time, self.group.0)
    }
}
