//! The fabric choices of commands that write their own configuration.

use std::net::IpAddr;

use clap::ValueEnum;
use stentor::config::Ground;

use super::OnOfi;
use crate::live::RunDirectory;
use crate::{Failure, rdma_address};

/// Fabrics that `stentor demo` and `stentor chaos` run on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum DemoFabric {
    /// Shared memory
    Shm,
    /// RoCEv2 in user space, each process with its own loopback address
    Roce,
    /// The RDMA device of this host, all processes at its address (`stentor doctor` shows it)
    Verbs,
    /// A provider of libfabric, each process with its own loopback address
    Ofi,
}

/// Fabrics that a bench runs on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum LoopbackFabric {
    /// Shared memory
    Shm,
    /// RoCEv2 in user space, each process with its own loopback address
    Roce,
}

/// Fabrics that carry a channel between two processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum ChannelFabric {
    /// Shared memory
    Shm,
    /// RoCEv2 in user space, each process with its own address
    Roce,
    /// A provider of libfabric
    Ofi,
}

impl DemoFabric {
    /// Returns the fabric and its settings for the configuration of a cluster. The key file is in the folder of the
    /// configuration. `network` is the second byte of the loopback addresses, and `address` returns the address of the
    /// RDMA device.
    ///
    /// # Errors
    /// Returns the error of `address` if the fabric is `verbs`.
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

/// Returns the address of this host's RDMA device. All processes of a command that makes its own cluster use it.
///
/// # Errors
/// Returns an error that names `place` if there is no device.
pub fn device_address(place: &str) -> Result<IpAddr, Failure> {
    let remedy = "`stentor doctor` says what this machine can do; `--fabric roce` needs no device";
    rdma_address().map_err(|error| Failure::run(error, place, remedy))
}
