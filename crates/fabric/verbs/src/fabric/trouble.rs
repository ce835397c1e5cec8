//! Events of the device that the user should know.

use std::fmt;

use stentor_fabric::{ProcessId, QpId};

use crate::context::PortNumber;
use crate::{EventKind, WorkStatus};

/// A failure that no completion reports, or that a completion reports only in part.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Trouble {
    /// The port does not carry packets any more. Queue pairs break after their retries.
    PortDown {
        /// Name of the device.
        device: String,
        /// Number of the port.
        port: PortNumber,
    },
    /// The port carries packets again.
    PortUp {
        /// Name of the device.
        device: String,
        /// Number of the port.
        port: PortNumber,
    },
    /// The device failed or was removed. All queue pairs broke, and none can begin again in this process.
    DeviceLost {
        /// Name of the device.
        device: String,
        /// Event or error that revealed the failure.
        what: String,
    },
    /// The device reported that a queue pair broke.
    QueuePair {
        /// The queue pair.
        qp: QpId,
        /// Type of the device's event.
        what: EventKind,
    },
    /// Memory that a request to this peer needs cannot be registered, so the request was not posted. This trouble is
    /// reported once per peer.
    NotRegistered {
        /// The peer.
        peer: ProcessId,
        /// Length of the region, in bytes.
        bytes: u64,
        /// Reason and remedy.
        why: String,
    },
    /// The device refused a request, so the queue pair was broken.
    NotPosted {
        /// The queue pair.
        qp: QpId,
        /// Reason and remedy.
        why: String,
    },
    /// The configured switch cannot copy packets of this address, so this process writes to each peer separately.
    NoCopies {
        /// GID of the port.
        gid: String,
    },
    /// A request failed with a status that the contract does not have. It is completed as flushed.
    Work {
        /// The queue pair.
        qp: QpId,
        /// Status of the request.
        status: WorkStatus,
        /// Vendor-specific error code of the NIC.
        vendor_error: u32,
    },
}

impl Trouble {
    /// Describes the trouble in one line. `name` returns the name of a process.
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
