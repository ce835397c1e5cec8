//! Posting: what a caller can know to be wrong is refused here.

use stentor_fabric::{PostError, QpId, QpKind, QpState, Span, WorkRequest};

use super::{Device, NetFabric};

impl<D: Device> NetFabric<D> {
    /// Returns the state as posts see it: a queue pair may have broken a moment ago.
    #[inline]
    pub(super) fn state_of(&self, qp: QpId) -> Option<QpState> {
        let known = self.cm.state(qp)?;
        Some(if self.device.is_alive(qp) { known } else { QpState::Error })
    }

    #[inline]
    pub(super) fn post_work(&mut self, qp: QpId, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let state = self.state_of(qp).ok_or(PostError::UnknownQp(qp))?;
        if state != QpState::Ready {
            return Err(PostError::NotReady { qp, state });
        }
        let is_unreliable = || self.cm.config(qp).is_some_and(|config| config.kind == QpKind::Unreliable);
        request.verb.check(&self.capabilities, is_unreliable, |span| self.regions.contain(span))?;
        self.device.post(self.cm.remotes(), qp, request)
    }

    #[inline]
    pub(super) fn post_receive(&mut self, qp: QpId, span: Span, id: u64) -> Result<(), PostError> {
        self.check_receive(qp, span)?;
        self.device.post_receive(qp, span, id)
    }

    pub(super) fn post_tagged_receive(
        &mut self,
        qp: QpId,
        span: Span,
        tags: (u64, u64),
        id: u64,
    ) -> Result<(), PostError> {
        if !self.capabilities.tagged {
            return Err(PostError::Unsupported("tagged receive"));
        }
        self.check_receive(qp, span)?;
        self.device.post_tagged_receive(qp, span, tags, id)
    }

    pub(super) fn cancel_tagged_receive(&mut self, qp: QpId, id: u64) -> Result<(), PostError> {
        if !self.capabilities.tagged {
            return Err(PostError::Unsupported("tagged receive"));
        }
        self.cm.state(qp).ok_or(PostError::UnknownQp(qp))?;
        self.device.cancel_tagged_receive(qp, id);
        Ok(())
    }

    #[inline]
    fn check_receive(&self, qp: QpId, span: Span) -> Result<(), PostError> {
        let state = self.state_of(qp).ok_or(PostError::UnknownQp(qp))?;
        if state == QpState::Error {
            return Err(PostError::NotReady { qp, state });
        }
        span.check(self.capabilities.max_message_bytes, |span| self.regions.contain(span))
    }
}
