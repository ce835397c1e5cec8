//! The cluster of a history: its groups, processes and clients, from the history's first line.

use std::collections::{HashMap, HashSet};

use thiserror::Error;

use crate::ids::{Group, Incarnation, Label, MAX_GROUPS, Process};

/// The reason why a cluster is invalid.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ClusterError {
    /// The cluster has no groups.
    #[error("the cluster has no groups: name at least one")]
    NoGroups,
    /// A group has no processes.
    #[error("group `{0}` has no processes: list at least one, or leave the group out")]
    EmptyGroup(String),
    /// A group is listed twice.
    #[error("group `{0}` is listed twice: give each group one list")]
    DuplicateGroup(String),
    /// A process is listed twice.
    #[error("process `{0}` is listed twice: a process is a member of one group")]
    DuplicateProcess(String),
    /// A client is listed twice.
    #[error("client `{0}` is listed twice")]
    DuplicateClient(String),
    /// A faulty process is not in the cluster.
    #[error("`{0}` is listed as faulty but is not a process: list it in a group first")]
    UnknownFaulty(String),
    /// The cluster has more groups than the checker supports.
    #[error("{0} groups: at most {MAX_GROUPS} can be checked")]
    TooManyGroups(usize),
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct GroupInfo {
    id: String,
    members: Vec<Process>,
}

#[derive(Clone, PartialEq, Eq, Debug)]
struct ProcessInfo {
    name: String,
    group: Option<Group>,
}

/// Groups, processes and limits of the cluster of a history. It also maps the small numbers in [`Event`](crate::Event)s
/// to names.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    groups: Vec<GroupInfo>,
    processes: Vec<ProcessInfo>,
    labels: Vec<String>,
    label_by_word: HashMap<String, Label>,
    group_by_id: HashMap<String, Group>,
    process_by_name: HashMap<String, Process>,
    clients: Option<Vec<String>>,
    faulty: Vec<String>,
    window: Option<u64>,
    memory_limit: Option<u64>,
    clock: Option<Clock>,
}

/// The origin of the times of a history.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Clock {
    /// One clock for all processes.
    Global,
    /// The clock of a host, with its name. Times of files with the same name are comparable.
    Host(String),
    /// The clocks of several hosts. Only times of one process are comparable.
    Hosts,
}

/// Maximum length of the name of a clock, in bytes.
pub(crate) const MAX_CLOCK_NAME: usize = 128;

/// Suffixes that are appended to a group's id for the names of two clients: those that multicast the group's time
/// entries and version entries.
const ENTRIES: [&str; 2] = ["/time", "/version"];

/// A builder of a [`Cluster`].
#[derive(Clone, Debug, Default)]
pub struct ClusterBuilder {
    groups: Vec<(String, Vec<String>)>,
    /// The cluster without its groups. Its clients and faulty processes are validated together with the groups.
    cluster: Cluster,
}

impl ClusterBuilder {
    /// Adds a group and its members, in order.
    #[must_use]
    pub fn group<N: Into<String>>(
        mut self,
        id: impl Into<String>,
        members: impl IntoIterator<Item = N>,
    ) -> ClusterBuilder {
        self.groups.push((id.into(), members.into_iter().map(Into::into).collect()));
        self
    }

    /// Sets the clients, which are numbered after all members, and closes the list: when a file is read, events of any
    /// other process outside the groups are errors.
    #[must_use]
    pub fn clients<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> ClusterBuilder {
        self.cluster.clients = Some(names.into_iter().map(Into::into).collect());
        self
    }

