//! The configuration of a cluster, as a program uses it.

mod broadcast;
mod builder;
mod error;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use stentor_host::default_directory;
use stentor_multicast::GroupId;

use crate::broadcast::BroadcastBuilder;
#[cfg(any(feature = "shm", feature = "roce", feature = "ofi"))]
use crate::channel::ChannelBuilder;
use crate::client::ClientBuilder;
use crate::config::{self, ClusterConfig, MemoryPlan, Problem};
use crate::node::NodeBuilder;
use crate::observer::ObserverBuilder;
use crate::runtime::ClusterRuntime;
use crate::state_machine::StateMachine;

pub use broadcast::BroadcastConfig;
pub use builder::ClusterBuilder;
pub use error::{ConfigError, ConfigErrorKind};

/// A checked configuration, the same at every process of the cluster. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Cluster {
    runtime: Arc<ClusterRuntime>,
    /// Directory in which the processes of one host find each other.
    sockets: PathBuf,
}

impl Cluster {
    /// Reads and checks a file, usually `cluster.toml`. `stentor config init` writes one.
    ///
    /// # Errors
    /// Returns the reason why the file is refused, with the remedy and, if the problem lies in a line, the line.
    pub fn load(path: impl AsRef<Path>) -> Result<Cluster, ConfigError> {
        let path = path.as_ref();
        let runtime = runtime(ClusterConfig::load(path).map_err(ConfigError)?, path)?.with_file(path);
        Ok(Cluster { runtime: Arc::new(runtime), sockets: default_directory() })
    }

    /// Returns a builder of a configuration in code, without a file.
    pub fn builder(name: &str) -> ClusterBuilder {
        ClusterBuilder::new(name)
    }

    fn in_code(config: ClusterConfig, sockets: Option<PathBuf>) -> Result<Cluster, ConfigError> {
        let runtime = Arc::new(runtime(config, Path::new(builder::ORIGIN))?);
        Ok(Cluster { runtime, sockets: sockets.unwrap_or_else(default_directory) })
    }

    /// Returns the cluster of a configuration that has already been read.
    #[cfg(feature = "unstable-core")]
    #[must_use]
    pub fn of(runtime: Arc<ClusterRuntime>) -> Cluster {
        Cluster { runtime, sockets: default_directory() }
    }

    /// Sets the directory in which the processes of this host find each other. The default is
    /// `$XDG_RUNTIME_DIR/stentor`, or `/tmp/stentor-UID`. All processes of the cluster on one host need the same
    /// directory.
    #[must_use]
    pub fn in_directory(self, directory: impl AsRef<Path>) -> Cluster {
        Cluster { sockets: stentor_host::absolute(directory.as_ref()), ..self }
    }

    /// Returns the name of the cluster.
    #[must_use]
    pub fn name(&self) -> &str {
        self.runtime.config().cluster()
    }

    /// Returns the group with this name.
    ///
    /// # Errors
    /// Returns an error if the configuration has no such group.
    pub fn group(&self, name: &str) -> Result<Group, ConfigError> {
        let file = self.runtime.file().unwrap_or(Path::new(builder::ORIGIN));
        let unknown = || refused(file, Problem::UnknownGroup { name: name.to_owned() });
        self.runtime.group(name).map(Group).ok_or_else(unknown)
    }

