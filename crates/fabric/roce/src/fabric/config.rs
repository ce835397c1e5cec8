//! What a process must know to start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_fabric_net::{HostName, SwitchConfig};
use thiserror::Error;

use crate::driver::{Chances, Mode, PortError};

/// Configuration of one process.
#[derive(Clone, Debug)]
pub struct RoceConfig {
    /// The cluster's name.
    pub cluster: String,
    /// The cluster's key: whoever does not have it gets nothing. Equal at every process.
    pub key: Vec<u8>,
    /// Of the cluster's configuration; equal at every process.
    pub fingerprint: u64,
    /// Of the protocols above; equal at every process.
    pub version: u16,
    /// This process.
    pub me: ProcessId,
    /// Where each process listens for bootstrap connections; its packets go to UDP port 4791 of the same address. `None`
    /// for processes that only dial: of two processes the one with the larger id dials, so the others need no address in
    /// the table. This process's own address must be there.
    pub addresses: Vec<Option<SocketAddr>>,
    /// How the configuration names where processes are, resolved again at every attempt to connect; empty: nothing is.
    pub names: Vec<Option<HostName>>,
    /// Payload of a packet, bytes; the smaller of the two ends counts. 1024 fits an Ethernet MTU of 1500, 4096 one of 4200.
    pub mtu: u16,
    /// Packets of one queue pair that are on their way at the same time.
    pub window: u32,
    /// Limit of all memory that this process registers, bytes.
    pub max_bytes: u64,
    /// Limit of one message or write, bytes.
    pub message_bytes: u32,
    /// How packets are taken in.
    pub mode: Mode,
    /// Whether packets may go and come in runs that the kernel takes as one (UDP_SEGMENT, UDP_GRO): without a bad network, to
    /// peers that say that they take them; they come over plain sockets only.
    pub runs: bool,
    /// A capture of everything.
    pub pcap: Option<PathBuf>,
    /// A bad network, and the seed of its badness.
    pub chances: Chances,
    /// See `chances`.
    pub seed: u64,
    /// Whether [`RoceFabric::set_faults`](crate::RoceFabric::set_faults) is allowed, for tests. Packets do not go in
    /// runs then.
    pub faults: bool,
    /// Whether a process that is started again is refused by those who knew its last life: for protocols in which nobody may
    /// forget.
    pub one_life: bool,
    /// About how long a SEND or WRITE_WITH_IMM waits for the peer to post a receive.
    pub rnr_timeout: Duration,
    /// The switch that makes the copies of sets, if there is one.
    pub switch: Option<SwitchConfig>,
}

impl RoceConfig {
    /// Path MTU 1024, a window of 32 packets, 4 GiB, messages of 256 KiB, a plain socket.
    #[must_use]
    pub fn new(cluster: &str, me: ProcessId, addresses: Vec<Option<SocketAddr>>) -> RoceConfig {
        RoceConfig {
            cluster: cluster.to_owned(),
            key: Vec::new(),
            fingerprint: 0,
            version: 1,
            me,
            addresses,
            names: Vec::new(),
            mtu: 1024,
            window: 32,
            max_bytes: 4 << 30,
            message_bytes: 256 << 10,
            mode: Mode::Plain,
            runs: true,
            pcap: None,
            chances: Chances::default(),
            seed: 1,
            faults: false,
            one_life: false,
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
    Bootstrap(#[from] stentor_fabric_net::StartError),
    /// The capture.
    #[error("cannot write the capture {path}: {source}")]
    Pcap {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}
