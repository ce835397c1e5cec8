//! A peer that can connect to any implementation of RoCEv2: NICs, Linux Soft-RoCE, or this crate. The parameters of
//! queue pairs are exchanged over TCP, as in the example programs of rdma-core.

mod handshake;
mod pingpong;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use stentor_fabric::{PostError, QpConfig, QpId, QpKind};
use stentor_wire::{Psn, RnrTimer};
use thiserror::Error;

use crate::driver::{Chances, Mode, Pcap, Port, PortError, Pump};
use crate::endpoint::{Endpoint, Path, ProtectionDomain, Sending, TransitionError};

pub use handshake::{Destination, Meeting, listen, meet};
pub use pingpong::{Pingpong, PingpongOutcome, pingpong};
pub use stentor_wire::PATH_MTUS;

/// The protection domain of all queue pairs and keys of this module.
pub const DOMAIN: ProtectionDomain = ProtectionDomain(1);

/// An error of a peer.
#[derive(Debug, Error)]
pub enum PeerError {
    /// The sockets for packets could not be opened.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The TCP connection for the exchange of queue pairs failed.
    #[error("cannot {what} {place}: {source}")]
    Tcp {
        /// The operation.
        what: &'static str,
        /// Address of the other side.
        place: String,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// The other side sent a text other than `LID:QPN:PSN:GID`.
    #[error(
        "{place} sent {said:?}, which is not LID:QPN:PSN:GID as sent by ibv_rc_pingpong (with -g on the other side)"
    )]
    Handshake {
        /// Address of the other side.
        place: String,
        /// The text that the other side sent.
        said: String,
    },
    /// A parameter of the queue pair was refused.
    #[error(transparent)]
    Transition(#[from] TransitionError),
    /// A work request was refused.
    #[error(transparent)]
    Post(#[from] PostError),
    /// An operation failed.
    #[error("operation {id} ended with {status:?}; counters: {counters}")]
    Failed {
        /// Id of the operation.
        id: u64,
        /// Status of the completion.
        status: stentor_fabric::Status,
        /// Counters that are not 0, and notes.
        counters: String,
    },
    /// No completion arrived in time.
    #[error("no completion arrived for {seconds} s; counters: {counters}")]
    Silence {
        /// Time waited, in seconds.
        seconds: u64,
        /// Counters that are not 0, and notes.
        counters: String,
    },
    /// The capture could not be written.
    #[error("cannot write the capture {}: {source}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        source: std::io::Error,
    },
    /// Another error, such as addresses of different families.
    #[error("{0}")]
    Other(String),
}

/// Configuration of a peer.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// Local address.
    pub address: IpAddr,
    /// The kind of receiving socket. `None` selects [`Mode::Raw`] if a raw socket can be opened, otherwise
    /// [`Mode::PlainAnyId`].
    pub mode: Option<Mode>,
    /// Maximum payload of a packet, in bytes.
    pub mtu: u16,
    /// Maximum number of packets in flight.
    pub window: u32,
    /// `true` to send packets in runs, which the kernel accepts as one buffer, and in [`Mode::Plain`] also to receive
    /// packets in runs. The other side must read IPv4 identifications, or use this crate with the same setting.
    pub runs: bool,
    /// Path of a file to which all packets are captured, if any.
    pub pcap: Option<PathBuf>,
    /// Faults to inject.
    pub chances: Chances,
    /// Seed of the injected faults.
    pub seed: u64,
}

impl PeerConfig {
    /// Creates a configuration with path MTU 1024 and a window of 32 packets.
    #[must_use]
    pub fn new(address: IpAddr) -> PeerConfig {
        let chances = Chances::default();
        PeerConfig { address, mode: None, mtu: 1024, window: 32, runs: false, pcap: None, chances, seed: 1 }
    }
}

/// An endpoint with one reliable queue pair, and its sockets.
#[derive(Debug)]
pub struct Peer {
    /// The queue pair and its memory.
    pub endpoint: Endpoint,
    /// The sockets.
    pub pump: Pump,
    /// The queue pair.
    pub qp: QpId,
    /// The kind of receiving socket.
    pub mode: Mode,
    config: PeerConfig,
    psn: Psn,
}

fn random() -> u32 {
    let bytes: [u8; 4] = stentor_fabric_net::nonce();
    u32::from_be_bytes(bytes)
}

