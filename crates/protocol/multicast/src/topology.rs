//! The assignment of processes to groups and clients.

use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::{Ballot, ClientId, GroupId, GroupSet};

/// The role of a process in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProcessRole {
    /// A member of a group.
    Member {
        /// The group.
        group: GroupId,
        /// Index of the member in the group, below 64.
        index: u8,
    },
    /// A client.
    Client(ClientId),
}

/// The reason why a set of groups is not a valid cluster.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum TopologyError {
    /// There are no groups, or more than [`GroupSet::CAPACITY`].
    #[error("{0} groups: a cluster has 1 to {max}", max = GroupSet::CAPACITY)]
    Groups(usize),
    /// A group is empty or has more than 64 members.
    #[error("group {group} has {members} members: 1 to {max} are possible", max = Topology::MAX_MEMBERS)]
    Members {
        /// Index of the group.
        group: usize,
        /// Number of members of the group.
        members: usize,
    },
    /// There are more processes or client ids than 16 bits can number.
    #[error("{0} processes and client ids: at most 65535 are possible")]
    Processes(usize),
}

/// The groups and clients of a cluster, equal at every process.
///
/// Process ids are assigned to the members first, group by group, then to the clients.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Topology {
    sizes: Vec<u8>,
    firsts: Vec<u16>,
    /// Group of each member, by process id.
    groups: Vec<u8>,
    members: u16,
    clients: u16,
}

impl Topology {
    /// Largest number of members of a group. Members are bits of a 64-bit word.
    pub const MAX_MEMBERS: usize = 64;

    /// Creates a cluster with groups of these sizes and this many clients.
    ///
    /// # Errors
    /// See [`TopologyError`].
    pub fn new(group_sizes: &[usize], clients: u16) -> Result<Self, TopologyError> {
        if group_sizes.is_empty() || group_sizes.len() > GroupSet::CAPACITY {
            return Err(TopologyError::Groups(group_sizes.len()));
        }
        let mut firsts = Vec::with_capacity(group_sizes.len());
        let mut next = 0_usize;
        for (group, &members) in group_sizes.iter().enumerate() {
            if members == 0 || members > Self::MAX_MEMBERS {
                return Err(TopologyError::Members { group, members });
            }
            firsts.push(next as u16);
            next += members;
        }
        // The client ids of the groups' own entries, two per group, follow those of the clients.
        let most = usize::from(clients) + next.max(2 * group_sizes.len());
        if most > usize::from(u16::MAX) {
            return Err(TopologyError::Processes(most));
        }
        let groups =
            (0..=u8::MAX).zip(group_sizes).flat_map(|(group, &size)| std::iter::repeat_n(group, size)).collect();
        let sizes = group_sizes.iter().map(|&size| size as u8).collect();
        Ok(Topology { sizes, firsts, groups, members: next as u16, clients })
    }

