//! Posting work.

use stentor_fabric::{QpId, QpKind, Span};
use thiserror::Error;

use super::Endpoint;
use super::attributes::State;
use super::responder::Receive;
use super::work::{Data, Request, Work};

/// Why work was not posted. Nothing was done.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum PostError {
    /// No such queue pair.
    #[error("{0:?} does not exist")]
    UnknownQp(QpId),
    /// Not in a state to take it.
    #[error("{qp:?} is {state:?}")]
    State {
        /// The queue pair.
        qp: QpId,
        /// Its state.
        state: State,
    },
    /// Poll, then post again.
    #[error("the send queue of {qp:?} is full ({depth} work requests)")]
    SendQueueFull {
        /// The queue pair.
        qp: QpId,
        /// Its depth.
        depth: u32,
    },
    /// Poll, then post again.
    #[error("the receive queue of {qp:?} is full ({depth} receives)")]
    ReceiveQueueFull {
        /// The queue pair.
        qp: QpId,
        /// Its depth.
        depth: u32,
    },
    /// Outside its region.
    #[error("{0:?} is outside its region")]
    OutsideRegion(Span),
    /// Longer than a message may be.
    #[error("{bytes} bytes: a message has at most 2147483648")]
    TooLong {
        /// What was asked for.
        bytes: u64,
    },
    /// The remote address of an atomic is not a multiple of 8, or the local length is not 8.
    #[error("atomic at {va:#x} into {bytes} bytes: addresses are multiples of 8, lengths are 8")]
    Misaligned {
        /// The remote address.
        va: u64,
        /// Bytes of the local span.
        bytes: u32,
    },
    /// An unreliable connection has SEND and WRITE only.
    #[error("{0:?} is unreliable: SEND and WRITE only")]
    Unreliable(QpId),
}

impl Endpoint {
    /// Posts to the send queue.
    ///
    /// # Errors
    /// See [`PostError`].
    #[inline]
    pub fn post_send(&mut self, id: QpId, work: &Work<'_>) -> Result<(), PostError> {
        let qp = self.qps.get(id.index()).ok_or(PostError::UnknownQp(id))?;
        let (State::ReadyToSend, Some(path)) = (qp.state, qp.path) else {
            return Err(PostError::State { qp: id, state: qp.state });
        };
        if qp.requester.is_full() {
            return Err(PostError::SendQueueFull { qp: id, depth: qp.config.send_depth });
        }
        match work.request {
            Request::Send { data, .. } | Request::Write { data, .. } => match data {
                Data::Local(span) => self.check_span(span)?,
                Data::Inline(bytes) if bytes.len() as u64 > u64::from(stentor_wire::MAX_MESSAGE_BYTES) => {
                    return Err(PostError::TooLong { bytes: bytes.len() as u64 });
                }
                Data::Inline(_) => {}
            },
            _ if qp.config.kind == QpKind::Unreliable => return Err(PostError::Unreliable(id)),
            Request::Read { local, .. } => self.check_span(local)?,
            Request::CompareSwap { local, remote, .. } | Request::FetchAdd { local, remote, .. } => {
                if local.bytes != 8 || !remote.va.is_multiple_of(8) {
                    return Err(PostError::Misaligned { va: remote.va, bytes: local.bytes });
                }
                self.check_span(local)?;
            }
        }
        self.qps[id.index()].requester.post(work, path.mtu);
        self.list(id.index());
        Ok(())
    }

    fn check_span(&self, span: Span) -> Result<(), PostError> {
        if u64::from(span.bytes) > u64::from(stentor_wire::MAX_MESSAGE_BYTES) {
            return Err(PostError::TooLong { bytes: span.bytes.into() });
        }
        if span.bytes > 0 && !self.memory.contains(span) { Err(PostError::OutsideRegion(span)) } else { Ok(()) }
    }

    /// Posts a receive; from [`State::Init`] on.
    ///
    /// # Errors
    /// See [`PostError`].
    pub fn post_receive(&mut self, id: QpId, span: Span, work: u64) -> Result<(), PostError> {
        let qp = self.qps.get(id.index()).ok_or(PostError::UnknownQp(id))?;
        if matches!(qp.state, State::Reset | State::Error) {
            return Err(PostError::State { qp: id, state: qp.state });
        }
        if qp.responder.held >= qp.responder.recv_depth {
            return Err(PostError::ReceiveQueueFull { qp: id, depth: qp.responder.recv_depth });
        }
        self.check_span(span)?;
        let responder = &mut self.qps[id.index()].responder;
        responder.held += 1;
        responder.receives.push_back(Receive { id: work, span });
        Ok(())
    }

    /// Work requests posted and not freed by a polled completion.
    #[must_use]
    pub fn send_queue_len(&self, id: QpId) -> u64 {
        self.qps.get(id.index()).map_or(0, |qp| qp.requester.next_number() - 1 - qp.requester.freed)
    }
}
