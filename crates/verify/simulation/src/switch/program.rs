//! The programs of hosts.

use stentor_switch::control::Link;

/// The operation by which a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// SEND.
    Send,
    /// WRITE.
    Write,
    /// WRITE with an immediate.
    WriteImm,
}

/// A request of a host.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Acquires the set, or changes the members.
    Link(Vec<Link>),
    /// Releases the set.
    Release,
    /// Queries the switch.
    Query,
    /// A message to the members.
    Message {
        /// The operation.
        kind: Kind,
        /// Length, in bytes.
        bytes: u32,
        /// Target address, relative to the base in the control packet.
        va: u64,
    },
}

impl Op {
    /// Returns whether the switch executes the request.
    #[must_use]
    pub fn is_control(&self) -> bool {
        !matches!(self, Op::Message { .. })
    }

    /// Returns whether the request is posted only when all requests before it have completed. This holds for a new list
    /// of members, but not for a release.
    #[must_use]
    pub fn waits(&self) -> bool {
        matches!(self, Op::Link(_))
    }
}
