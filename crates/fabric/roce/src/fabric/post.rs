//! Posting: the contract's work requests as the endpoint's.

use stentor_fabric::memory::WORD;
use stentor_fabric::{PostError, QpId, QpKind, QpState, RemoteSpan, Source, Span, Verb, WorkRequest};

use super::RoceFabric;
use crate::endpoint::{self, Data, Remote, Request, Work};

fn aligned(offset: u64, bytes: u64) -> Result<(), PostError> {
    if (offset | bytes).is_multiple_of(WORD as u64) { Ok(()) } else { Err(PostError::Misaligned { offset, bytes }) }
}

fn data<'a>(source: &Source<'a>) -> Data<'a> {
    match *source {
        Source::Inline(bytes) => Data::Inline(bytes),
        Source::Region(span) => Data::Local(span),
    }
}

impl RoceFabric {
    pub(super) fn post_work(&mut self, qp: QpId, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let state = self.state_of(qp).ok_or(PostError::UnknownQp(qp))?;
        if state != QpState::Ready {
            return Err(PostError::NotReady { qp, state });
        }
        let verb = self.request(qp, &request.verb)?;
        let work = Work { id: request.id, request: verb, signalled: request.signalled, solicited: false };
        self.net.endpoint.post_send(qp, &work).map_err(|error| refused(qp, error))
    }

    fn request<'a>(&self, qp: QpId, verb: &Verb<'a>) -> Result<Request<'a>, PostError> {
        let unreliable = self.bootstrap.config(qp).is_some_and(|config| config.kind == QpKind::Unreliable);
        Ok(match verb {
            Verb::Write { source, target } => {
                self.check_source(source)?;
                aligned(target.offset, source.bytes())?;
                Request::Write { data: data(source), remote: self.remote(target), imm: None }
            }
            Verb::WriteImm { source, target, imm } => {
                self.check_source(source)?;
                aligned(target.offset, source.bytes())?;
                Request::Write { data: data(source), remote: self.remote(target), imm: Some(*imm) }
            }
            Verb::Send { source, imm } => {
                self.check_source(source)?;
                Request::Send { data: data(source), imm: *imm }
            }
            Verb::TaggedSend { .. } => return Err(PostError::Unsupported("tagged send")),
            Verb::Read { .. } if unreliable => {
                return Err(PostError::Unsupported("READ on an unreliable connection"));
            }
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } if unreliable => {
                return Err(PostError::Unsupported("atomic operation on an unreliable connection"));
            }
            Verb::Read { local, remote: target } => {
                self.check_span(*local)?;
                aligned(target.offset, local.bytes.into())?;
                Request::Read { local: *local, remote: self.remote(target) }
            }
            Verb::CompareSwap { local, remote: target, expected, new } => {
                self.check_word(*local, target)?;
                Request::CompareSwap { local: *local, remote: self.remote(target), expected: *expected, new: *new }
            }
            Verb::FetchAdd { local, remote: target, add } => {
                self.check_word(*local, target)?;
                Request::FetchAdd { local: *local, remote: self.remote(target), add: *add }
            }
        })
    }

    fn remote(&self, span: &RemoteSpan) -> Remote {
        let place = self.bootstrap.remotes().place(&span.region);
        Remote { va: place.base.wrapping_add(span.offset), rkey: place.key as u32 }
    }

    fn check_source(&self, source: &Source<'_>) -> Result<(), PostError> {
        let (bytes, limit) = (source.bytes(), self.capabilities.inline_bytes);
        match source {
            Source::Inline(_) if bytes > limit.into() => Err(PostError::InlineTooLong { bytes, limit }),
            Source::Inline(_) => self.check_length(bytes),
            Source::Region(span) => self.check_span(*span),
        }
    }

    fn check_word(&self, local: Span, target: &RemoteSpan) -> Result<(), PostError> {
        if local.bytes as usize != WORD {
            return Err(PostError::Misaligned { offset: local.offset, bytes: local.bytes.into() });
        }
        self.check_span(local)?;
        aligned(target.offset, WORD as u64)
    }

    fn check_length(&self, bytes: u64) -> Result<(), PostError> {
        let limit = self.capabilities.max_message_bytes;
        if bytes > limit { Err(PostError::TooLong { bytes, limit }) } else { Ok(()) }
    }

    fn check_span(&self, span: Span) -> Result<(), PostError> {
        let Span { region, offset, bytes } = span;
        let bytes = u64::from(bytes);
        self.check_length(bytes)?;
        if bytes > 0 {
            aligned(offset, 0)?;
            if !self.net.endpoint.memory().contains(span) {
                return Err(PostError::OutOfLocalRegion { region, offset, bytes });
            }
        }
        Ok(())
    }

    pub(super) fn post_receive(&mut self, qp: QpId, span: Span, id: u64) -> Result<(), PostError> {
        let state = self.state_of(qp).ok_or(PostError::UnknownQp(qp))?;
        if state == QpState::Error {
            return Err(PostError::NotReady { qp, state });
        }
        self.check_span(span)?;
        self.net.endpoint.post_receive(qp, span, id).map_err(|error| refused(qp, error))
    }
}

fn refused(qp: QpId, error: endpoint::PostError) -> PostError {
    match error {
        endpoint::PostError::UnknownQp(qp) => PostError::UnknownQp(qp),
        endpoint::PostError::State { qp, .. } => PostError::NotReady { qp, state: QpState::Error },
        endpoint::PostError::SendQueueFull { qp, depth } => PostError::SendQueueFull { qp, depth },
        endpoint::PostError::ReceiveQueueFull { qp, depth } => PostError::RecvQueueFull { qp, depth },
        endpoint::PostError::OutsideRegion(Span { region, offset, bytes }) => {
            PostError::OutOfLocalRegion { region, offset, bytes: bytes.into() }
        }
        endpoint::PostError::TooLong { bytes } => {
            PostError::TooLong { bytes, limit: stentor_wire::MAX_MESSAGE_BYTES.into() }
        }
        endpoint::PostError::Misaligned { va, bytes } => PostError::Misaligned { offset: va, bytes: bytes.into() },
        endpoint::PostError::Unreliable(_) => {
            let _ = qp;
            PostError::Unsupported("that on an unreliable connection")
        }
    }
}
