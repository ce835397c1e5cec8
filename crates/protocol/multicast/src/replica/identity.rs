//! The identity of a member, which never changes while its process runs.

use stentor_fabric::ProcessId;

use super::{Rejected, ReplicaConfig};
use crate::peer_message::PeerMessage;
use crate::{GroupId, Mutant, ProcessRole, Topology};

/// A member's configuration, its group, and its bit in masks of that group.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    pub(super) config: ReplicaConfig,
    pub(super) group: GroupId,
    pub(super) bit: u64,
}

impl Identity {
    /// Creates the identity, and looks up the member's group.
    ///
    /// # Panics
    /// Panics if `config.me` is not a member of a group, or the window is not a power of two.
    pub(super) fn new(config: ReplicaConfig) -> Self {
        assert!(config.window.is_power_of_two(), "a window of {} slots is not a power of two", config.window);
        let Some(ProcessRole::Member { group, index }) = config.topology.role(config.me) else {
            panic!("{} is not a member of a group", config.me)
        };
        Identity { config, group, bit: 1 << index }
    }

    #[inline]
    pub(super) fn me(&self) -> ProcessId {
        self.config.me
    }

    #[inline]
    pub(super) fn topology(&self) -> &Topology {
        &self.config.topology
    }

    #[inline]
    pub(super) fn mutant(&self) -> Mutant {
        self.config.mutant
    }

    /// Returns the other members of this group.
    pub(super) fn others(&self) -> impl Iterator<Item = ProcessId> + use<> {
        let me = self.config.me;
        self.topology().members(self.group).filter(move |member| *member != me)
    }

    /// Returns the other groups.
    pub(super) fn others_groups(&self) -> impl Iterator<Item = GroupId> + use<> {
        let own = self.group;
        self.topology().group_ids().filter(move |group| *group != own)
    }

    /// Returns the bit of a process in masks of this group, or 0 if the process is not a member of the group.
    pub(super) fn bit_of(&self, process: ProcessId) -> u64 {
        self.topology().member_bit(self.group, process).unwrap_or(0)
    }

    /// Returns whether these members are a majority of this group.
    pub(super) fn is_majority(&self, members: u64) -> bool {
        members.count_ones() >= self.topology().majority(self.group)
    }

    /// Returns the member of this group that founds it.
    pub(super) fn founder(&self) -> ProcessId {
        self.topology().first_ballot(self.group).leader()
    }

    /// Returns this member's index in its group.
    pub(super) fn index(&self) -> usize {
        self.bit.trailing_zeros() as usize
    }

    /// Returns whether this member is the only one of its group.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        self.topology().size(self.group) == 1
    }

    /// Returns the group of a member and its index there.
    ///
    /// # Errors
    /// Returns [`Rejected::Sender`] if the process is not a member of a group.
    #[inline]
    pub(super) fn member(&self, process: ProcessId) -> Result<(GroupId, u8), Rejected> {
        match self.topology().role(process) {
            Some(ProcessRole::Member { group, index }) => Ok((group, index)),
            _ => Err(Rejected::Sender(process)),
        }
    }

    /// Checks whether a message may come from its sender.
    ///
    /// # Errors
    /// Returns [`Rejected::Sender`] if a correct process in the sender's position never sends the message, and
    /// [`Rejected::Client`] if a correct process never sends it about a group's own entries.
    pub(super) fn check_sender(&self, from: ProcessId, group: GroupId, message: &PeerMessage) -> Result<(), Rejected> {
        let topology = self.topology();
        if let Some(client) =
            message.place().filter(|client| self.config.time_entries && topology.entry_group(*client).is_some())
        {
            return Err(Rejected::Client(client.0));
        }
        let own = group == self.group && from != self.me();
        let member = |group, process| topology.member_bit(group, process).is_some();
        let sound = match message {
            PeerMessage::Campaign { ballot, .. } => own && ballot.leader() == from,
            PeerMessage::Install { ballot, admits, .. } => {
                own && ballot.leader() == from && admits.iter().all(|joiner| member(group, joiner.process))
            }
            PeerMessage::Announce { group, ballot, .. } => {
                topology.has_group(*group) && member(*group, ballot.leader())
            }
            PeerMessage::Refuse { promised, .. } => own && member(group, promised.leader()),
            PeerMessage::Remembered { by, .. } => own && topology.role(*by).is_some(),
            PeerMessage::WantBody(_)
            | PeerMessage::WantBodies(_)
            | PeerMessage::Gone(_)
            | PeerMessage::Decided { .. }
            | PeerMessage::Forgotten(_) => from != self.me(),
            PeerMessage::Refused(verdict) | PeerMessage::Lost(verdict) => {
                group != self.group && verdict.ballot.leader() == from
            }
            PeerMessage::Retire(left) | PeerMessage::Retired(left) => {
                group != self.group && left.ballot.leader() == from
            }
            _ => own,
        };
        if sound { Ok(()) } else { Err(Rejected::Sender(from)) }
    }
}
