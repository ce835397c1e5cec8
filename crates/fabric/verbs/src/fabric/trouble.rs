//! What a person should know of the device.

use std::fmt;

use stentor_fabric::{ProcessId, QpId};

use crate::context::PortNumber;
use crate::{EventKind, WorkStatus};

/// Something went wrong that no completion tells, or of which it tells too little.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Trouble {
    /// No packets go through the port: queue pairs break after their retries.
    PortDown {
        /// The device.
        device: String,
        /// The port.
        port: PortNumber,
    },
    /// They do again.
    PortUp {
        /// The device.
        device: String,
        /// The port.
        port: PortNumber,
    },
    /// The device is broken, or gone: all queue pairs broke, and none begins anew in this process.
    DeviceLost {
        /// The device.
        device: String,
        /// What told of it.
        what: String,
    },
    /// A queue pair broke, as the device says.
    QueuePair {
        /// The queue pair.
        qp: QpId,
        /// What the device says.
        what: EventKind,
    },
    /// Memory that a request to this peer needs cannot be registered, so it was not posted. Told once for each peer.
    NotRegistered {
        /// The peer.
        peer: ProcessId,
        /// Of the region, bytes.
        bytes: u64,
        /// Why, with the remedy.
        why: String,
    },
    /// The device took no request, so the queue pair was broken.
    NotPosted {
        /// The queue pair.
        qp: QpId,
        /// Why, with the remedy.
        why: String,
    },
    /// A switch is configured that does not copy what goes to and from this address, so each peer is written to by itself.
    NoCopies {
        /// The port's address.
        gid: String,
    },
    /// A request failed for a reason that the contract has no word for: it is told as flushed.
    Work {
        /// The queue pair.
        qp: QpId,
        /// The reason.
        status: WorkStatus,
        /// What more the card says; its maker knows what it means.
        vendor_error: u32,
    },
}

impl Trouble {
    /// Says it in one line. `name` names processes.
    #[must_use]
    pub fn tell(&self, name: impl Fn(ProcessId) -> String) -> String {
        match self {
            Trouble::NotRegistered { peer, bytes, why } => {
                format!("nothing can be posted to {} from or into a region of {bytes} bytes: {why}", name(*peer))
            }
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::PortDown { device, port } => {
                write!(f, "{device} port {} is down: connect the cable, set its interface up", port.0)
            }
            Trouble::PortUp { device, port } => write!(f, "{device} port {} is up", port.0),
            Trouble::DeviceLost { device, what } => {
                write!(f, "{device} is gone ({what}): load its driver again, and start this process anew")
            }
            Trouble::QueuePair { qp, what } => write!(f, "the device broke {qp:?}: {what}"),
            Trouble::NotRegistered { peer, bytes, why } => {
                write!(f, "nothing can be posted to {peer} from or into a region of {bytes} bytes: {why}")
            }
            Trouble::NotPosted { qp, why } => write!(f, "a request on {qp:?} was not taken: {why}"),
            Trouble::NoCopies { gid } => {
                write!(
                    f,
                    "the switch is not used: it copies RoCE v2 over IPv4 alone, and this is {gid}; name another one (gid_index)"
                )
            }
            Trouble::Work { qp, status, vendor_error } => {
                write!(f, "a request on {qp:?} failed: {status} (vendor error {vendor_error})")
            }
        }
    }
}
