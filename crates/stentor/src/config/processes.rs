//! Who is who: the table of processes, the same at every process.

use std::collections::HashMap;

use stentor_fabric::ProcessId;

use super::ClusterConfig;

/// What a process is in its cluster.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Role {
    /// A member of a group.
    Member {
        /// Index of the group in [`ClusterConfig::groups`].
        group: usize,
        /// Index in [`GroupConfig::members`](super::GroupConfig::members).
        index: usize,
    },
    /// A place for a client.
    Client {
        /// From 0.
        place: u16,
    },
}

/// One process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ProcessEntry {
    /// Its number.
    pub id: ProcessId,
    /// Its name: as in the file, or `c0`, `c1`, … for clients.
    pub name: String,
    /// What it is.
    pub role: Role,
}

/// All processes: members in the order of the file from 0, then the places for clients.
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

    /// All, in the order of their numbers.
    #[must_use]
    pub fn entries(&self) -> &[ProcessEntry] {
        &self.entries
    }

    /// One process; `None` if there is no such number.
    #[must_use]
    pub fn get(&self, id: ProcessId) -> Option<&ProcessEntry> {
        self.entries.get(id.index())
    }

    /// The number of the process with this name.
    #[must_use]
    pub fn find(&self, name: &str) -> Option<ProcessId> {
        self.by_name.get(name).copied()
    }
}
