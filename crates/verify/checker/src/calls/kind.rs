//! What a call asks for.

use std::fmt;

use super::position::Position;

/// What a call asks for: a command, or a read with what it may miss.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Changes the state of its groups.
    Command,
    /// A read that has a place in the order like a command, in one group or as one cut over several.
    Ordered,
    /// A read at the leader of one group: linearizable there.
    Leader,
    /// A read at any member of one group that has applied this position: it may be stale.
    After(Position),
    /// A read at any member of one group: it may be arbitrarily stale.
    Local,
}

impl Kind {
    /// Returns whether the call changes nothing.
    #[must_use]
    pub fn is_read(self) -> bool {
        self != Kind::Command
    }

    /// Returns whether the call is a read outside the serial order.
    #[must_use]
    pub fn is_stale(self) -> bool {
        matches!(self, Kind::After(_) | Kind::Local)
    }

    /// Returns whether the call is multicast, so that its position is its own.
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
