//! What hosts are to do.

use stentor_switch::control::Link;

/// How a message is sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// SEND.
    Send,
    /// WRITE.
    Write,
    /// WRITE with an immediate.
    WriteImm,
}

/// One request.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Op {
    /// Takes the set, or goes on with other members.
    Link(Vec<Link>),
    /// Gives it back.
    Release,
    /// Asks.
    Query,
    /// A message to the members.
    Message {
        /// How.
        kind: Kind,
        /// Length.
        bytes: u32,
        /// Where to, from where the control packet says.
        va: u64,
    },
}

impl Op {
    /// Whether the switch carries it out.
    #[must_use]
    pub fn is_control(&self) -> bool {
        !matches!(self, Op::Message { .. })
    }

    /// Whether it is posted only when everything before it is done: a new list of members is, a release need not be.
    #[must_use]
    pub fn waits(&self) -> bool {
        matches!(self, Op::Link(_))
    }
}
