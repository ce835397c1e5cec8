//! The configuration of a RoCE device, and the errors that its start can return.

use std::path::PathBuf;
use std::time::Duration;

use stentor_switch_host::SwitchConfig;
use thiserror::Error;

use crate::driver::{Chances, Mode, PortError, Sharing};

/// Configuration of a RoCE device.
#[derive(Clone, Debug)]
pub struct RoceConfig {
    /// Maximum payload of a packet, in bytes. A connection uses the smaller value of both ends, or less if the path
    /// drops long packets. `None` selects the maximum for the interface of the local address when a connection begins.
    /// For IPv4 that is 1024 if the Ethernet MTU is 1500, and 4096 if the MTU is at least 4160.
    pub mtu: Option<u16>,
    /// Maximum number of packets of one queue pair in flight. The actual window is smaller if the socket buffers are
    /// small.
    pub window: u32,
    /// Maximum length of one message or write, in bytes.
    pub message_bytes: u32,
    /// The kind of receiving socket. Ignored if another endpoint receives for this one ([`Sharing::Beside`]).
    pub mode: Mode,
    /// The way in which endpoints of this process share an address.
    pub sharing: Sharing,
    /// `true` to send and receive packets in runs, which the kernel accepts as one buffer (UDP_SEGMENT, UDP_GRO). Runs
    /// are sent only to peers that accept them, and only if no faults are injected. They are received only in
    /// [`Mode::Plain`].
    pub runs: bool,
    /// Path of a file to which all packets are captured, if any.
    pub pcap: Option<PathBuf>,
    /// Faults to inject.
    pub chances: Chances,
    /// Seed of the injected faults.
    pub seed: u64,
    /// `true` to allow [`RoceDevice::set_faults`](crate::RoceDevice::set_faults), for tests. Packets are then not sent
    /// in runs.
    pub faults: bool,
    /// Approximate time after which a peer's SEND or WRITE_WITH_IMM fails if this process has not posted a receive.
    pub rnr_timeout: Duration,
    /// The switch that copies the writes of fan-out sets, if there is one.
    pub switch: Option<SwitchConfig>,
}

impl Default for RoceConfig {
    /// Returns the defaults: the interface's MTU, a window of 256 packets, messages of 256 KiB, a plain socket.
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

/// The reason why a process could not start.
#[derive(Debug, Error)]
pub enum StartError {
    /// The number is not a path MTU.
    #[error("path MTU {0} is invalid: it must be 256, 512, 1024, 2048 or 4096")]
    Mtu(u16),
    /// The sockets for packets could not be opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The connection manager could not start.
    #[error(transparent)]
    Net(#[from] stentor_fabric_net::StartError),
    /// The capture file could not be created.
    #[error("cannot write the capture {path}: {source}")]
    Pcap {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
}