impl Peer {
    /// Opens the sockets and creates the queue pair. Receives can be posted afterwards.
    ///
    /// # Errors
    /// Returns a [`PeerError`].
    pub fn open(config: PeerConfig, depth: u32) -> Result<Peer, PeerError> {
        let entropy = random() as u16;
        let (port, mode) = match config.mode {
            Some(mode) => (Port::open(config.address, mode, entropy)?, mode),
            None => match Port::open(config.address, Mode::Raw, entropy) {
                Ok(port) => (port, Mode::Raw),
                Err(PortError::NotPermitted { .. } | PortError::System { .. }) => {
                    (Port::open(config.address, Mode::PlainAnyId, entropy)?, Mode::PlainAnyId)
                }
                Err(error) => return Err(error.into()),
            },
        };
        let mut port = port;
        if config.runs && !config.chances.is_any() {
            port.enable_runs();
        }
        let mut pump = Pump::new(port);
        if let Some(path) = &config.pcap {
            let failed = |source| PeerError::Capture { path: path.clone(), source };
            pump.capture(Pcap::create(path).map_err(failed)?);
        }
        pump.inject(config.chances, config.seed);
        let mut endpoint = Endpoint::new();
        let made = QpConfig { kind: QpKind::Reliable, send_depth: depth, recv_depth: depth, merges: false };
        let number = random() % 0xff_fff0 + 2;
        let qp = endpoint
            .create(number, DOMAIN, made)
            .ok_or_else(|| PeerError::Other("the queue pair number is in use".into()))?;
        endpoint.init(qp)?;
        Ok(Peer { endpoint, pump, qp, mode, config, psn: Psn::new(random()) })
    }

    /// Returns the parameters that the other side needs.
    #[must_use]
    pub fn destination(&self) -> Destination {
        let number = self.endpoint.number(self.qp).unwrap_or_default();
        Destination { lid: 0, number, psn: self.psn.get(), address: self.config.address }
    }

    /// Connects to the queue pair of the other side.
    ///
    /// # Errors
    /// Returns a [`PeerError`].
    pub fn connect(&mut self, other: &Destination) -> Result<(), PeerError> {
        let (own, their) = (self.config.address, other.address);
        let families =
            |_| PeerError::Other(format!("the peer has {their} and this side {own}: both must be IPv4, or both IPv6"));
        let envelope = self.pump.port().envelope(their).map_err(families)?;
        self.pump.port_mut().run_to(other.address, self.config.runs);
        let path = Path {
            envelope,
            dest_qp: other.number,
            expected_psn: Psn::new(other.psn),
            mtu: self.config.mtu,
            max_dest_rd_atomic: 16,
            min_rnr_timer: RnrTimer::from_code(12),
        };
        self.endpoint.ready_to_receive(self.qp, path)?;
        let sending = Sending { window: self.config.window, max_rd_atomic: 1, ..Sending::new(self.psn) };
        self.endpoint.ready_to_send(self.qp, sending)?;
        Ok(())
    }

    /// Sends and receives packets. Returns whether any packet was received.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn drive(&mut self) -> Result<bool, PeerError> {
        self.pump.send(&mut self.endpoint);
        let any = self.pump.receive(&mut self.endpoint).map_err(|error| PeerError::Other(error.to_string()))?;
        Ok(any)
    }

    /// Waits for the next completion.
    ///
    /// # Errors
    /// Returns [`PeerError::Silence`] after `patience`, [`PeerError::Failed`] if the completion is an error, and
    /// [`PeerError::Other`] if a system call fails.
    pub fn completion(&mut self, patience: Duration) -> Result<stentor_fabric::Completion, PeerError> {
        let since = std::time::Instant::now();
        loop {
            if let Some(completion) = self.endpoint.poll() {
                if completion.status == stentor_fabric::Status::Success {
                    return Ok(completion);
                }
                let (id, status) = (completion.id, completion.status);
                return Err(PeerError::Failed { id, status, counters: self.story() });
            }
            if !self.drive()? {
                if since.elapsed() > patience {
                    return Err(PeerError::Silence { seconds: patience.as_secs(), counters: self.story() });
                }
                // Yield, because the other side may need this processor.
                std::thread::yield_now();
            }
        }
    }

    /// Keeps answering for `time`, because the other side may not have received the last acknowledgement.
    ///
    /// # Errors
    /// Returns the error of the operating system.
    pub fn linger(&mut self, time: Duration) -> Result<(), PeerError> {
        let since = std::time::Instant::now();
        while since.elapsed() < time {
            self.drive()?;
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// Returns the counters, and notes about packets that the kernel refused.
    fn story(&mut self) -> String {
        let notes: String =
            std::iter::from_fn(|| self.pump.port_mut().next_note()).map(|note| format!("; {note}")).collect();
        self.counters() + &notes
    }

    /// Returns all counters of the endpoint and of the kernel that are not 0, as text.
    #[must_use]
    pub fn counters(&self) -> String {
        let counted = [self.endpoint.counters().list(), self.pump.port().counters().list()].concat();
        let counted = counted.iter().filter(|(_, value)| *value > 0);
        counted.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    }
}