    /// Returns all groups, in the order of the configuration.
    pub fn groups(&self) -> impl Iterator<Item = Group> + '_ {
        self.runtime.topology().group_ids().map(Group)
    }

    /// Returns the name of a group of this cluster. Returns `?` if the group belongs to another cluster and this one
    /// has no such group.
    #[must_use]
    pub fn group_name(&self, group: Group) -> &str {
        self.runtime.group_name(group.0)
    }

    /// Returns the names of a group's members.
    pub fn members(&self, group: Group) -> impl Iterator<Item = &str> + '_ {
        let group = self.runtime.config().groups().get(usize::from(group.0.0));
        group.into_iter().flat_map(|group| group.members().iter().map(|member| member.id()))
    }

    /// Returns the group to which the member with this name belongs.
    ///
    /// # Errors
    /// Returns an error if no group of the configuration has such a member.
    pub fn group_of(&self, member: &str) -> Result<Group, ConfigError> {
        let file = self.runtime.file().unwrap_or(Path::new(builder::ORIGIN));
        let unknown = || refused(file, Problem::UnknownMember { name: member.to_owned() });
        self.groups().find(|group| self.members(*group).any(|name| name == member)).ok_or_else(unknown)
    }

    /// Returns the largest difference between two clocks of members that both count as right: `clock_bound_ms` in
    /// `[limits]`. A client that keeps a lease by its own clock subtracts it.
    #[must_use]
    pub fn clock_bound(&self) -> Duration {
        self.runtime.config().clock_bound()
    }

    /// Returns the memory that each process of this configuration will keep for the multicast. No process has to run.
    #[must_use]
    pub fn memory(&self) -> MemoryPlan {
        self.runtime.config().memory()
    }

    /// Configures the member `name` of a group, with `state` as its state machine. The initial value of `state` is used
    /// when the group starts, and must be equal at all members. A member that joins later restores the others' state
    /// instead, unless they have applied no command yet. The node keeps the initial value in memory, as
    /// [`Frozen::write`](crate::Frozen::write) writes it.
    pub fn node<S: StateMachine>(&self, name: &str, state: S) -> NodeBuilder<S> {
        NodeBuilder::new(self.clone(), name, state)
    }

    /// Configures a client. It uses a free client id of the cluster, if possible one whose home group is among the
    /// groups of the client.
    pub fn client(&self) -> ClientBuilder {
        ClientBuilder::new(self.clone())
    }

    /// Configures an observer of a group. The observer follows the order of the group but is neither a member nor a
    /// client, and cannot delay the group.
    pub fn observe(&self, group: Group) -> ObserverBuilder {
        ObserverBuilder::new(self.clone(), group)
    }

    /// Configures a process of the broadcast that `[neb]` in the configuration describes.
    pub fn broadcast(&self, name: &str) -> BroadcastBuilder {
        BroadcastBuilder::new(self.clone(), name)
    }

    /// Configures the end of a channel at the process `me`, to the process `peer`; both are members of groups. The
    /// other process opens its end with the names swapped. On shared memory, the channel can be open beside a node of
    /// the same name. On fabrics between hosts, the ends use the addresses of the two members, so no node or broadcast
    /// of that name can run at the same address: use [`Channel::listen`] there.
    ///
    /// [`Channel::listen`]: crate::Channel::listen
    #[cfg(any(feature = "shm", feature = "roce", feature = "ofi"))]
    pub fn channel(&self, me: &str, peer: &str) -> ChannelBuilder {
        ChannelBuilder::in_cluster(self.clone(), me, peer)
    }

    pub(crate) fn runtime(&self) -> &Arc<ClusterRuntime> {
        &self.runtime
    }

    pub(crate) fn sockets(&self) -> &Path {
        &self.sockets
    }
}

fn runtime(config: ClusterConfig, file: &Path) -> Result<ClusterRuntime, ConfigError> {
    // A configuration's limits are within the protocol's, so only this error is possible.
    ClusterRuntime::new(config).map_err(|error| refused(file, Problem::Impossible { reason: error.to_string() }))
}

fn refused(file: &Path, problem: Problem) -> ConfigError {
    ConfigError(config::ConfigError { file: file.to_owned(), position: None, problem })
}

/// A group of a cluster, which [`Cluster::group`] returns by its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Group(pub(crate) GroupId);

impl Group {
    /// Returns the position of the group in the configuration, from 0. [`Cluster::groups`] returns groups in this
    /// order.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0.0)
    }
}

/// Writes `group N`, where N is the [position](Group::index) of the group. [`Cluster::group_name`] returns its name.
impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "group {}", self.index())
    }
}
