//! Posting: the contract's work requests, as the endpoint has them.

use stentor_fabric::{PostError, QpId, QpState, RemoteSpan, Source, Span, WorkRequest};
use stentor_fabric_net::Remotes;

use super::RoceDevice;
use crate::endpoint::{self, Data, Remote, Work};

#[inline]
fn data<'a>(source: &Source<'a>) -> Data<'a> {
    match *source {
        Source::Inline(bytes) => Data::Inline(bytes),
        Source::Region(span) => Data::Local(span),
    }
}

impl RoceDevice {
    #[inline]
    pub(super) fn post_work(
        &mut self,
        remotes: &Remotes,
        qp: QpId,
        request: &WorkRequest<'_>,
    ) -> Result<(), PostError> {
        let at = |span: &RemoteSpan| {
            let place = remotes.place(&span.region);
            Remote { va: place.base.wrapping_add(span.offset), rkey: place.key as u32 }
        };
        let verb = request.verb.operation(data, |span| span, at)?;
        let work = Work { id: request.id, request: verb, signalled: request.signalled, solicited: false };
        self.endpoint.post_send(qp, &work).map_err(|error| refused(qp, error))
    }
}

pub(super) fn refused(qp: QpId, error: endpoint::PostError) -> PostError {
    match error {
        endpoint::PostError::UnknownQp(qp) => PostError::UnknownQp(qp),
        endpoint::PostError::State { .. } => PostError::NotReady { qp, state: QpState::Error },
        endpoint::PostError::SendQueueFull { qp, depth } => PostError::SendQueueFull { qp, depth },
        endpoint::PostError::ReceiveQueueFull { qp, depth } => PostError::RecvQueueFull { qp, depth },
        endpoint::PostError::OutsideRegion(Span { region, offset, bytes }) => {
            PostError::OutOfLocalRegion { region, offset, bytes: bytes.into() }
        }
        endpoint::PostError::TooLong { bytes } => {
            PostError::TooLong { bytes, limit: stentor_wire::MAX_MESSAGE_BYTES.into() }
        }
        endpoint::PostError::Misaligned { va, bytes } => PostError::Misaligned { offset: va, bytes: bytes.into() },
        endpoint::PostError::Unreliable(_) => PostError::Unsupported("that on an unreliable connection"),
    }
}