    /// Sets the processes that do not follow the protocol in this run. Properties promise nothing to them, and ignore
    /// their claims about themselves.
    #[must_use]
    pub fn faulty<N: Into<String>>(mut self, names: impl IntoIterator<Item = N>) -> ClusterBuilder {
        self.cluster.faulty = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the window: the number of messages that one client, or broadcasts that one sender, may have outstanding.
    /// Properties B2 and B6 use it; no property checks it for clients.
    #[must_use]
    pub fn window(mut self, messages: impl Into<Option<u64>>) -> ClusterBuilder {
        self.cluster.window = messages.into();
        self
    }

    /// Sets the limit for `memory` events without a limit, in bytes.
    #[must_use]
    pub fn memory_limit(mut self, bytes: impl Into<Option<u64>>) -> ClusterBuilder {
        self.cluster.memory_limit = bytes.into();
        self
    }

    /// States that the times of all processes are from one clock. Without one clock, real-time order (R1) is not
    /// checked.
    #[must_use]
    pub fn global_clock(mut self) -> ClusterBuilder {
        self.cluster.clock = Some(Clock::Global);
        self
    }

    /// States that times are from a clock of this name. If all files of a run name the same clock, the effect is that
    /// of [`global_clock`](ClusterBuilder::global_clock).
    #[must_use]
    pub fn host_clock(mut self, name: impl Into<String>) -> ClusterBuilder {
        self.cluster.clock = Some(Clock::Host(name.into()));
        self
    }

    /// Builds the cluster.
    ///
    /// # Errors
    /// Returns a [`ClusterError`] if the cluster is invalid.
    pub fn build(self) -> Result<Cluster, ClusterError> {
        if self.groups.is_empty() {
            return Err(ClusterError::NoGroups);
        }
        if self.groups.len() > MAX_GROUPS {
            return Err(ClusterError::TooManyGroups(self.groups.len()));
        }
        let mut cluster = self.cluster;
        for (id, members) in self.groups {
            cluster.add_group(id, members)?;
        }
        if let Some(clients) = cluster.clients.take() {
            cluster.add_clients(clients)?;
        }
        cluster.add_entries();
        if let Some(name) = cluster.faulty.iter().find(|name| cluster.process(name).is_none()) {
            return Err(ClusterError::UnknownFaulty(name.clone()));
        }
        Ok(cluster)
    }
}

impl Cluster {
    /// Returns an empty builder.
    #[must_use]
    pub fn builder() -> ClusterBuilder {
        ClusterBuilder::default()
    }

    fn add_group(&mut self, id: String, members: Vec<String>) -> Result<(), ClusterError> {
        let group = Group(self.groups.len() as u16);
        if members.is_empty() {
            return Err(ClusterError::EmptyGroup(id));
        }
        if self.group_by_id.insert(id.clone(), group).is_some() {
            return Err(ClusterError::DuplicateGroup(id));
        }
        let mut places = Vec::with_capacity(members.len());
        for name in members {
            if self.process_by_name.contains_key(&name) {
                return Err(ClusterError::DuplicateProcess(name));
            }
            places.push(self.add_process(name, Some(group)));
        }
        self.groups.push(GroupInfo { id, members: places });
        Ok(())
    }

    fn add_clients(&mut self, clients: Vec<String>) -> Result<(), ClusterError> {
        let mut listed = HashSet::new();
        for name in &clients {
            if !listed.insert(name) {
                return Err(ClusterError::DuplicateClient(name.clone()));
            }
            // A member of a group may also be a client.
            if !self.process_by_name.contains_key(name) {
                self.add_process(name.clone(), None);
            }
        }
        self.clients = Some(clients);
        Ok(())
    }

    /// Adds two clients for each group, which multicast the group's own entries.
    fn add_entries(&mut self) {
        for entries in ENTRIES {
            for group in self.groups() {
                let name = format!("{}{entries}", self.group_id(group));
                if !self.process_by_name.contains_key(&name) {
                    self.add_process(name, None);
                }
            }
        }
    }

    /// Returns the group whose own entries are the messages of this client, or `None` for other clients.
    #[must_use]
    pub fn entry_group(&self, client: Process) -> Option<Group> {
        let name = self.process_name(client);
        ENTRIES.iter().find_map(|entries| name.strip_suffix(entries)).and_then(|group| self.group(group))
    }

    fn add_process(&mut self, name: String, group: Option<Group>) -> Process {
        let process = Process(self.processes.len() as u32);
        self.process_by_name.insert(name.clone(), process);
        self.processes.push(ProcessInfo { name, group });
        process
    }

    /// Adds a group that represents an ended history of the group `of`, with a process of the same name for each of its
    /// members. Neither the group nor the processes can be found by name.
    pub(crate) fn add_ended(&mut self, of: Group, incarnation: Incarnation) -> (Group, Vec<Process>) {
        let ended = Group(self.groups.len() as u16);
        let mut members = Vec::new();
        for member in self.members(of).to_vec() {
            members.push(Process(self.processes.len() as u32));
            let name = self.process_name(member).to_owned();
            self.processes.push(ProcessInfo { name, group: Some(ended) });
        }
        let id = format!("{} in {incarnation}", self.group_id(of));
        self.groups.push(GroupInfo { id, members: members.clone() });
        (ended, members)
    }

