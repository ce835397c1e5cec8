//! The processes of a configuration on the fabric that it names: one start for all fabrics.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use stentor_fabric::ProcessId;
use stentor_fabric_ofi::{OfiConfig, OfiFabric};
use stentor_fabric_roce::driver::Chances;
use stentor_fabric_roce::{NetConfig, RoceConfig, RoceFabric, SwitchConfig};
use stentor_fabric_shm::{ShmConfig, ShmFabric};
use stentor_fabric_verbs::{VerbsConfig, VerbsFabric};
use stentor_host::Beside;
use stentor_multicast::{Client, ClientId};

use super::cluster::{ClusterRuntime, StartError};
use super::fabric_diagnostics::FabricDiagnostics;
use crate::config::{KeyError, NebConfig};

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
                type $fabric = $crate::runtime::OfiFabric;
                $body
            }
        }
    };
}

/// What all fabrics between hosts are told of a process.
struct OnNetwork {
    net: NetConfig,
    switch: Option<SwitchConfig>,
    message_bytes: u32,
}

impl OnNetwork {
    fn new(cluster: &ClusterRuntime, role: Role<'_>, me: ProcessId, bind: &BindConfig) -> Result<Self, StartError> {
        let config = cluster.config();
        let (addresses, most, longest) = match role {
            Role::Groups => {
                let addresses = cluster.addresses(me, bind.bind)?;
                (addresses, cluster.most_bytes(me)?, cluster.limits().longest_payload(cluster.topology()))
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
        let net = NetConfig::new(&role.cluster_name(cluster), me, addresses)
            .names(names)
            .key(config.key().ok_or(KeyError::Unnamed)?.read(&bind.directory)?)
            .fingerprint(config.fingerprint())
            // As on shared memory: staging doubles what is printed where records are longer than the inline limit.
            .max_bytes(2 * most + (64 << 20));
        let net = if role.one_life() { net.one_life() } else { net };
        Ok(OnNetwork { net, switch, message_bytes: (longest as u32 + 4096).max(256 << 10) })
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
        let OnNetwork { net, switch, message_bytes } = OnNetwork::new(cluster, role, me, bind)?;
        let config = RoceConfig {
            switch,
            message_bytes,
            pcap: bind.pcap.clone(),
            chances: bind.chances,
            seed: bind.seed.wrapping_add(u64::from(me.0)),
            faults: bind.faults,
            ..RoceConfig::default()
        };
        Ok(RoceFabric::start(net, config)?)
    }
}

impl ClusterFabric for VerbsFabric {
    fn start_in(
        cluster: &ClusterRuntime,
        role: Role<'_>,
        me: ProcessId,
        bind: &BindConfig,
    ) -> Result<Self, StartError> {
        let OnNetwork { net, switch, .. } = OnNetwork::new(cluster, role, me, bind)?;
        let config = VerbsConfig { switch, ..VerbsConfig::default() };
        Ok(VerbsFabric::start(net, cluster.config().verbs().apply(config))?)
    }
}

impl ClusterFabric for OfiFabric {
    fn start_in(
        cluster: &ClusterRuntime,
        role: Role<'_>,
        me: ProcessId,
        bind: &BindConfig,
    ) -> Result<Self, StartError> {
        let OnNetwork { net, message_bytes, .. } = OnNetwork::new(cluster, role, me, bind)?;
        let config = OfiConfig { message_bytes, ..OfiConfig::default() };
        Ok(OfiFabric::start(net, cluster.config().ofi().apply(&config))?)
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
