//! Posting: what a caller can know to be wrong is refused here.

use stentor_fabric::memory::WORD;
use stentor_fabric::{PostError, QpId, QpKind, QpState, Source, Span, Verb, WorkRequest};

use super::{Device, NetFabric};

#[inline]
fn aligned(offset: u64, bytes: u64) -> Result<(), PostError> {
    if (offset | bytes).is_multiple_of(WORD as u64) { Ok(()) } else { Err(PostError::Misaligned { offset, bytes }) }
}

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
        self.check(qp, &request.verb)?;
        self.device.post(self.cm.remotes(), qp, request)
    }

    #[inline]
    fn check(&self, qp: QpId, verb: &Verb<'_>) -> Result<(), PostError> {
        match verb {
            Verb::Write { source, target } | Verb::WriteImm { source, target, .. } => {
                self.check_source(source)?;
                aligned(target.offset, source.bytes())
            }
            Verb::Send { source, .. } => self.check_source(source),
            Verb::TaggedSend { .. } if !self.capabilities.tagged => Err(PostError::Unsupported("tagged send")),
            Verb::TaggedSend { source, .. } => self.check_source(source),
            Verb::Read { local, remote } => {
                if self.is_unreliable(qp) {
                    return Err(PostError::Unsupported("READ on an unreliable connection"));
                }
                self.check_span(*local)?;
                aligned(remote.offset, local.bytes.into())
            }
            Verb::CompareSwap { local, remote, .. } | Verb::FetchAdd { local, remote, .. } => {
                if !self.capabilities.atomics {
                    return Err(PostError::Unsupported("atomic operation"));
                }
                if self.is_unreliable(qp) {
                    return Err(PostError::Unsupported("atomic operation on an unreliable connection"));
                }
                if local.bytes as usize != WORD {
                    return Err(PostError::Misaligned { offset: local.offset, bytes: local.bytes.into() });
                }
                self.check_span(*local)?;
                aligned(remote.offset, WORD as u64)
            }
        }
    }

    fn is_unreliable(&self, qp: QpId) -> bool {
        self.cm.config(qp).is_some_and(|config| config.kind == QpKind::Unreliable)
    }

    #[inline]
    fn check_source(&self, source: &Source<'_>) -> Result<(), PostError> {
        let (bytes, limit) = (source.bytes(), self.capabilities.inline_bytes);
        match source {
            Source::Inline(_) if bytes > limit.into() => Err(PostError::InlineTooLong { bytes, limit }),
            Source::Inline(_) => Ok(()),
            Source::Region(span) => self.check_span(*span),
        }
    }

    #[inline]
    fn check_span(&self, span: Span) -> Result<(), PostError> {
        let (bytes, limit) = (u64::from(span.bytes), self.capabilities.max_message_bytes);
        if bytes > limit {
            return Err(PostError::TooLong { bytes, limit });
        }
        if bytes > 0 {
            aligned(span.offset, 0)?;
            self.regions.check(span)?;
        }
        Ok(())
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
        self.check_span(span)
    }
}