    /// Returns the process with this name.
    #[must_use]
    pub fn process(&self, name: &str) -> Option<Process> {
        self.process_by_name.get(name).copied()
    }

    /// Returns the process with this name. If the cluster line lists no clients, an unknown name becomes a new client.
    pub(crate) fn process_or_client(&mut self, name: &str) -> Option<Process> {
        match self.process(name) {
            None if self.clients.is_none() => Some(self.add_process(name.to_owned(), None)),
            known => known,
        }
    }

    /// Returns the group with this id.
    #[must_use]
    pub fn group(&self, id: &str) -> Option<Group> {
        self.group_by_id.get(id).copied()
    }

    /// Returns the number of interned words.
    #[must_use]
    pub fn label_count(&self) -> usize {
        self.labels.len()
    }

    /// Interns a word.
    pub fn label(&mut self, word: &str) -> Label {
        if let Some(label) = self.label_by_word.get(word) {
            return *label;
        }
        let label = Label(self.labels.len() as u32);
        self.labels.push(word.to_owned());
        self.label_by_word.insert(word.to_owned(), label);
        label
    }

    /// Returns the word of a label. It is empty if the label is not of this cluster.
    #[must_use]
    pub fn label_word(&self, label: Label) -> &str {
        self.labels.get(label.0 as usize).map_or("", String::as_str)
    }

    /// Returns the name of a process. It is empty if the process is not in the table.
    #[must_use]
    pub fn process_name(&self, process: Process) -> &str {
        self.processes.get(process.index()).map_or("", |info| &info.name)
    }

    /// Returns the id of a group. It is empty if the group is not in the table.
    #[must_use]
    pub fn group_id(&self, group: Group) -> &str {
        self.groups.get(group.index()).map_or("", |info| &info.id)
    }

    /// Returns the members of a group, in the order of the cluster line. The slice is empty if the group is not in the
    /// table.
    #[must_use]
    pub fn members(&self, group: Group) -> &[Process] {
        self.groups.get(group.index()).map_or(&[], |info| &info.members)
    }

    /// Returns the group that the process is a member of, or `None` for a client.
    #[inline]
    #[must_use]
    pub fn group_of(&self, process: Process) -> Option<Group> {
        self.processes.get(process.index()).and_then(|info| info.group)
    }

    /// Returns all groups.
    pub fn groups(&self) -> impl ExactSizeIterator<Item = Group> + Clone + use<> {
        (0..self.groups.len() as u16).map(Group)
    }

    /// Returns the number of known processes, both members and clients.
    #[must_use]
    pub fn process_count(&self) -> usize {
        self.processes.len()
    }

    /// Returns the clients if the cluster line lists them.
    #[must_use]
    pub fn client_names(&self) -> Option<&[String]> {
        self.clients.as_deref()
    }

    /// Returns the names of the processes that do not follow the protocol.
    #[must_use]
    pub fn faulty_names(&self) -> &[String] {
        &self.faulty
    }

    /// Adds a process that does not follow the protocol. Returns `false` if there is no such process.
    pub fn add_faulty(&mut self, name: &str) -> bool {
        let known = self.process(name).is_some();
        if known && !self.faulty.iter().any(|faulty| faulty == name) {
            self.faulty.push(name.to_owned());
        }
        known
    }

    /// Returns whether the process does not follow the protocol.
    #[must_use]
    pub fn is_faulty(&self, process: Process) -> bool {
        let name = self.process_name(process);
        self.faulty.iter().any(|faulty| faulty == name)
    }

    /// Returns the number of messages that one client, or broadcasts that one sender, may have outstanding, if the
    /// cluster line has it.
    #[must_use]
    pub fn window(&self) -> Option<u64> {
        self.window
    }

    /// Returns the limit for `memory` events without a limit, in bytes.
    #[must_use]
    pub fn memory_limit(&self) -> Option<u64> {
        self.memory_limit
    }

    /// Returns whether the times of all processes are from one clock.
    #[must_use]
    pub fn has_global_clock(&self) -> bool {
        matches!(self.clock, Some(Clock::Global | Clock::Host(_)))
    }

    /// Returns the origin of times, or `None` if no file names it.
    #[must_use]
    pub fn clock(&self) -> Option<&Clock> {
        self.clock.as_ref()
    }

