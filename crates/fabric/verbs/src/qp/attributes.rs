//! Attributes with which queue pairs are connected.

use std::fmt;
use std::net::Ipv6Addr;

use crate::context::{Mtu, PortNumber};
use crate::sys;

/// State of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// RESET, the state after creation.
    Reset,
    /// INIT: receives may be posted.
    Init,
    /// RTR: ready to receive.
    Rtr,
    /// RTS: ready to send.
    Rts,
    /// SQD: the send queue is drained and stopped.
    Drained,
    /// SQE: the send queue is broken.
    SendError,
    /// ERR: the queue pair is broken, and all requests are flushed.
    Error,
}

impl State {
    pub(super) fn from_raw(raw: sys::ibv_qp_state) -> Option<State> {
        Some(match raw {
            sys::IBV_QPS_RESET => State::Reset,
            sys::IBV_QPS_INIT => State::Init,
            sys::IBV_QPS_RTR => State::Rtr,
            sys::IBV_QPS_RTS => State::Rts,
            sys::IBV_QPS_SQD => State::Drained,
            sys::IBV_QPS_SQE => State::SendError,
            sys::IBV_QPS_ERR => State::Error,
            _ => return None,
        })
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            State::Reset => "RESET",
            State::Init => "INIT",
            State::Rtr => "RTR",
            State::Rts => "RTS",
            State::Drained => "SQD",
            State::SendError => "SQE",
            State::Error => "ERR",
        })
    }
}

/// Port and address of this end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Own {
    /// Number of the port.
    pub port: PortNumber,
    /// Index of this end's GID in the port's table.
    pub gid_index: u8,
}

/// Address of the other end, as that end reports it to the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    /// Number of the other end's queue pair.
    pub qp_number: u32,
    /// Sequence number of the other end's first packet, 24 bits.
    pub psn: u32,
    /// GID of the other end's port.
    pub gid: Ipv6Addr,
    /// LID of the other end's port, which is the port's address within one InfiniBand subnet.
    pub lid: u16,
    /// Path MTU: the smaller one of the MTUs of both ends.
    pub mtu: Mtu,
}

/// Timeouts and depths in the encoding of verbs. The defaults are suitable within one data centre.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tuning {
    /// Time to wait for an acknowledgement, as a code: 1 to 31 mean 4.096 µs times 2 to the power of the code, and 0
    /// means no limit.
    pub timeout: u8,
    /// Number of retransmissions without an acknowledgement, at most 7; on Soft-RoCE, 7 means no limit.
    pub retries: u8,
    /// Number of retransmissions to a receiver that is not ready; 7 means no limit.
    pub rnr_retries: u8,
    /// Code of the time that a sender must wait if this end has no receive, 0 to 31 (12 is 0.64 ms).
    pub rnr_timer: u8,
    /// Maximum number of READs and atomics that this end has outstanding.
    pub reads_asked: u8,
    /// Maximum number of the peer's READs and atomics that this end accepts at a time. Must not be smaller than the
    /// number that the peer may have outstanding.
    pub reads_answered: u8,
    /// Maximum number of routers that a packet may pass.
    pub hop_limit: u8,
    /// Traffic class (DSCP and ECN), by which switches can recognise traffic that must not be dropped.
    pub traffic_class: u8,
    /// Service level, 0 to 15.
    pub service_level: u8,
}

impl Default for Tuning {
    /// Returns a timeout of 67 ms with 7 retries, no limit for receivers that are not ready, and 16 READs.
    fn default() -> Self {
        Tuning {
            timeout: 14,
            retries: 7,
            rnr_retries: 7,
            rnr_timer: 12,
            reads_asked: 16,
            reads_answered: 16,
            hop_limit: 64,
            traffic_class: 0,
            service_level: 0,
        }
    }
}
