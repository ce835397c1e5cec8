//! The state of one queue pair.

use std::time::Duration;

use stentor_fabric::{QpConfig, QpId, QpKind};

use super::attributes::{Path, State, TransitionError};
use super::memory::ProtectionDomain;
use super::requester::Requester;
use super::responder::Responder;

/// One queue pair.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Qp {
    pub(crate) id: QpId,
    pub(crate) number: u32,
    pub(crate) domain: ProtectionDomain,
    pub(crate) config: QpConfig,
    pub(crate) state: State,
    pub(crate) path: Option<Path>,
    pub(crate) requester: Requester,
    pub(crate) responder: Responder,
    /// `true` if the queue pair is in the list of those that may have packets to send.
    pub(crate) listed: bool,
    /// Time at which the last congestion notification became due, in nanoseconds.
    pub(crate) notified_at: Option<u64>,
}

/// Minimum interval between congestion notifications of a queue pair, in nanoseconds.
pub(crate) const CNP_PAUSE: u64 = Duration::from_micros(50).as_nanos() as u64;

impl Qp {
    pub(crate) fn new(id: QpId, number: u32, domain: ProtectionDomain, config: QpConfig) -> Qp {
        Qp {
            id,
            number,
            domain,
            config,
            state: State::Reset,
            path: None,
            requester: Requester::new(id, config),
            responder: Responder::new(id, config),
            listed: false,
            notified_at: None,
        }
    }

    pub(crate) fn is_reliable(&self) -> bool {
        self.config.kind == QpKind::Reliable
    }

    pub(crate) fn moves(&self, to: State, needs: State) -> Result<(), TransitionError> {
        if self.state == needs {
            Ok(())
        } else {
            Err(TransitionError::State { qp: self.id, from: self.state, to, needs })
        }
    }
}
