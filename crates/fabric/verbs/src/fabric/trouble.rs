//! Troubles of the device that are reported to the user.

use std::fmt;

use stentor_fabric::{ProcessId, QpId};

use crate::context::PortNumber;
use crate::{EventKind, WorkStatus};

/// A failure or event of the device that completions do not report, or report only in part.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Trouble {
    /// The port does not carry packets any more. Queue pairs break once their retries are exhausted.
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
    /// Memory that a request to the peer needs cannot be registered, so the request was not posted. This trouble is
    /// reported once per peer.
    NotRegistered {
        /// The peer.
        peer: ProcessId,
        /// Length of the region, in bytes.
        bytes: u64,
        /// Reason and remedy.
        why: String,
    },
    /// The device refused a request, so the fabric broke the queue pair.
    NotPosted {
        /// The queue pair.
        qp: QpId,
        /// Reason and remedy.
        why: String,
    },
    /// The configured switch cannot copy packets of this process's GID, so this process writes to each peer separately.
    NoCopies {
        /// GID of the port.
        gid: String,
    },
    /// A request failed with a status that the contract does not define. The request completes as flushed.
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
                format!("requests to {} cannot use a region of {bytes} bytes: {why}", name(*peer))
            }
            _ => self.to_string(),
        }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Trouble::PortDown { device, port } => {
                write!(f, "{device} port {} is down: connect the cable, or set its interface up", port.0)
            }
            Trouble::PortUp { device, port } => write!(f, "{device} port {} is up", port.0),
            Trouble::DeviceLost { device, what } => {
                write!(f, "{device} was lost ({what}): load its driver again, and restart this process")
            }
            Trouble::QueuePair { qp, what } => write!(f, "the device broke {qp:?}: {what}"),
            Trouble::NotRegistered { peer, bytes, why } => {
                write!(f, "requests to {peer} cannot use a region of {bytes} bytes: {why}")
            }
            Trouble::NotPosted { qp, why } => write!(f, "the device refused a request on {qp:?}: {why}"),
            Trouble::NoCopies { gid } => {
                write!(
                    f,
                    "the switch is not used: it copies only RoCE v2 over IPv4, and this process has {gid}; configure another GID (gid_index)"
                )
            }
            Trouble::Work { qp, status, vendor_error } => {
                write!(f, "a request on {qp:?} failed: {status} (vendor error {vendor_error})")
            }
        }
    }
}
