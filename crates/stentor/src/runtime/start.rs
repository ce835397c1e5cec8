//! The processes of a configuration on the fabric that it names: one start for all fabrics.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use stentor_fabric::{Fabric, ProcessId, Restricted};
use stentor_fabric_ofi::{OfiConfig, OfiFabric};
use stentor_fabric_roce::driver::Chances;
use stentor_fabric_roce::{HostName, RoceConfig, RoceFabric, SwitchConfig};
use stentor_fabric_shm::{Beside, ShmConfig, ShmFabric};
use stentor_fabric_verbs::{VerbsConfig, VerbsFabric};
use stentor_multicast::{Client, ClientId};

use super::cluster::{ClusterRuntime, StartError};
use super::fabric_diagnostics::FabricDiagnostics;
use crate::config::{KeyError, NebConfig};

/// A provider of libfabric, as it is or with EFA's restrictions.
pub type RestrictedOfi = Restricted<OfiFabric>;

/// What a process is told besides the configuration.
#[derive(Clone, Debug, Default)]
pub struct BindConfig {
    /// Directory of the configuration: a key's file may be relative to it.
    pub directory: PathBuf,
    /// Directory of the control sockets, on shared memory.
    pub sockets: PathBuf,
    /// This process's address, on a network. `None`: a member's is in the configuration, a client's is the one that this host
    /// reaches the first member from.
    pub bind: Option<IpAddr>,
    /// Where to write a capture of all packets, on RoCEv2 in user space.
    pub pcap: Option<PathBuf>,
    /// A bad network, there.
    pub chances: Chances,
    /// The seed of its badness.
    pub seed: u64,
    /// Whether the network's faults may be set while the process runs, there.
    pub faults: bool,
}

impl BindConfig {
    /// A process whose configuration is in this file.
    #[must_use]
    pub fn beside(config: &Path) -> Self {
        BindConfig { directory: config.parent().unwrap_or(Path::new("")).to_owned(), seed: 1, ..BindConfig::default() }
    }
}

/// What a process takes part in.
#[derive(Clone, Copy, Debug)]
pub enum Role<'a> {
    /// The groups, as a member or a client.
    Groups,
    /// The broadcast of `[neb]`; processes are counted in its group.
    Broadcast(&'a NebConfig),
}

/// A fabric that processes of a configuration are started on.
pub trait ClusterFabric: FabricDiagnostics + Sized {
    /// Whether its processes meet in a directory of their host, where operators find them as well.
    const MEETS_IN_DIRECTORY: bool = false;

    /// Starts a process. What [`carrier`](FabricDiagnostics::carrier) says was taken: print it.
    ///
    /// # Errors
    /// [`StartError::Room`], [`StartError::Key`], [`StartError::Address`] and the fabric's own.
    fn start_in(cluster: &ClusterRuntime, role: Role<'_>, me: ProcessId, bind: &BindConfig)
    -> Result<Self, StartError>;

    /// Where operators find it, if it meets others in a directory.
    fn operator_socket(&self) -> Option<Beside> {
        None
    }
}

/// Evaluates an expression in which a name stands for the type of the fabric of this
/// [`FabricKind`](crate::config::FabricKind). Nothing is dispatched dynamically: the expression is compiled once for each
/// fabric. Simulated processes are none of a system; the expression for shared memory stands for them.
#[macro_export]
macro_rules! with_fabric {
    ($kind:expr, $fabric:ident => $body:expr) => {
        match $kind {
            $crate::config::FabricKind::Shm | $crate::config::FabricKind::Sim => {
                type $fabric = $crate::runtime::ShmFabric;
                $body
            }
            $crate::config::FabricKind::Roce => {
                type $fabric = $crate::runtime::RoceFabric;
                $body
            }
            $crate::config::FabricKind::Verbs => {
                type $fabric = $crate::runtime::VerbsFabric;
                $body
            }
            $crate::config::FabricKind::Ofi => {
                type $fabric = $crate::runtime::RestrictedOfi;
                $body
            }
        }
    };
}

/// What all fabrics between hosts are told of a process.
struct OnNetwork {
    cluster: String,
    addresses: Vec<Option<SocketAddr>>,
    names: Vec<Option<HostName>>,
    switch: Option<SwitchConfig>,
    one_life: bool,
    key: Vec<u8>,
    fingerprint: u64,
    max_bytes: u64,
    message_bytes: u32,
}

impl OnNetwork {
    fn new(cluster: &ClusterRuntime, role: Role<'_>, me: ProcessId, bind: &BindConfig) -> Result<Self, StartError> {
        let config = cluster.config();
        let (addresses, most, longest) = match role {
            Role::Groups => {
                let addresses = cluster.addresses(me, bind.bind)?;
                (addresses, cluster.most_bytes(me)?, cluster.limits().body_ring(cluster.topology()).max_payload())
            }
            Role::Broadcast(neb) => {
                let addresses = cluster.neb_addresses(neb, me, bind.bind)?;
                (addresses, cluster.neb_bytes(neb)?, neb.config().payload_bytes)
            }
        };
        let (names, switch) = match role {
            Role::Groups => (cluster.host_names(), config.switch().cloned()),
            Role::Broadcast(neb) => (cluster.neb_host_names(neb), cluster.neb_switch()),
        };
        Ok(OnNetwork {
            cluster: role.cluster_name(cluster),
            addresses,
            names,
            switch,
            one_life: role.one_life(),
            key: config.key().ok_or(KeyError::Unnamed)?.read(&bind.directory)?,
            fingerprint: config.fingerprint(),
            // As on shared memory: staging doubles what is printed where records are longer than the inline limit.
            max_bytes: 2 * most + (64 << 20),
            message_bytes: (longest as u32 + 4096).max(256 << 10),
        })
    }
}

impl Role<'_> {
    /// The name by which its processes know each other.
    fn cluster_name(self, cluster: &ClusterRuntime) -> String {
        match self {
            Role::Groups => cluster.config().cluster().to_owned(),
            Role::Broadcast(_) => format!("{}.neb", cluster.config().cluster()),
        }
    }

