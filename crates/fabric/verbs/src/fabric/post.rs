//! Posting: the contract's work requests, as the device has them.

use stentor_fabric::{RemoteSpan, Source, Span, Verb};
use stentor_fabric_net::Remotes;

use crate::qp::{Data, Local, Remote};

#[inline]
pub(super) fn remote(remotes: &Remotes, span: &RemoteSpan) -> Remote {
    let place = remotes.place(&span.region);
    Remote { address: place.base.wrapping_add(span.offset), key: place.key as u32 }
}

/// The span of this side that a request uses: where its data comes from, or where they go to.
#[inline]
pub(super) fn own_span(verb: &Verb<'_>) -> Option<Span> {
    match verb {
        Verb::Write { source: Source::Region(span), .. }
        | Verb::WriteImm { source: Source::Region(span), .. }
        | Verb::Send { source: Source::Region(span), .. }
        | Verb::Read { local: span, .. }
        | Verb::CompareSwap { local: span, .. }
        | Verb::FetchAdd { local: span, .. } => Some(*span),
        _ => None,
    }
}

/// A source, whose memory is registered if it has any.
#[inline]
pub(super) fn data<'a>(source: &Source<'a>, local: impl Fn(Span) -> Local<'a>) -> Data<'a> {
    match *source {
        Source::Inline(bytes) => Data::Inline(bytes),
        Source::Region(span) if span.bytes > 0 => Data::Region(local(span)),
        Source::Region(_) => Data::Inline(&[]),
    }
}
