//! What queue pairs are brought up with.

use std::fmt;
use std::net::Ipv6Addr;

use crate::context::{Mtu, PortNumber};
use crate::sys;

/// States of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// As made.
    Reset,
    /// Receives may be posted.
    Init,
    /// Ready to receive.
    Rtr,
    /// Ready to send.
    Rts,
    /// Its send queue stands still.
    Drained,
    /// Its send queue is broken.
    SendError,
    /// Broken: everything is flushed.
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

/// This end's port and address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Own {
    /// The port.
    pub port: PortNumber,
    /// The place of its address in the port's table.
    pub gid_index: u8,
}

/// The other end, as it tells at the connection manager.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Endpoint {
    /// Its queue pair.
    pub qp_number: u32,
    /// The number of its first packet, 24 bits.
    pub psn: u32,
    /// Its address.
    pub gid: Ipv6Addr,
    /// Its address on InfiniBand, inside one subnet.
    pub lid: u16,
    /// The largest payload of a packet that both ports take.
    pub mtu: Mtu,
}

/// Timeouts and depths, as verbs encode them. The defaults suit one data centre.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Tuning {
    /// How long to wait for an acknowledgement: 4.096 µs times two to this power, 1 to 31; 0 is for ever.
    pub timeout: u8,
    /// How often to send again without an acknowledgement, at most 7; on Soft-RoCE 7 is for ever.
    pub retries: u8,
    /// How often to send again to a receiver that is not ready; 7 is for ever.
    pub rnr_retries: u8,
    /// How long a sender shall wait when this end is not ready, 0 to 31 (12 is 0.64 ms).
    pub rnr_timer: u8,
    /// READs and atomics that this end has under way at a time.
    pub reads_asked: u8,
    /// READs and atomics of the peer that this end answers at a time: at least what the peer asks.
    pub reads_answered: u8,
    /// Routers that packets may pass.
    pub hop_limit: u8,
    /// The traffic class (DSCP and ECN), by which switches tell lossless traffic.
    pub traffic_class: u8,
    /// The service level, 0 to 15.
    pub service_level: u8,
}

impl Default for Tuning {
    /// 67 ms, 7 times; receivers may be not ready for ever; 16 READs.
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