    /// Registers of a broadcast are written once: a process without its memory would split what others have agreed on.
    fn one_life(self) -> bool {
        matches!(self, Role::Broadcast(_))
    }
}

impl ClusterFabric for ShmFabric {
    const MEETS_IN_DIRECTORY: bool = true;

    fn start_in(
        cluster: &ClusterRuntime,
        role: Role<'_>,
        me: ProcessId,
        bind: &BindConfig,
    ) -> Result<Self, StartError> {
        let Role::Broadcast(neb) = role else { return cluster.shm(me, bind.sockets.clone()) };
        let members = cluster.config().groups().get(neb.group()).map_or(&[][..], |group| group.members());
        let config = ShmConfig {
            directory: bind.sockets.clone(),
            fingerprint: cluster.config().fingerprint(),
            max_bytes: 2 * cluster.neb_bytes(neb)? + (64 << 20),
            one_life: role.one_life(),
            source: cluster.neb_source(neb.group()),
            ..ShmConfig::new(
                &role.cluster_name(cluster),
                me,
                members.get(me.index()).map_or("?", |member| member.id()),
                neb.config().processes as u16,
            )
        };
        Ok(ShmFabric::start(config)?)
    }

    fn operator_socket(&self) -> Option<Beside> {
        Some(self.beside())
    }
}

impl ClusterFabric for RoceFabric {
    fn start_in(
        cluster: &ClusterRuntime,
        role: Role<'_>,
        me: ProcessId,
        bind: &BindConfig,
    ) -> Result<Self, StartError> {
        let process = OnNetwork::new(cluster, role, me, bind)?;
        Ok(RoceFabric::start(RoceConfig {
            names: process.names,
            switch: process.switch,
            one_life: process.one_life,
            key: process.key,
            fingerprint: process.fingerprint,
            max_bytes: process.max_bytes,
            message_bytes: process.message_bytes,
            pcap: bind.pcap.clone(),
            chances: bind.chances,
            seed: bind.seed.wrapping_add(u64::from(me.0)),
            faults: bind.faults,
            ..RoceConfig::new(&process.cluster, me, process.addresses)
        })?)
    }
}

impl ClusterFabric for VerbsFabric {
    fn start_in(
        cluster: &ClusterRuntime,
        role: Role<'_>,
        me: ProcessId,
        bind: &BindConfig,
    ) -> Result<Self, StartError> {
        let process = OnNetwork::new(cluster, role, me, bind)?;
        Ok(VerbsFabric::start(VerbsConfig {
            names: process.names,
            switch: process.switch,
            one_life: process.one_life,
            key: process.key,
            fingerprint: process.fingerprint,
            max_bytes: process.max_bytes,
            ..cluster.config().verbs().apply(VerbsConfig::new(&process.cluster, me, process.addresses))
        })?)
    }
}

impl ClusterFabric for RestrictedOfi {
    fn start_in(
        cluster: &ClusterRuntime,
        role: Role<'_>,
        me: ProcessId,
        bind: &BindConfig,
    ) -> Result<Self, StartError> {
        let process = OnNetwork::new(cluster, role, me, bind)?;
        let settings = cluster.config().ofi();
        let fabric = OfiFabric::start(OfiConfig {
            names: process.names,
            one_life: process.one_life,
            key: process.key,
            fingerprint: process.fingerprint,
            max_bytes: process.max_bytes,
            message_bytes: process.message_bytes,
            ..settings.apply(OfiConfig::new(&process.cluster, me, process.addresses))
        })?;
        let as_efa = settings.as_efa.map(|efa| efa.disorders(fabric.me().0.into()));
        Ok(Restricted::new(fabric, as_efa))
    }
}

impl ClusterRuntime {
    /// Starts a client on a fabric.
    ///
    /// # Errors
    /// As [`ClusterFabric::start_in`].
    pub fn start_client<F: ClusterFabric>(&self, client: ClientId, bind: &BindConfig) -> Result<Client<F>, StartError> {
        self.client_on(F::start_in(self, Role::Groups, self.topology().client_process(client), bind)?, client)
    }
}