    /// Merges the clock of another file of the same run.
    pub(crate) fn meet_clock(&mut self, other: Option<&Clock>) {
        if self.clock.as_ref() != other {
            self.clock = Some(Clock::Hosts);
        }
    }

    /// Returns the first field of the cluster line in which two clusters differ.
    #[must_use]
    pub fn difference(&self, other: &Cluster) -> Option<&'static str> {
        let member_names = |cluster: &Cluster| -> Vec<(String, Vec<String>)> {
            let names = |info: &GroupInfo| info.members.iter().map(|p| cluster.process_name(*p).to_owned()).collect();
            cluster.groups.iter().map(|info| (info.id.clone(), names(info))).collect()
        };
        if member_names(self) != member_names(other) {
            return Some("groups");
        }
        let fields = [
            ("clients", self.clients == other.clients),
            ("faulty", self.faulty == other.faulty),
            ("window", self.window == other.window),
            ("memory_limit", self.memory_limit == other.memory_limit),
            ("clock", clocks_agree(self.clock.as_ref(), other.clock.as_ref())),
        ];
        fields.into_iter().find(|(_, same)| !same).map(|(name, _)| name)
    }
}

/// Returns whether two files of one run may have these clocks. Each host may have its own.
fn clocks_agree(one: Option<&Clock>, other: Option<&Clock>) -> bool {
    let of_hosts = |clock: Option<&Clock>| matches!(clock, Some(Clock::Host(_) | Clock::Hosts));
    one == other || of_hosts(one) && of_hosts(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_come_first_then_clients() {
        let cluster = Cluster::builder().group("a", ["a1", "a2"]).group("b", ["b1"]).clients(["c0"]).build().unwrap();
        assert_eq!(cluster.process("a2"), Some(Process(1)));
        assert_eq!(cluster.process("c0"), Some(Process(3)));
        assert_eq!(cluster.group_of(Process(2)), Some(Group(1)));
        assert_eq!(cluster.group_of(Process(3)), None);
        assert_eq!(cluster.process("b/time"), Some(Process(5)), "then those of time entries");
        assert_eq!(cluster.process("a/version"), Some(Process(6)), "and those of version entries");
        let groups = [3, 4, 5, 6, 7].map(|client| cluster.entry_group(Process(client)));
        let (a, b) = (Some(Group(0)), Some(Group(1)));
        assert_eq!(groups, [None, a, b, a, b]);
        assert_eq!(cluster.members(Group(0)), [Process(0), Process(1)]);
    }

    #[test]
    fn impossible_clusters_are_refused() {
        let refused = |builder: ClusterBuilder| builder.build().unwrap_err();
        assert_eq!(refused(Cluster::builder()), ClusterError::NoGroups);
        assert_eq!(refused(Cluster::builder().group::<&str>("a", [])), ClusterError::EmptyGroup("a".into()));
        let twice = Cluster::builder().group("a", ["x"]).group("a", ["y"]);
        assert_eq!(refused(twice), ClusterError::DuplicateGroup("a".into()));
        let shared = Cluster::builder().group("a", ["x"]).group("b", ["x"]);
        assert_eq!(refused(shared), ClusterError::DuplicateProcess("x".into()));
        let clients = Cluster::builder().group("a", ["x"]).clients(["c", "c"]);
        assert_eq!(refused(clients), ClusterError::DuplicateClient("c".into()));
        let many = (0..=MAX_GROUPS).fold(Cluster::builder(), |b, i| b.group(format!("g{i}"), [format!("p{i}")]));
        assert_eq!(refused(many), ClusterError::TooManyGroups(MAX_GROUPS + 1));
    }

    #[test]
    fn differences_are_named() {
        let base = Cluster::builder().group("a", ["x"]);
        let cluster = base.clone().build().unwrap();
        assert_eq!(cluster.difference(&cluster), None);
        assert_eq!(cluster.difference(&base.clone().global_clock().build().unwrap()), Some("clock"));
        let hosts = ["one", "two"].map(|host| base.clone().host_clock(host).build().unwrap());
        assert_eq!((hosts[0].difference(&hosts[1]), cluster.difference(&hosts[0])), (None, Some("clock")));
        assert_eq!(cluster.difference(&base.clone().clients(["c"]).build().unwrap()), Some("clients"));
        assert_eq!(cluster.difference(&base.group("b", ["y"]).build().unwrap()), Some("groups"));
    }
}
