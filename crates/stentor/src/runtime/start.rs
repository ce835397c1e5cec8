//! Starts the processes of a configuration on the configured fabric, in the same way for all fabrics.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use stentor_fabric::ProcessId;
use stentor_fabric_net::NetConfig;
#[cfg(feature = "roce")]
use stentor_fabric_roce::driver::{Chances, Sharing};
use stentor_host::Beside;
use stentor_multicast::{Client, ClientId};
use stentor_switch_host::SwitchConfig;

use super::cluster::{ClusterRuntime, StartError};
use super::fabric_diagnostics::FabricDiagnostics;
use crate::config::{KeyError, NebConfig};

/// The settings of a process in addition to the configuration.
#[derive(Clone, Debug, Default)]
pub struct BindConfig {
    /// Directory of the configuration. The file of a key may be relative to it.
    pub directory: PathBuf,
    /// Directory in which the sockets of this host's processes are found: by operators and, on shared memory, by peers.
    pub sockets: PathBuf,
    /// Address of this process, on a network. `None`: a member uses its address in the configuration, a client the one
    /// from which this host reaches the first member or, on IPv4 loopback, one that depends on its client id.
    pub bind: Option<IpAddr>,
    /// File for a capture of all packets, on RoCEv2 in user space.
    pub pcap: Option<PathBuf>,
    /// Chances of injected network faults, on RoCEv2 in user space.
    #[cfg(feature = "roce")]
    pub chances: Chances,
    /// Seed of the injected faults.
    pub seed: u64,
    /// `true` if the injected faults may be changed while the process runs, on RoCEv2 in user space.
    pub faults: bool,
    /// Sharing of the address with further endpoints of this process, on RoCEv2 in user space.
    #[cfg(feature = "roce")]
    pub sharing: Sharing,
}

impl BindConfig {
    /// Returns the settings of a process whose configuration is in this file.
    #[must_use]
    pub fn beside(config: &Path) -> Self {
        BindConfig { directory: config.parent().unwrap_or(Path::new("")).to_owned(), seed: 1, ..BindConfig::default() }
    }
}

/// The protocol in which a process participates.
#[derive(Clone, Copy, Debug)]
pub enum Role<'a> {
    /// The groups, as a member or a client.
    Groups,
    /// The broadcast of `[neb]`. Processes are numbered within its group.
    Broadcast(&'a NebConfig),
}

/// A fabric on which processes of a configuration can start.
pub trait ClusterFabric: FabricDiagnostics + Sized {
    /// `true` if processes on this fabric find each other in a directory of their host, where operators find them as
    /// well.
    const MEETS_IN_DIRECTORY: bool = false;

    /// Starts a process. Print the result of [`carrier`](FabricDiagnostics::carrier), which names the device or
    /// provider that was chosen.
    ///
    /// # Errors
    /// Returns [`StartError::Room`], [`StartError::Key`], [`StartError::Address`] or an error of the fabric.
    fn start_in(cluster: &ClusterRuntime, role: Role<'_>, me: ProcessId, bind: &BindConfig)
    -> Result<Self, StartError>;

    /// Returns the socket for operators, if the fabric's processes find each other in a directory.
    fn operator_socket(&self) -> Option<Beside> {
        None
    }
}

/// The settings of a process that all fabrics between hosts need.
pub(super) struct OnNetwork {
    pub(super) net: NetConfig,
    pub(super) switch: Option<SwitchConfig>,
    pub(super) message_bytes: u32,
}

impl OnNetwork {
    pub(super) fn new(
        cluster: &ClusterRuntime,
        role: Role<'_>,
        me: ProcessId,
        bind: &BindConfig,
    ) -> Result<Self, StartError> {
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
            // As on shared memory, staging doubles the printed memory if records exceed the inline limit.
            .max_bytes(2 * most + (64 << 20));
        let net = if role.one_life() { net.one_life() } else { net };
        Ok(OnNetwork { net, switch, message_bytes: (longest as u32 + 4096).max(256 << 10) })
    }
}

impl Role<'_> {
    /// Returns the name of the cluster by which its processes recognise each other.
    pub(super) fn cluster_name(self, cluster: &ClusterRuntime) -> String {
        match self {
            Role::Groups => cluster.config().cluster().to_owned(),
            Role::Broadcast(_) => format!("{}.neb", cluster.config().cluster()),
        }
    }

    /// Returns whether a restarted process is refused. The registers of a broadcast are written once: a process without
    /// its memory could contradict what other processes have agreed on.
    pub(super) fn one_life(self) -> bool {
        matches!(self, Role::Broadcast(_))
    }
}

impl ClusterRuntime {
    /// Starts a client on a fabric.
    ///
    /// # Errors
    /// See [`ClusterFabric::start_in`].
    pub fn start_client<F: ClusterFabric>(&self, client: ClientId, bind: &BindConfig) -> Result<Client<F>, StartError> {
        self.client_on(F::start_in(self, Role::Groups, self.topology().client_process(client), bind)?, client)
    }
}
