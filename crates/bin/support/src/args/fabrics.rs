//! The fabrics among which commands choose that make their own configuration.

use std::net::IpAddr;

use clap::ValueEnum;
use stentor::config::Ground;

use super::OnOfi;
use crate::live::RunDirectory;
use crate::{Failure, rdma_address};

/// What a demonstration runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DemoFabric {
    /// Shared memory
    Shm,
    /// RoCEv2 in user space, each process with a loopback address of its own
    Roce,
    /// The RDMA device of this host, all processes at its address (`stentor doctor` says which)
    Verbs,
    /// A provider of libfabric, each process with a loopback address of its own
    Ofi,
}

/// What a bench runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LoopbackFabric {
    /// Shared memory
    Shm,
    /// RoCEv2 in user space, each process with a loopback address of its own
    Roce,
}

/// What two processes talk over by a channel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ChannelFabric {
    /// Shared memory
    Shm,
    /// RoCEv2 in user space, each process with an address of its own
    Roce,
    /// A provider of libfabric
    Ofi,
}

impl DemoFabric {
    /// The ground of a cluster with its key beside its configuration. `network` is the second number of loopback addresses, and
    /// `address` that of the device.
    ///
    /// # Errors
    /// On verbs, that of `address`.
    pub fn ground(
        self,
        network: u8,
        ofi: &OnOfi,
        address: impl FnOnce() -> Result<IpAddr, Failure>,
    ) -> Result<Ground, Failure> {
        let key = format!("file:{}", RunDirectory::KEY);
        Ok(match self {
            DemoFabric::Shm => Ground::Shm,
            DemoFabric::Roce => Ground::Roce { network, key },
            DemoFabric::Ofi => Ground::Ofi { network, key, provider: ofi.provider.clone(), as_efa: ofi.as_efa },
            DemoFabric::Verbs => Ground::Verbs { address: address()?, key },
        })
    }
}

/// The address of this host's RDMA device, where all processes of a command are that makes its own cluster.
///
/// # Errors
/// When there is no device; `place` is what the error names.
pub fn device_address(place: &str) -> Result<IpAddr, Failure> {
    let remedy = "`stentor doctor` says what this machine can do; `--fabric roce` needs no device";
    rdma_address().map_err(|error| Failure::run(error, place, remedy))
}
