//! How a member works.

use std::sync::Arc;

use stentor_fabric::ProcessId;

use crate::{Mutant, Topology};

/// Which version of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Variant {
    /// Leaders pass on each other group's timestamp as it comes and acknowledge like followers.
    V1,
    /// Leaders wait for all timestamps and pass them on at once; that entry is their vote.
    #[default]
    V2,
}

/// The choice of a group whose members are all without memory, if no process that they reach remembers it.
///
/// Nothing tells a first start from the loss of everything.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TotalLoss {
    /// It begins, from nothing.
    #[default]
    Begin,
    /// It waits for an operator, also at its first start.
    Refuse,
}

/// Who this member is and how it works.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// The cluster.
    pub topology: Arc<Topology>,
    /// This process; a member of a group.
    pub me: ProcessId,
    /// Which protocol.
    pub variant: Variant,
    /// Slots per client: messages that a client may have undelivered at one group. A power of two. A [`Member`](crate::Member)
    /// takes it from its [`Limits`](crate::Limits).
    pub window: u32,
    /// Messages of one client that a leader has assigned and not delivered, at most, while other clients multicast, too; at least one. What
    /// comes before a message to several groups is not limited. `None`: a sixteenth of the window, and 64 at least.
    pub share: Option<u32>,
    /// Ticks after which something that makes no progress is asked for, or sent, again.
    pub retry_ticks: u8,
    /// What the group does when nobody remembers it.
    pub total_loss: TotalLoss,
    /// Ticks for which a process without memory waits for others that remember its group, before the group begins.
    pub founding_ticks: u16,
    /// Whether groups order [time entries](crate::Replica::order_time). The same at all members of a cluster.
    pub time_entries: bool,
    /// A mutant, for tests.
    #[doc(hidden)]
    pub mutant: Mutant,
}

impl ReplicaConfig {
    /// Ticks that are patient enough for a loaded host, if they come every few milliseconds.
    pub const RETRY_TICKS: u8 = 5;
    /// As long as it takes to meet everybody who is there.
    pub const FOUNDING_TICKS: u16 = 20;

    /// The configuration of a member with so many slots per client; everything else is usual.
    #[must_use]
    pub fn new(topology: Arc<Topology>, me: ProcessId, window: u32) -> Self {
        ReplicaConfig {
            topology,
            me,
            variant: Variant::default(),
            window,
            share: None,
            retry_ticks: Self::RETRY_TICKS,
            total_loss: TotalLoss::default(),
            founding_ticks: Self::FOUNDING_TICKS,
            time_entries: false,
            mutant: Mutant::None,
        }
    }
}
