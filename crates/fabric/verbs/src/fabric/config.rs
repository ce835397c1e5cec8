//! The configuration with which a process starts, and the errors that its start can return.

use std::path::PathBuf;

use stentor_switch_host::SwitchConfig;
use thiserror::Error;

use crate::device::{ChooseError, ROOT};
use crate::qp::Tuning;
use crate::{Errno, LoadError, MakeError, OpenError, QueryError};

/// Configuration of the choice and use of a device.
#[derive(Clone, Debug)]
pub struct VerbsConfig {
    /// Name of the device. `None` means that [`choose`](crate::device::choose) selects it.
    pub device: Option<String>,
    /// Number of the port. `None` means that [`choose`](crate::device::choose) selects it.
    pub port: Option<u8>,
    /// Index of the GID in the port's table. `None` means that [`choose`](crate::device::choose) selects the GID by
    /// this process's address.
    pub gid_index: Option<u32>,
    /// NUMA node whose devices are preferred. `None` prefers the node to which this process is bound; on InfiniBand,
    /// only among devices of one subnet, because processes on different nodes must reach each other.
    pub numa_node: Option<u32>,
    /// Payload of a packet, in bytes; the smaller value of both ends is used. `None` uses the port's MTU.
    pub mtu: Option<u32>,
    /// Timeouts, retries and depths. The number of outstanding READs is also limited by the devices of both ends.
    pub tuning: Tuning,
    /// Requested length of inline data, in bytes; the device may grant less.
    pub inline_bytes: u32,
    /// Number of entries of a completion queue. Further queues are created when queue pairs need more entries.
    pub completions: u32,
    /// Maximum depth of a queue that may be requested; the device may support less.
    pub max_depth: u32,
    /// Switch that copies the writes of fan-out sets, if there is one. A switch copies only RoCE v2 packets over IPv4.
    /// With a GID of another kind it is not used, which [`Trouble::NoCopies`](crate::Trouble::NoCopies) reports.
    pub switch: Option<SwitchConfig>,
    /// Root of sysfs, in which devices are found: `/sys`, except in tests.
    pub sysfs: PathBuf,
}

impl Default for VerbsConfig {
    /// Returns the default configuration: the device is chosen by the process's address, with its MTU and 512 bytes of
    /// inline data. A request fails after about a second without an acknowledgement, or about a quarter of a second
    /// without a receive.
    fn default() -> VerbsConfig {
        VerbsConfig {
            device: None,
            port: None,
            gid_index: None,
            numa_node: None,
            mtu: None,
            tuning: Tuning {
                timeout: TIMEOUT_134_MS,
                retries: RETRIES,
                rnr_retries: RETRIES,
                rnr_timer: RNR_41_MS,
                ..Tuning::default()
            },
            inline_bytes: 512,
            completions: 1 << 14,
            max_depth: 1 << 14,
            switch: None,
            sysfs: ROOT.into(),
        }
    }
}

/// Code for a timeout of 134 ms, the same as in the `roce` fabric. A user-space peer answers only when it is scheduled.
const TIMEOUT_134_MS: u8 = 15;
/// Number of retries. The value 7 would mean no limit: on all devices for receivers that are not ready, and on
/// Soft-RoCE also for peers that do not answer.
const RETRIES: u8 = 6;
/// Code for a receiver-not-ready timer of 40.96 ms.
const RNR_41_MS: u8 = 24;

/// Reason why a process could not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// libibverbs could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No device, port or GID can be used.
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// The device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device did not answer a query.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The device cannot create an object that every process needs, such as a queue pair.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The configured value is not a path MTU, or is larger than the port's MTU.
    #[error(
        "path MTU {asked} is invalid: {device} supports 256, 512, 1024, 2048 and 4096 up to {most} (raise the interface's MTU for more)"
    )]
    Mtu {
        /// Configured value, in bytes.
        asked: u32,
        /// Name of the device.
        device: String,
        /// MTU of the port, in bytes.
        most: u32,
    },
    /// The connection manager could not be started.
    #[error(transparent)]
    Net(#[from] stentor_fabric_net::StartError),
    /// A system call failed.
    #[error("cannot {what}: {errno}")]
    System {
        /// Operation that was tried.
        what: &'static str,
        /// Error code.
        errno: Errno,
    },
}
