//! Translation of the contract's work requests into work requests of the device.

use stentor_fabric::{PostError, QpId, QpState, RemoteSpan, Source, Span, Verb, WorkRequest};
use stentor_fabric_net::Remotes;

use super::VerbsDevice;
use super::ends::Half;
use super::held::{Holder, Place};
use super::outstanding::{Name, Posted};
use crate::qp::{Data, Local, Remote, Work};

#[inline]
pub(super) fn remote(remotes: &Remotes, span: &RemoteSpan) -> Remote {
    let place = remotes.place(&span.region);
    Remote { address: place.base.wrapping_add(span.offset), key: place.key as u32 }
}

/// Returns the local span that a request reads from or writes to.
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

/// Returns a source's data. The memory of a region must be registered.
#[inline]
pub(super) fn data<'a>(source: &Source<'a>, local: impl Fn(Span) -> Local<'a>) -> Data<'a> {
    match *source {
        Source::Inline(bytes) => Data::Inline(bytes),
        Source::Region(span) if span.bytes > 0 => Data::Region(local(span)),
        Source::Region(_) => Data::Inline(&[]),
    }
}

impl Half {
    /// Adds a request to the send queue, after it was posted or became part of the held WRITE.
    #[inline]
    pub(super) fn push(&mut self, request: &WorkRequest<'_>) {
        let taken = self.holder.as_ref().map_or(0, Holder::taken);
        self.sends.push(Posted::new(request.id, request.verb.opcode(), request.signalled, taken));
    }
}

impl VerbsDevice {
    /// Holds a request of a queue pair that has a [`Holder`], or merges it into the held WRITE. Returns `false` if
    /// neither is possible. The held WRITE was then posted, and the caller must post the request now.
    ///
    /// # Errors
    /// Returns an error if the queue pair is broken, for example because the held WRITE could not be posted.
    #[inline]
    pub(super) fn hold(&mut self, remotes: &Remotes, qp: QpId, request: &WorkRequest<'_>) -> Result<bool, PostError> {
        // A request that the peer would refuse is posted separately.
        let place = |target: &RemoteSpan, bytes| {
            let inside = target.offset.checked_add(bytes).is_some_and(|end| end <= target.region.bytes);
            inside.then(|| remote(remotes, target))
        };
        let part = match &request.verb {
            Verb::Write { source, target } if Holder::takes(source) => {
                place(target, source.bytes()).map(|remote| (source, remote))
            }
            _ => None,
        };
        let half = &mut self.halves[qp.index()];
        if let (Some(holder), Some((source, remote))) = (&mut half.holder, part)
            && holder.join(source, remote, request.signalled)
        {
            half.sends.join_last();
            half.push(request);
            return Ok(true);
        }
        self.post_held(qp);
        let half = &mut self.halves[qp.index()];
        if half.pair.is_none() {
            return Err(PostError::NotReady { qp, state: QpState::Error });
        }
        let (Some(holder), Some((source, remote))) = (&mut half.holder, part) else { return Ok(false) };
        holder.hold(source, remote, request.signalled);
        if !std::mem::replace(&mut holder.is_listed, true) {
            self.holding.push(qp);
        }
        half.push(request);
        Ok(true)
    }

    /// Posts the WRITE that a queue pair holds back.
    #[inline]
    pub(super) fn post_held(&mut self, qp: QpId) {
        let Some(half) = self.halves.get_mut(qp.index()) else { return };
        let (Some(holder), Some(pair)) = (&mut half.holder, &half.pair) else { return };
        let Some(held) = holder.take() else { return };
        let data = match (held.place, &half.inline) {
            (Place::Region(span), _) => Data::Region(self.regions.local(half.peer, Span { bytes: held.bytes, ..span })),
            (Place::Long(offset), Some(region)) => Data::Region(Local { region, offset, bytes: held.bytes }),
            (Place::Short | Place::Long(_), _) => Data::Inline(holder.short(held.bytes)),
        };
        let name = Name { receive: false, qp, life: half.life, sequence: half.sends.next().wrapping_sub(1) };
        let work = Work::Write { data, remote: held.remote, imm: None };
        if let Err(error) = pair.post(name.encode(), &work, held.signalled) {
            // The parts of the WRITE are flushed with the queue pair.
            let _ = self.not_posted(qp, &error);
        }
    }

    /// Posts all WRITEs that are held back.
    #[inline]
    pub(super) fn post_all_held(&mut self) {
        while let Some(qp) = self.holding.pop() {
            self.post_held(qp);
            if let Some(holder) = self.halves.get_mut(qp.index()).and_then(|half| half.holder.as_mut()) {
                holder.is_listed = false;
            }
        }
    }
}
