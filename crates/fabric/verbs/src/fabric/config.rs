//! What a process must know to start.

use std::path::PathBuf;

use stentor_switch_host::SwitchConfig;
use thiserror::Error;

use crate::device::{ChooseError, ROOT};
use crate::qp::Tuning;
use crate::{Errno, LoadError, MakeError, OpenError, QueryError};

/// How a process chooses and uses its device.
#[derive(Clone, Debug)]
pub struct VerbsConfig {
    /// The device; `None`: the one whose GID stands for this process's address.
    pub device: Option<String>,
    /// Its port; `None`: as the device.
    pub port: Option<u8>,
    /// The place of the address in the port's table of GIDs; `None`: where this process's address stands.
    pub gid_index: Option<u32>,
    /// The NUMA node whose devices are preferred; `None`: the one that this process is kept on, within one network.
    pub numa_node: Option<u32>,
    /// Payload of a packet, bytes; the smaller one of both ends counts. `None`: what the port has.
    pub mtu: Option<u32>,
    /// Timeouts, retries and depths; READs are limited to what the devices of both ends have.
    pub tuning: Tuning,
    /// Inline data that is asked for, bytes; what the device grants counts.
    pub inline_bytes: u32,
    /// Completions of one completion queue; there are as many queues as queue pairs need.
    pub completions: u32,
    /// The deepest queue that may be asked for; the device may have less.
    pub max_depth: u32,
    /// The switch that copies writes of sets, if there is one. It copies packets of RoCE v2 over IPv4 alone: with another GID it
    /// is not used, and [`Trouble::NoCopies`](crate::Trouble::NoCopies) says so.
    pub switch: Option<SwitchConfig>,
    /// The kernel's tree, in which devices are found: `/sys`, except in tests.
    pub sysfs: PathBuf,
}

impl Default for VerbsConfig {
    /// The device chosen by the process's address, its MTU, 512 bytes inline; gives up after about a second without an
    /// acknowledgement, and about a quarter without a receive.
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

/// The code of 134 ms, as `roce` has it: a peer in user space answers when it has the processor.
const TIMEOUT_134_MS: u8 = 15;
/// One more is without end: for receivers that are not ready everywhere, and on Soft-RoCE for a peer that does not answer, too.
const RETRIES: u8 = 6;
/// The code of 40.96 ms.
const RNR_41_MS: u8 = 24;

/// Why a process could not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// No libibverbs.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No device, port or GID.
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// The device cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The device does not tell what it is.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The device makes not even one queue pair.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// Not a path MTU, or more than the port has.
    #[error(
        "path MTU {asked}: {device} has {most}; it is one of 256, 512, 1024, 2048, 4096 up to that (raise the interface's MTU for more)"
    )]
    Mtu {
        /// As configured.
        asked: u32,
        /// The device.
        device: String,
        /// What the port has.
        most: u32,
    },
    /// Meeting the peers.
    #[error(transparent)]
    Net(#[from] stentor_fabric_net::StartError),
    /// The system said no.
    #[error("cannot {what}: {errno}")]
    System {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        errno: Errno,
    },
}
