//! The start of one end of a channel, on each fabric that is built in.

#[cfg(any(feature = "roce", feature = "ofi"))]
use stentor_fabric_net::NetConfig;
#[cfg(feature = "ofi")]
use stentor_fabric_ofi::OfiConfig;
#[cfg(feature = "roce")]
use stentor_fabric_roce::{RoceConfig, StartError as RoceError, driver::PortError};
#[cfg(feature = "shm")]
use stentor_fabric_shm::ShmConfig;
use stentor_host::StartError as SeatError;

use super::error::Problem;
use super::place::{Spot, impossible};
#[cfg(feature = "ofi")]
use crate::Cluster;
#[cfg(feature = "ofi")]
use crate::runtime::OfiFabric;
#[cfg(feature = "roce")]
use crate::runtime::RoceFabric;
#[cfg(feature = "shm")]
use crate::runtime::ShmFabric;
use crate::runtime::{InUse, StartError, patiently};

/// Maximum size of a message of the shared-memory fabric, in bytes. It carries a piece of a channel's message and the
/// protocol overhead.
#[cfg(feature = "shm")]
const FABRIC_BYTES: u32 = 128 << 10;
/// Maximum size of a message of a fabric with tags, in bytes.
#[cfg(feature = "ofi")]
const TAGGED_BYTES: u32 = 512 << 10;

impl Spot {
    fn wait_for_room<T>(&self, start: impl FnMut() -> Result<T, StartError>) -> Result<T, Problem> {
        let name = &self.names[self.me.index()];
        let started = patiently(start, InUse::in_use, |text| log::info!("{name}: {text}"));
        started.map_err(|error| match error {
            StartError::Fabric(SeatError::AlreadyRunning { pid, .. }) => impossible(
                format!("this end is open already, in process {pid}"),
                "close it, or meet at another place; two processes have one channel at a time",
            ),
            error => Problem::Start(error),
        })
    }

    #[cfg(any(feature = "roce", feature = "ofi"))]
    fn net(&self) -> NetConfig {
        let net = NetConfig::new(&self.meeting, self.me, self.addresses.to_vec());
        net.key(self.key.clone()).fingerprint(self.fingerprint)
    }

    /// Starts this end on shared memory.
    #[cfg(feature = "shm")]
    pub(super) fn shm(&self) -> Result<ShmFabric, Problem> {
        let config = ShmConfig {
            directory: self.directory.clone(),
            fingerprint: self.fingerprint,
            message_bytes: FABRIC_BYTES,
            ..ShmConfig::new(&self.meeting, self.me, &self.names[self.me.index()], 2)
        };
        self.wait_for_room(|| Ok(ShmFabric::start(config.clone())?))
    }

    /// Starts this end on RoCEv2 in user space.
    #[cfg(feature = "roce")]
    pub(super) fn roce(mut self) -> Result<RoceFabric, Problem> {
        let config = RoceConfig { seed: 1 + u64::from(self.me.0), ..RoceConfig::default() };
        let others = std::mem::take(&mut self.others);
        for address in others.iter().take(others.len().saturating_sub(1)) {
            self.addresses[self.me.index()] = Some(*address);
            // Another channel may use this address. Then the next one is tried.
            match RoceFabric::start(self.net(), config.clone()) {
                Err(RoceError::Port(PortError::Taken { .. })) => {}
                started => return started.map_err(|error| Problem::Start(error.into())),
            }
        }
        if let Some(last) = others.last() {
            self.addresses[self.me.index()] = Some(*last);
        }
        self.wait_for_room(|| Ok(RoceFabric::start(self.net(), config.clone())?))
    }

    /// Starts this end on libfabric, with the settings of the cluster's configuration if there is one.
    #[cfg(feature = "ofi")]
    pub(super) fn ofi(&self, cluster: Option<&Cluster>, providers: &[String]) -> Result<OfiFabric, Problem> {
        let config = OfiConfig { message_bytes: TAGGED_BYTES, ..OfiConfig::default() };
        let mut config = cluster.map_or(config.clone(), |cluster| cluster.runtime().config().ofi().apply(&config));
        if !providers.is_empty() {
            config.providers = providers.to_vec();
        }
        self.wait_for_room(|| Ok(OfiFabric::start(self.net(), config.clone())?))
    }
}
