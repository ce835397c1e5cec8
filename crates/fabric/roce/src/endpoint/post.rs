//! Posting of work requests and receives.

use stentor_fabric::{PostError, QpId, QpKind, QpState, Span};

use super::Endpoint;
use super::attributes::State;
use super::responder::Receive;
use super::work::{Data, Request, Work};

/// Translates a state to a state of the contract. [`State::Reset`] counts as broken, like [`State::Error`].
fn not_ready(qp: QpId, state: State) -> PostError {
    let is_broken = matches!(state, State::Reset | State::Error);
    PostError::NotReady { qp, state: if is_broken { QpState::Error } else { QpState::Connecting } }
}

fn check_length(bytes: u64) -> Result<(), PostError> {
    let limit = stentor_wire::MAX_MESSAGE_BYTES.into();
    if bytes > limit { Err(PostError::TooLong { bytes, limit }) } else { Ok(()) }
}

impl Endpoint {
    /// Posts a work request to the send queue.
    ///
    /// # Errors
    /// Returns a [`PostError`].
    #[inline]
    pub fn post_send(&mut self, id: QpId, work: &Work<'_>) -> Result<(), PostError> {
        let qp = self.qps.get(id.index()).ok_or(PostError::UnknownQp(id))?;
        let (State::ReadyToSend, Some(path)) = (qp.state, qp.path) else {
            return Err(not_ready(id, qp.state));
        };
        if qp.requester.is_full() {
            return Err(PostError::SendQueueFull { qp: id, depth: qp.config.send_depth });
        }
        match work.request {
            Request::Send { data, .. } | Request::Write { data, .. } => match data {
                Data::Region(span) => self.check_span(span)?,
                Data::Inline(bytes) => check_length(bytes.len() as u64)?,
            },
            _ if qp.config.kind == QpKind::Unreliable => {
                return Err(PostError::Unsupported("READ or atomic operation on an unreliable connection"));
            }
            Request::Read { local, .. } => self.check_span(local)?,
            Request::CompareSwap { local, remote, .. } | Request::FetchAdd { local, remote, .. } => {
                if local.bytes != 8 || !remote.va.is_multiple_of(8) {
                    return Err(PostError::Misaligned { offset: remote.va, bytes: local.bytes.into() });
                }
                self.check_span(local)?;
            }
        }
        self.qps[id.index()].requester.post(work, path.mtu);
        self.list(id.index());
        Ok(())
    }

    fn check_span(&self, span: Span) -> Result<(), PostError> {
        let Span { region, offset, bytes } = span;
        check_length(bytes.into())?;
        let is_inside = bytes == 0 || self.memory.contains(span);
        if is_inside { Ok(()) } else { Err(PostError::OutOfLocalRegion { region, offset, bytes: bytes.into() }) }
    }

    /// Posts a receive, in any state except [`State::Reset`] and [`State::Error`].
    ///
    /// # Errors
    /// Returns a [`PostError`].
    pub fn post_receive(&mut self, id: QpId, span: Span, work: u64) -> Result<(), PostError> {
        let qp = self.qps.get(id.index()).ok_or(PostError::UnknownQp(id))?;
        if matches!(qp.state, State::Reset | State::Error) {
            return Err(not_ready(id, qp.state));
        }
        if qp.responder.held >= qp.responder.recv_depth {
            return Err(PostError::RecvQueueFull { qp: id, depth: qp.responder.recv_depth });
        }
        self.check_span(span)?;
        let responder = &mut self.qps[id.index()].responder;
        responder.held += 1;
        responder.receives.push_back(Receive { id: work, span });
        Ok(())
    }

    /// Returns the number of slots of posted work requests that no polled completion has freed yet. Merged requests
    /// share a slot.
    #[must_use]
    pub fn send_queue_len(&self, id: QpId) -> u64 {
        self.qps.get(id.index()).map_or(0, |qp| qp.requester.next_number() - 1 - qp.requester.freed)
    }
}
