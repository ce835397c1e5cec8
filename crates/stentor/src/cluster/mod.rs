//! A configuration, as a program uses it.

mod builder;
mod error;

use std::path::{Path, PathBuf};
use std::sync::Arc;

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

pub use builder::ClusterBuilder;
pub use error::{ConfigError, ConfigErrorKind};

/// A checked configuration, the same at every process of the cluster. Cloning it is cheap.
#[derive(Clone, Debug)]
pub struct Cluster {
    runtime: Arc<ClusterRuntime>,
    /// Where processes of one host meet.
    sockets: PathBuf,
}

impl Cluster {
    /// Reads and checks a file, usually `cluster.toml`. `stentor config init` writes one.
    ///
    /// # Errors
    /// Why the file is refused, with its line and the remedy.
    pub fn load(path: impl AsRef<Path>) -> Result<Cluster, ConfigError> {
        let path = path.as_ref();
        let runtime = runtime(ClusterConfig::load(path).map_err(ConfigError)?, path)?.with_file(path);
        Ok(Cluster { runtime: Arc::new(runtime), sockets: default_directory() })
    }

    /// Begins a configuration in code: no file is needed.
    pub fn builder(name: &str) -> ClusterBuilder {
        ClusterBuilder::new(name)
    }

    fn in_code(config: ClusterConfig, sockets: Option<PathBuf>) -> Result<Cluster, ConfigError> {
        let runtime = Arc::new(runtime(config, Path::new(builder::ORIGIN))?);
        Ok(Cluster { runtime, sockets: sockets.unwrap_or_else(default_directory) })
    }

    /// Returns the cluster of a configuration that was read already.
    #[cfg(feature = "unstable-core")]
    #[must_use]
    pub fn of(runtime: Arc<ClusterRuntime>) -> Cluster {
        Cluster { runtime, sockets: default_directory() }
    }

    /// Sets the directory in which the processes of this host meet. Without it that is `$XDG_RUNTIME_DIR/stentor`, or
    /// `/tmp/stentor-UID`. All processes of the cluster on one host need the same one.
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
    /// If the configuration has no such group.
    pub fn group(&self, name: &str) -> Result<Group, ConfigError> {
        let file = self.runtime.file().unwrap_or(Path::new(builder::ORIGIN));
        let unknown = || refused(file, Problem::UnknownGroup { name: name.to_owned() });
        self.runtime.group(name).map(Group).ok_or_else(unknown)
    }

    /// Returns all groups, in the order of the configuration.
    pub fn groups(&self) -> impl Iterator<Item = Group> + '_ {
        self.runtime.topology().group_ids().map(Group)
    }

    /// Returns the name of a group of this cluster; `?` for one of another cluster that this one has not.
    #[must_use]
    pub fn group_name(&self, group: Group) -> &str {
        self.runtime.group_name(group.0)
    }

    /// Returns the names of a group's members.
    pub fn members(&self, group: Group) -> impl Iterator<Item = &str> + '_ {
        let group = self.runtime.config().groups().get(usize::from(group.0.0));
        group.into_iter().flat_map(|group| group.members().iter().map(|member| member.id()))
    }

    /// Returns the memory that each process of this configuration will register. Nothing needs to run for that.
    #[must_use]
    pub fn memory(&self) -> MemoryPlan {
        self.runtime.config().memory()
    }

    /// Begins a member of a group with this value. The value counts only where the group begins, and must be equal at all members: a
    /// member that is taken in gets the others' state, but not before they have applied a command. The node keeps it in memory, as
    /// [`Frozen::write`](crate::Frozen::write) writes it.
    pub fn node<S: StateMachine>(&self, name: &str, state: S) -> NodeBuilder<S> {
        NodeBuilder::new(self.clone(), name, state)
    }

    /// Begins a client. It takes the first of the cluster's places for clients that is free.
    pub fn client(&self) -> ClientBuilder {
        ClientBuilder::new(self.clone())
    }

    /// Begins an observer of a group: it follows the order of the group, is no member and no client, and holds nobody up.
    pub fn observe(&self, group: Group) -> ObserverBuilder {
        ObserverBuilder::new(self.clone(), group)
    }

    /// Begins a process of the broadcast that `[neb]` in the configuration describes.
    pub fn broadcast(&self, name: &str) -> BroadcastBuilder {
        BroadcastBuilder::new(self.clone(), name)
    }

    /// Begins the end of a channel at the process `me`, to the process `peer`; both are members of groups. The other process opens its end
    /// the other way round. On shared memory it can be open beside a node of the same name. On fabrics between hosts the ends take the
    /// addresses of the two members, so no node or broadcast of that name can run at the same address: use [`Channel::listen`] there.
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
    // The limits of a configuration are within the protocol's, so this is the only thing that may be wrong.
    ClusterRuntime::new(config).map_err(|error| refused(file, Problem::Impossible { reason: error.to_string() }))
}

fn refused(file: &Path, problem: Problem) -> ConfigError {
    ConfigError(config::ConfigError { file: file.to_owned(), position: None, problem })
}

/// A group of a cluster. [`Cluster::group`] gives it by its name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Group(pub(crate) GroupId);
