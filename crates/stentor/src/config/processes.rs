//! The table of processes, the same at every process.

use std::collections::HashMap;

use stentor_fabric::ProcessId;

use super::ClusterConfig;

/// The role of a process in its cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// A member of a group.
    Member {
        /// Index of the group in [`ClusterConfig::groups`].
        group: usize,
        /// Index in [`GroupConfig::members`](super::GroupConfig::members).
        index: usize,
    },
    /// A client id.
    Client {
        /// Number of the client id, from 0.
        place: u16,
    },
}

/// An entry of the process table.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ProcessEntry {
    /// Number of the process.
    pub id: ProcessId,
    /// Name of the process: as in the file, or `c0`, `c1`, … for clients.
    pub name: String,
    /// Role of the process.
    pub role: Role,
}

/// All processes: the members in the order of the file from 0, then the client ids.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProcessTable {
    entries: Vec<ProcessEntry>,
    by_name: HashMap<String, ProcessId>,
}

impl ProcessTable {
    pub(super) fn new(config: &ClusterConfig) -> Self {
        let members = config.groups.iter().enumerate().flat_map(|(group, g)| {
            let role = move |index| Role::Member { group, index };
            g.members.iter().enumerate().map(move |(index, member)| (member.id.clone(), role(index)))
        });
        let clients = (0..config.limits.clients).map(|place| (format!("c{place}"), Role::Client { place }));
        let entries: Vec<_> = (0..=u16::MAX)
            .zip(members.chain(clients))
            .map(|(id, (name, role))| ProcessEntry { id: ProcessId(id), name, role })
            .collect();
        let by_name = entries.iter().map(|entry| (entry.name.clone(), entry.id)).collect();
        ProcessTable { entries, by_name }
    }

    /// Returns all processes, in the order of their numbers.
    #[must_use]
    pub fn entries(&self) -> &[ProcessEntry] {
        &self.entries
    }

    /// Returns a process, or `None` if the number does not exist.
    #[must_use]
    pub fn get(&self, id: ProcessId) -> Option<&ProcessEntry> {
        self.entries.get(id.index())
    }

    /// Returns the number of the process with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<ProcessId> {
        self.by_name.get(name).copied()
    }
}
