//! Attributes and states of queue pairs, and the checks before a change of state.

use std::net::IpAddr;

use stentor_fabric::QpId;
use stentor_wire::{Envelope, PATH_MTUS, Psn, RnrTimer};
use thiserror::Error;

/// The states of a queue pair (InfiniBand specification 10.3.1), without "send queue drained" and "send queue error".
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// The queue pair was created or reset, and is not connected.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive: requests of the peer are executed.
    ReadyToReceive,
    /// Ready to receive and to send.
    ReadyToSend,
    /// The queue pair is broken, and all outstanding work was flushed.
    Error,
}

/// The properties of the path to the peer, and the parameters of the responder.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// Addresses and source port of sent packets.
    pub envelope: Envelope,
    /// Number of the peer's queue pair, 24 bits.
    pub dest_qp: u32,
    /// First PSN of the peer.
    pub expected_psn: Psn,
    /// Maximum payload of a packet, in bytes: one of [`PATH_MTUS`].
    pub mtu: u16,
    /// Maximum number of outstanding READs and atomics of the peer, 1 to 128.
    pub max_dest_rd_atomic: u8,
    /// Time that the peer must wait if no receive is posted.
    pub min_rnr_timer: RnrTimer,
}

/// The parameters of the requester.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sending {
    /// First PSN.
    pub first_psn: Psn,
    /// Code t of the transport timeout 4.096 µs · 2^t, below 32; 0 means no timeout.
    pub timeout: u8,
    /// Maximum number of consecutive retries after timeouts, at most 7.
    pub retries: u8,
    /// Maximum number of consecutive retries after "receiver not ready" NAKs, at most 7; 7 means unlimited.
    pub rnr_retries: u8,
    /// Maximum number of outstanding READs and atomics, 1 to 128.
    pub max_rd_atomic: u8,
    /// Maximum number of packets in flight, at most 2^22.
    pub window: u32,
    /// `true` if a reliable connection sends a WRITE of several packets without an immediate as separate WRITEs of one
    /// packet each. All of them except the last have the same length. Such packets can be sent in one run; FIRST,
    /// MIDDLE and LAST packets cannot.
    pub apart: bool,
    /// `true` if adjacent WRITEs of a reliable connection may be merged into one.
    pub merges: bool,
}

impl Sending {
    /// Returns the defaults: timeout 67 ms, 7 retries, unlimited "receiver not ready" retries, 16 READs, a window of 32
    /// packets, long WRITEs as one message, and merging of adjacent WRITEs.
    #[must_use]
    pub const fn new(first_psn: Psn) -> Sending {
        Sending {
            first_psn,
            timeout: 14,
            retries: 7,
            rnr_retries: 7,
            max_rd_atomic: 16,
            window: 32,
            apart: false,
            merges: true,
        }
    }

    /// Returns the transport timeout, in nanoseconds.
    pub(crate) fn timeout_ns(&self) -> Option<u64> {
        (self.timeout > 0).then(|| 4096 << self.timeout)
    }
}

/// A request that was unanswered when its queue pair broke, either by timeouts or after the peer had been silent for
/// long.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unanswered {
    /// The path to the peer.
    pub path: Path,
    /// Length of the request, in bytes.
    pub bytes: u32,
    /// Length of the longest request with data in the same direction of which the peer had answered at least a packet
    /// on this connection, in bytes.
    pub longest: u32,
}

/// The reason why a queue pair did not change its state.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum TransitionError {
    /// No queue pair has this id.
    #[error("{0:?} does not exist")]
    UnknownQp(QpId),
    /// The transition between the states does not exist.
    #[error("{qp:?} is in the state {from:?}: it can enter {to:?} only from {needs:?}")]
    State {
        /// The queue pair.
        qp: QpId,
        /// Current state.
        from: State,
        /// Requested state.
        to: State,
        /// State from which the transition is possible.
        needs: State,
    },
    /// The number is not a path MTU.
    #[error("path MTU {0} is invalid: it must be 256, 512, 1024, 2048 or 4096")]
    Mtu(u16),
    /// A number is out of range.
    #[error("{field} is {value}: it must be between {min} and {max}")]
    Range {
        /// The attribute.
        field: &'static str,
        /// Requested value.
        value: u32,
        /// Minimum value.
        min: u32,
        /// Maximum value.
        max: u32,
    },
}

fn range(field: &'static str, value: u32, min: u32, max: u32) -> Result<(), TransitionError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(TransitionError::Range { field, value, min, max }) }
}

impl Path {
    pub(crate) fn check(&self) -> Result<(), TransitionError> {
        if !PATH_MTUS.contains(&self.mtu) {
            return Err(TransitionError::Mtu(self.mtu));
        }
        range("destination queue pair", self.dest_qp, 0, 0xff_ffff)?;
        range("max_dest_rd_atomic", self.max_dest_rd_atomic.into(), 1, 128)
    }

    /// Returns the address whose packets are accepted.
    pub(crate) fn peer(&self) -> IpAddr {
        self.envelope.ip.destination()
    }
}

impl Sending {
    pub(crate) fn check(&self) -> Result<(), TransitionError> {
        range("timeout", self.timeout.into(), 0, 31)?;
        range("retries", self.retries.into(), 0, 7)?;
        range("rnr_retries", self.rnr_retries.into(), 0, 7)?;
        range("max_rd_atomic", self.max_rd_atomic.into(), 1, 128)?;
        range("window", self.window, 1, 1 << 22)
    }
}
