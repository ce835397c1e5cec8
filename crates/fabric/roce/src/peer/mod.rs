//! Talking to anybody who speaks RoCEv2: NICs, Linux Soft-RoCE, or this crate itself. Queue pairs are told of over TCP, as
//! the stock examples of rdma-core do.

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

/// The protection domain of everything here.
pub const DOMAIN: ProtectionDomain = ProtectionDomain(1);

/// What went wrong between two peers.
#[derive(Debug, Error)]
pub enum PeerError {
    /// The sockets for packets.
    #[error(transparent)]
    Port(#[from] PortError),
    /// The TCP connection over which queue pairs are told of.
    #[error("cannot {what} {place}: {source}")]
    Tcp {
        /// What was tried.
        what: &'static str,
        /// With whom.
        place: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The peer said something else than `LID:QPN:PSN:GID`.
    #[error(
        "{place} says {said:?}, which is not LID:QPN:PSN:GID as ibv_rc_pingpong has it (with -g on the other side)"
    )]
    Handshake {
        /// Who.
        place: String,
        /// What came.
        said: String,
    },
    /// A setting of the queue pair.
    #[error(transparent)]
    Transition(#[from] TransitionError),
    /// Work was refused.
    #[error(transparent)]
    Post(#[from] PostError),
    /// An operation failed.
    #[error("operation {id} ended with {status:?}; counters: {counters}")]
    Failed {
        /// Of which.
        id: u64,
        /// How.
        status: stentor_fabric::Status,
        /// What had happened, in words.
        counters: String,
    },
    /// Nothing more came.
    #[error("nothing came for {seconds} s; counters: {counters}")]
    Silence {
        /// How long.
        seconds: u64,
        /// What had happened, in words.
        counters: String,
    },
    /// The capture.
    #[error("cannot write the capture {}: {source}", path.display())]
    Capture {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Two families of addresses, or what else there is.
    #[error("{0}")]
    Other(String),
}

/// How to be a peer.
#[derive(Clone, Debug)]
pub struct PeerConfig {
    /// Address of this side.
    pub address: IpAddr,
    /// How packets are taken in. `None`: raw where that is permitted, otherwise plain with any identification.
    pub mode: Option<Mode>,
    /// Payload of a packet, bytes.
    pub mtu: u16,
    /// Packets on their way at the same time.
    pub window: u32,
    /// Packets go in runs that the kernel takes as one, and with [`Mode::Plain`] come so. For a peer that sees identifications,
    /// or is this crate with the same setting.
    pub runs: bool,
    /// A capture of everything.
    pub pcap: Option<PathBuf>,
    /// A bad network.
    pub chances: Chances,
    /// The seed of its badness.
    pub seed: u64,
}

impl PeerConfig {
    /// Path MTU 1024, a window of 32 packets.
    #[must_use]
    pub fn new(address: IpAddr) -> PeerConfig {
        let chances = Chances::default();
        PeerConfig { address, mode: None, mtu: 1024, window: 32, runs: false, pcap: None, chances, seed: 1 }
    }
}

/// An endpoint with one reliable queue pair, on sockets of its own.
#[derive(Debug)]
pub struct Peer {
    /// Queue pairs and memory.
    pub endpoint: Endpoint,
    /// Sockets.
    pub pump: Pump,
    /// The queue pair.
    pub qp: QpId,
    /// Which way packets are taken in.
    pub mode: Mode,
    config: PeerConfig,
    psn: Psn,
}

fn random() -> u32 {
    let bytes: [u8; 4] = stentor_fabric_net::nonce();
    u32::from_be_bytes(bytes)
}

impl Peer {
    /// Opens the sockets and makes the queue pair; it takes receives.
    ///
    /// # Errors
    /// See [`PeerError`].
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
        let qp = endpoint.create(number, DOMAIN, made).ok_or_else(|| PeerError::Other("the number is taken".into()))?;
        endpoint.init(qp)?;
        Ok(Peer { endpoint, pump, qp, mode, config, psn: Psn::new(random()) })
    }

    /// What the other side has to know.
    #[must_use]
    pub fn destination(&self) -> Destination {
        let number = self.endpoint.number(self.qp).unwrap_or_default();
        Destination { lid: 0, number, psn: self.psn.get(), address: self.config.address }
    }

    /// Connects to what the other side told.
    ///
    /// # Errors
    /// See [`PeerError`].
    pub fn connect(&mut self, other: &Destination) -> Result<(), PeerError> {
        let (own, their) = (self.config.address, other.address);
        let families =
            |_| PeerError::Other(format!("{their} is there and {own} here: both have to be IPv4, or both IPv6"));
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

    /// Sends and takes in what there is.
    ///
    /// # Errors
    /// What the system says.
    pub fn drive(&mut self) -> Result<bool, PeerError> {
        self.pump.send(&mut self.endpoint);
        let any = self.pump.receive(&mut self.endpoint).map_err(|error| PeerError::Other(error.to_string()))?;
        Ok(any)
    }

    /// Waits for the next completion.
    ///
    /// # Errors
    /// [`PeerError::Silence`] after `patience`; [`PeerError::Failed`] if it is not a success.
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
                // The other side may need this processor.
                std::thread::yield_now();
            }
        }
    }

    /// Goes on answering for a while: the other side may not have heard the last acknowledgement.
    ///
    /// # Errors
    /// What the system says.
    pub fn linger(&mut self, time: Duration) -> Result<(), PeerError> {
        let since = std::time::Instant::now();
        while since.elapsed() < time {
            self.drive()?;
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }

    /// The counters, and what the kernel had against packets.
    fn story(&mut self) -> String {
        let notes: String =
            std::iter::from_fn(|| self.pump.port_mut().next_note()).map(|note| format!("; {note}")).collect();
        self.counters() + &notes
    }

    /// All counters that are not 0, in words: the endpoint's, and what the kernel did.
    #[must_use]
    pub fn counters(&self) -> String {
        let counted = [self.endpoint.counters().list(), self.pump.port().counters().list()].concat();
        let counted = counted.iter().filter(|(_, value)| *value > 0);
        counted.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
    }
}