    /// Returns the number of groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.sizes.len()
    }

    /// Returns all groups.
    pub fn group_ids(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.sizes.len() as u16).map(GroupId)
    }

    /// Returns the number of clients.
    #[must_use]
    pub fn clients(&self) -> usize {
        usize::from(self.clients)
    }

    /// Returns the number of members of all groups.
    #[must_use]
    pub fn all_members(&self) -> usize {
        usize::from(self.members)
    }

    /// Returns the number of processes, including clients.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.all_members() + self.clients()
    }

    /// Returns whether the group exists.
    #[must_use]
    pub fn has_group(&self, group: GroupId) -> bool {
        usize::from(group.0) < self.sizes.len()
    }

    /// Returns the number of members of a group, or 0 if there is no such group.
    #[inline]
    #[must_use]
    pub fn size(&self, group: GroupId) -> usize {
        self.sizes.get(usize::from(group.0)).copied().map_or(0, usize::from)
    }

    /// Returns the size of a majority of a group: ⌊n/2⌋+1 for n configured members, whether they are up or not. For a
    /// group that does not exist the result is 1, which 0 members never reach.
    #[inline]
    #[must_use]
    pub fn majority(&self, group: GroupId) -> u32 {
        self.size(group) as u32 / 2 + 1
    }

    /// Returns the processes of a group, in order; none if there is no such group.
    #[inline]
    pub fn members(&self, group: GroupId) -> impl Iterator<Item = ProcessId> + use<> {
        let first = self.firsts.get(usize::from(group.0)).copied().unwrap_or(0);
        (first..first + self.size(group) as u16).map(ProcessId)
    }

    /// Returns the home group of a client id: the group that numbers the processes that use the id.
    #[must_use]
    pub fn home(&self, client: ClientId) -> GroupId {
        GroupId(client.0 % self.sizes.len() as u16)
    }

    /// Returns the process of a client, or a process id that is not in the cluster if there is no such client.
    #[must_use]
    pub fn client_process(&self, client: ClientId) -> ProcessId {
        ProcessId(self.members.saturating_add(client.0))
    }

    /// Returns the client id whose messages are a group's [time entries](crate::Replica::order_time). No process has
    /// this id.
    #[must_use]
    pub fn time_client(&self, group: GroupId) -> ClientId {
        ClientId(self.clients.saturating_add(group.0))
    }

    /// Returns the client id whose messages are a group's [version entries](crate::Replica::set_version_goal). No
    /// process has this id.
    #[must_use]
    pub fn version_client(&self, group: GroupId) -> ClientId {
        ClientId(self.clients.saturating_add(self.sizes.len() as u16).saturating_add(group.0))
    }

    /// Returns the group whose own entries are the messages of this client id, or `None` if there is no such group.
    #[must_use]
    pub fn entry_group(&self, client: ClientId) -> Option<GroupId> {
        let (beyond, groups) = (client.0.checked_sub(self.clients)?, self.sizes.len() as u16);
        let group = GroupId(beyond.checked_sub(groups).unwrap_or(beyond));
        self.has_group(group).then_some(group)
    }

    /// Returns the role of a process, or `None` if it is not in the cluster.
    #[inline]
    #[must_use]
    pub fn role(&self, process: ProcessId) -> Option<ProcessRole> {
        if let Some(&group) = self.groups.get(process.index()) {
            let index = process.0 - self.firsts[usize::from(group)];
            return Some(ProcessRole::Member { group: GroupId(u16::from(group)), index: index as u8 });
        }
        let client = process.0 - self.members;
        (client < self.clients).then_some(ProcessRole::Client(ClientId(client)))
    }

    /// Returns the bit of a member in masks of its group, or `None` if the process is not a member of that group.
    #[inline]
    #[must_use]
    pub fn member_bit(&self, group: GroupId, process: ProcessId) -> Option<u64> {
        let index = process.0.checked_sub(*self.firsts.get(usize::from(group.0))?)?;
        (usize::from(index) < self.size(group)).then(|| 1 << index)
    }

    /// Returns the ballot of a group at the start of the cluster: the first ballot of its first incarnation, led by its
    /// first member.
    ///
    /// For a group that does not exist, the function returns the default ballot, which no group ever uses.
    #[must_use]
    pub fn first_ballot(&self, group: GroupId) -> Ballot {
        let first = self.firsts.get(usize::from(group.0));
        first.map_or(Ballot::default(), |first| Ballot::new(1, ProcessId(*first)))
    }

    /// Returns the ballot below all others of a group's incarnation `number`, led by the group's first member.
    ///
    /// For a group that does not exist, the function returns the default ballot.
    #[must_use]
    pub(crate) fn before(&self, group: GroupId, number: u32) -> Ballot {
        let first = self.firsts.get(usize::from(group.0));
        first.map_or(Ballot::default(), |first| Ballot::new_in(number, 0, ProcessId(*first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_group_of_a_full_cluster_has_its_members() {
        let topology = Topology::new(&[2; GroupSet::CAPACITY], 1).expect("the largest possible cluster");
        let last = ProcessRole::Member { group: GroupId(255), index: 1 };
        assert_eq!(topology.role(ProcessId(511)), Some(last));
        assert_eq!(topology.role(ProcessId(512)), Some(ProcessRole::Client(ClientId(0))));
        assert_eq!(topology.role(ProcessId(513)), None);
    }

    #[test]
    fn processes_are_numbered_group_by_group_then_clients() {
        let topology = Topology::new(&[3, 1, 5], 2).unwrap();
        assert_eq!(topology.processes(), 11);
        assert_eq!(topology.role(ProcessId(3)), Some(ProcessRole::Member { group: GroupId(1), index: 0 }));
        assert_eq!(topology.role(ProcessId(8)), Some(ProcessRole::Member { group: GroupId(2), index: 4 }));
        assert_eq!(topology.role(ProcessId(10)), Some(ProcessRole::Client(ClientId(1))));
        assert_eq!(topology.role(ProcessId(11)), None);
        assert_eq!(topology.members(GroupId(2)).collect::<Vec<_>>(), (4..9).map(ProcessId).collect::<Vec<_>>());
        assert_eq!([0, 1, 2].map(|g| topology.majority(GroupId(g))), [2, 1, 3]);
        assert_eq!(topology.member_bit(GroupId(2), ProcessId(6)), Some(4));
        assert_eq!(topology.member_bit(GroupId(2), ProcessId(3)), None);
    }

    #[test]
    fn client_ids_of_groups_follow_those_of_processes() {
        let topology = Topology::new(&[3, 1], 2).expect("the topology is possible");
        assert_eq!([0, 1].map(|group| topology.time_client(GroupId(group))), [ClientId(2), ClientId(3)]);
        assert_eq!([0, 1].map(|group| topology.version_client(GroupId(group))), [ClientId(4), ClientId(5)]);
        let groups = [1, 2, 3, 4, 5, 6].map(|client| topology.entry_group(ClientId(client)));
        let (first, second) = (Some(GroupId(0)), Some(GroupId(1)));
        assert_eq!(groups, [None, first, second, first, second, None]);
    }

    #[test]
    fn invalid_clusters_are_refused_with_the_reason() {
        assert_eq!(Topology::new(&[], 0), Err(TopologyError::Groups(0)));
        assert_eq!(Topology::new(&[1, 0], 0), Err(TopologyError::Members { group: 1, members: 0 }));
        assert_eq!(Topology::new(&[65], 0), Err(TopologyError::Members { group: 0, members: 65 }));
        assert_eq!(Topology::new(&[1], u16::MAX), Err(TopologyError::Processes(65537)));
    }
}
