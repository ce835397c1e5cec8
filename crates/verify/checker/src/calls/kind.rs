//! The kinds of calls.

use std::fmt;

use super::position::Position;

/// The kind of a call: a command, or a read with its consistency level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A command, which changes the state of its groups.
    Command,
    /// A read that is ordered like a command, in one group or as one consistent cut over several.
    Ordered,
    /// A read at the leader of one group. It is linearizable in this group.
    Leader,
    /// A read at any member of one group that has applied this position. It may be stale.
    After(Position),
    /// A read at any member of one group. It may be arbitrarily stale.
    Local,
}

impl Kind {
    /// Returns whether the call leaves the state unchanged.
    #[must_use]
    pub fn is_read(self) -> bool {
        self != Kind::Command
    }

    /// Returns whether the call is a read outside the serial order.
    #[must_use]
    pub fn is_stale(self) -> bool {
        matches!(self, Kind::After(_) | Kind::Local)
    }

    /// Returns whether the call is multicast, so that it has a position of its own.
    #[must_use]
    pub fn is_multicast(self) -> bool {
        matches!(self, Kind::Command | Kind::Ordered)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kind::Command => f.write_str("command"),
            Kind::Ordered => f.write_str("ordered read"),
            Kind::Leader => f.write_str("read at the leader"),
            Kind::After(position) => write!(f, "read after {position}"),
            Kind::Local => f.write_str("local read"),
        }
    }
}
