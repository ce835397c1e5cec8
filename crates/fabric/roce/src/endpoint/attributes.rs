//! Attributes and states of queue pairs, and what is checked before one changes its state.

use std::net::IpAddr;

use stentor_fabric::QpId;
use stentor_wire::{Envelope, PATH_MTUS, Psn, RnrTimer};
use thiserror::Error;

/// The states of a queue pair (InfiniBand specification 10.3.1); "send queue drained" and "send queue error" are left out.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// Just made, or thrown back.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive: requests of the peer are carried out.
    ReadyToReceive,
    /// Ready to send as well.
    ReadyToSend,
    /// Broken: everything was flushed.
    Error,
}

/// What the way to the peer is like, and what the responder does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Path {
    /// Addresses and source port of what is sent.
    pub envelope: Envelope,
    /// The peer's queue pair, 24 bits.
    pub dest_qp: u32,
    /// The PSN that the peer begins with.
    pub expected_psn: Psn,
    /// Payload of a packet, bytes: one of [`PATH_MTUS`].
    pub mtu: u16,
    /// READs and atomics of the peer that are answered at the same time, 1 to 128.
    pub max_dest_rd_atomic: u8,
    /// What the peer is told to wait when no receive is posted.
    pub min_rnr_timer: RnrTimer,
}

/// How the requester behaves.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Sending {
    /// The PSN to begin with.
    pub first_psn: Psn,
    /// Code t of the transport timeout 4.096 µs · 2^t, below 32; 0 is no timeout.
    pub timeout: u8,
    /// Timeouts in a row before giving up, at most 7.
    pub retries: u8,
    /// "Receiver not ready" in a row before giving up, at most 7; 7 is without end.
    pub rnr_retries: u8,
    /// READs and atomics that are asked for at the same time, 1 to 128.
    pub max_rd_atomic: u8,
    /// Packets on their way at the same time, at most 2^22.
    pub window: u32,
    /// Whether a WRITE without an immediate that takes several packets goes as so many WRITEs, of one length but for the last:
    /// such packets leave in one run, FIRST, MIDDLE and LAST do not.
    pub apart: bool,
    /// Whether WRITEs that adjoin leave as one.
    pub merges: bool,
}

impl Sending {
    /// 67 ms, 7 retries, "receiver not ready" without end, 16 READs, a window of 32 packets; long WRITEs go whole.
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

    /// The transport timeout, nanoseconds.
    pub(crate) fn timeout_ns(&self) -> Option<u64> {
        (self.timeout > 0).then(|| 4096 << self.timeout)
    }
}

/// A request that was not answered for long when its queue pair ended.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Unanswered {
    /// The way to the peer.
    pub path: Path,
    /// Bytes of the request.
    pub bytes: u32,
    /// Bytes of the longest one that was answered before.
    pub longest: u32,
}

/// Why a queue pair did not change its state.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum TransitionError {
    /// No such queue pair.
    #[error("{0:?} does not exist")]
    UnknownQp(QpId),
    /// There is no such arrow between the states.
    #[error("{qp:?} is {from:?}: only from {needs:?} can it become {to:?}")]
    State {
        /// The queue pair.
        qp: QpId,
        /// Its state.
        from: State,
        /// What was asked for.
        to: State,
        /// The state before that.
        needs: State,
    },
    /// Not a path MTU.
    #[error("path MTU {0}: it is one of 256, 512, 1024, 2048, 4096")]
    Mtu(u16),
    /// A number that is out of its range.
    #[error("{field} is {value}: it is from {min} to {max}")]
    Range {
        /// Which.
        field: &'static str,
        /// What was asked for.
        value: u32,
        /// The smallest.
        min: u32,
        /// The largest.
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

    /// Whose packets are taken.
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
