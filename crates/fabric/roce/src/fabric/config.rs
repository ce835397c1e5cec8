//! What a process must know to start.

use std::path::PathBuf;
use std::time::Duration;

use stentor_switch_host::SwitchConfig;
use thiserror::Error;

use crate::driver::{Chances, Mode, PortError, Sharing};

/// How a process uses its sockets.
#[derive(Clone, Debug)]
pub struct RoceConfig {
    /// Payload of a packet, bytes; the smaller of the two ends counts. `None`: the largest that the interface of the own address
    /// takes when a connection begins: 1024 at an Ethernet MTU of 1500, 4096 from 4160 on (IPv4).
    pub mtu: Option<u16>,
    /// The most packets of one queue pair that are on their way at the same time; fewer where sockets have less room.
    pub window: u32,
    /// Limit of one message or write, bytes.
    pub message_bytes: u32,
    /// How packets are taken in. Beside another endpoint that one's mode counts.
    pub mode: Mode,
    /// Whether several endpoints of this process share an address.
    pub sharing: Sharing,
    /// Whether packets may go and come in runs that the kernel takes as one (UDP_SEGMENT, UDP_GRO): without a bad network, to
    /// peers that say that they take them; they come over plain sockets only.
    pub runs: bool,
    /// A capture of everything.
    pub pcap: Option<PathBuf>,
    /// A bad network, and the seed of its badness.
    pub chances: Chances,
    /// See `chances`.
    pub seed: u64,
    /// Whether [`RoceDevice::set_faults`](crate::RoceDevice::set_faults) is allowed, for tests. Packets do not go in
    /// runs then.
    pub faults: bool,
    /// About how long a SEND or WRITE_WITH_IMM waits for the peer to post a receive.
    pub rnr_timeout: Duration,
    /// The switch that copies writes of sets, if there is one.
    pub switch: Option<SwitchConfig>,
}

impl Default for RoceConfig {
    /// The interface's MTU, a window of 256 packets, messages of 256 KiB, a plain socket.
    fn default() -> RoceConfig {
        RoceConfig {
            mtu: None,
            window: 256,
            message_bytes: 256 << 10,
            mode: Mode::Plain,
            sharing: Sharing::Alone,
            runs: true,
            pcap: None,
            chances: Chances::default(),
            seed: 1,
            faults: false,
            rnr_timeout: Duration::from_millis(250),
            switch: None,
        }
    }
}

/// Why a process could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// Not a path MTU.
    #[error("path MTU {0}: it is one of 256, 512, 1024, 2048, 4096")]
    Mtu(u16),
    /// The sockets for packets.
    #[error(transparent)]
    Port(#[from] PortError),
    /// Meeting the peers.
    #[error(transparent)]
    Net(#[from] stentor_fabric_net::StartError),
    /// The capture.
    #[error("cannot write the capture {path}: {source}")]
    Pcap {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}
