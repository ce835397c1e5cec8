//! The configuration of a member.

use std::sync::Arc;

use stentor_fabric::ProcessId;

use crate::{Mutant, Topology};

/// The version of the protocol.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Variant {
    /// Leaders pass on the timestamp of each other group as it arrives, and acknowledge like followers.
    V1,
    /// Leaders wait for all timestamps and pass them on in one entry, which is their vote.
    #[default]
    V2,
}

/// The policy of a group whose members are all without memory, if no process that they reach remembers it.
///
/// The members cannot distinguish a first start from the loss of all memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum TotalLoss {
    /// The members found the group with an empty state.
    #[default]
    Begin,
    /// The group waits for an operator, even at its first start.
    Refuse,
}

/// The configuration of a member.
#[derive(Clone, Debug)]
pub struct ReplicaConfig {
    /// The cluster.
    pub topology: Arc<Topology>,
    /// This process, which is a member of a group.
    pub me: ProcessId,
    /// The version of the protocol.
    pub variant: Variant,
    /// Number of slots per client, a power of two. It limits the undelivered messages that a client may have at one
    /// group. A [`Member`](crate::Member) sets it from its [`Limits`](crate::Limits).
    pub window: u32,
    /// Largest number of a client's messages that are assigned and not delivered while other clients multicast, too; at
    /// least 1.
    ///
    /// Messages that precede a message to several groups are not limited. While clients with few messages in flight
    /// multicast, the others have an eighth of this. `None` means a sixteenth of the window, but at least 64.
    pub share: Option<u32>,
    /// Number of ticks after which a request or message without effect is repeated.
    pub retry_ticks: u8,
    /// The policy if no process remembers the group.
    pub total_loss: TotalLoss,
    /// Number of ticks for which a process without memory waits for processes that remember its group, before the group
    /// is founded.
    pub founding_ticks: u16,
    /// `true` if groups order [time entries](crate::Replica::order_time). It must be equal at all members of a cluster.
    pub time_entries: bool,
    /// A mutant, for tests.
    #[doc(hidden)]
    pub mutant: Mutant,
}

impl ReplicaConfig {
    /// Default of `retry_ticks`. It is large enough for a loaded host, if ticks come every few milliseconds.
    pub const RETRY_TICKS: u8 = 5;
    /// Default of `founding_ticks`: long enough to connect to all running processes.
    pub const FOUNDING_TICKS: u16 = 20;

    /// Creates a configuration with this many slots per client, and defaults for all other parameters.
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
