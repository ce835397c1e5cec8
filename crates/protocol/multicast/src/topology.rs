//! Who is in which group.

use stentor_fabric::ProcessId;
use thiserror::Error;

use crate::{Ballot, ClientId, GroupId, GroupSet};

/// What a process is in the cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ProcessRole {
    /// A member of a group, by its index in it.
    Member {
        /// The group.
        group: GroupId,
        /// The index in the group, below 64.
        index: u8,
    },
    /// A client.
    Client(ClientId),
}

/// Why a set of groups is not a cluster.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum TopologyError {
    /// More than [`GroupSet::CAPACITY`] groups, or none.
    #[error("{0} groups: a cluster has 1 to {max}", max = GroupSet::CAPACITY)]
    Groups(usize),
    /// An empty group, or more than 64 members.
    #[error("group {group} has {members} members: 1 to {max} are possible", max = Topology::MAX_MEMBERS)]
    Members {
        /// Index of the group.
        group: usize,
        /// Its members.
        members: usize,
    },
    /// More processes than ids.
    #[error("{0} processes and client places: at most 65535 are possible")]
    Processes(usize),
}

/// The groups and clients of a cluster; the same at every process. Processes are numbered: members first, group by
/// group, then clients.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Topology {
    sizes: Vec<u8>,
    firsts: Vec<u16>,
    /// By member.
    groups: Vec<u8>,
    members: u16,
    clients: u16,
}

impl Topology {
    /// The largest group: members are bits of a word.
    pub const MAX_MEMBERS: usize = 64;

    /// Groups of these sizes, and this many clients.
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
        // Behind the clients come those of the groups, two for each.
        if (next + usize::from(clients)).max(usize::from(clients) + 2 * group_sizes.len()) > usize::from(u16::MAX) {
            return Err(TopologyError::Processes(next + usize::from(clients)));
        }
        let groups =
            (0..=u8::MAX).zip(group_sizes).flat_map(|(group, &size)| std::iter::repeat_n(group, size)).collect();
        let sizes = group_sizes.iter().map(|&size| size as u8).collect();
        Ok(Topology { sizes, firsts, groups, members: next as u16, clients })
    }

    /// Number of groups.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.sizes.len()
    }

    /// All groups.
    pub fn group_ids(&self) -> impl Iterator<Item = GroupId> + use<> {
        (0..self.sizes.len() as u16).map(GroupId)
    }

    /// Number of clients.
    #[must_use]
    pub fn clients(&self) -> usize {
        usize::from(self.clients)
    }

    /// Number of members of all groups.
    #[must_use]
    pub fn all_members(&self) -> usize {
        usize::from(self.members)
    }

    /// Number of processes, clients included.
    #[must_use]
    pub fn processes(&self) -> usize {
        self.all_members() + self.clients()
    }

    /// Whether there is such a group.
    #[must_use]
    pub fn has_group(&self, group: GroupId) -> bool {
        usize::from(group.0) < self.sizes.len()
    }

    /// Returns the number of members of a group; 0 if there is no such group.
    #[inline]
    #[must_use]
    pub fn size(&self, group: GroupId) -> usize {
        self.sizes.get(usize::from(group.0)).copied().map_or(0, usize::from)
    }

    /// Returns ⌊n/2⌋+1 of the configured group, always. One more than there are members, if there is no such group.
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

    /// Returns the home group of a client's place: the one that numbers the processes that take it.
    #[must_use]
    pub fn home(&self, client: ClientId) -> GroupId {
        GroupId(client.0 % self.sizes.len() as u16)
    }

    /// Returns the process of a client. One that is not in the cluster, if there is no such client.
    #[must_use]
    pub fn client_process(&self, client: ClientId) -> ProcessId {
        ProcessId(self.members.saturating_add(client.0))
    }

    /// Returns the client id whose messages are a group's [time entries](crate::Replica::order_time). No process has it.
    #[must_use]
    pub fn time_client(&self, group: GroupId) -> ClientId {
        ClientId(self.clients.saturating_add(group.0))
    }

    /// Returns the client id whose messages are a group's [version entries](crate::Replica::set_version_goal). No process has it.
    #[must_use]
    pub fn version_client(&self, group: GroupId) -> ClientId {
        ClientId(self.clients.saturating_add(self.sizes.len() as u16).saturating_add(group.0))
    }

    /// Returns the group whose own entries are the messages of this client id; `None` if it is another client's.
    #[must_use]
    pub fn entry_group(&self, client: ClientId) -> Option<GroupId> {
        let (beyond, groups) = (client.0.checked_sub(self.clients)?, self.sizes.len() as u16);
        let group = GroupId(beyond.checked_sub(groups).unwrap_or(beyond));
        self.has_group(group).then_some(group)
    }

    /// What a process is; `None` if it is not in the cluster.
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

    /// The bit of a member in masks of its group; `None` if the process is not a member of that group.
    #[inline]
    #[must_use]
    pub fn member_bit(&self, group: GroupId, process: ProcessId) -> Option<u64> {
        let index = process.0.checked_sub(*self.firsts.get(usize::from(group.0))?)?;
        (usize::from(index) < self.size(group)).then(|| 1 << index)
    }

    /// Returns the ballot in which a group is at the beginning of the cluster's life: the first one of its first
    /// incarnation, led by its first member. The default one, in which no group ever is, if there is no such group.
    #[must_use]
    pub fn first_ballot(&self, group: GroupId) -> Ballot {
        let first = self.firsts.get(usize::from(group.0));
        first.map_or(Ballot::default(), |first| Ballot::new(1, ProcessId(*first)))
    }

    /// Returns the ballot below all of a group's incarnation `number`, led by its first member. The default one if there is
    /// no such group.
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
    fn the_last_of_as_many_groups_as_are_possible_has_its_members() {
        let topology = Topology::new(&[2; GroupSet::CAPACITY], 1).expect("as many as are possible");
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
    fn client_ids_of_groups_come_behind_those_of_processes() {
        let topology = Topology::new(&[3, 1], 2).expect("possible");
        assert_eq!([0, 1].map(|group| topology.time_client(GroupId(group))), [ClientId(2), ClientId(3)]);
        assert_eq!([0, 1].map(|group| topology.version_client(GroupId(group))), [ClientId(4), ClientId(5)]);
        let groups = [1, 2, 3, 4, 5, 6].map(|client| topology.entry_group(ClientId(client)));
        let (first, second) = (Some(GroupId(0)), Some(GroupId(1)));
        assert_eq!(groups, [None, first, second, first, second, None]);
    }

    #[test]
    fn impossible_clusters_are_refused_by_name() {
        assert_eq!(Topology::new(&[], 0), Err(TopologyError::Groups(0)));
        assert_eq!(Topology::new(&[1, 0], 0), Err(TopologyError::Members { group: 1, members: 0 }));
        assert_eq!(Topology::new(&[65], 0), Err(TopologyError::Members { group: 0, members: 65 }));
        assert_eq!(Topology::new(&[1], u16::MAX), Err(TopologyError::Processes(65536)));
    }
}
