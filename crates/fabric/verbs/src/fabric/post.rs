//! Posting: the contract's work requests, as the device has them.

use stentor_fabric::{Opcode, PostError, QpId, QpState, RemoteSpan, Source, Span, Verb, WorkRequest};
use stentor_fabric_net::Remotes;

use super::VerbsDevice;
use super::outstanding::{Name, Posted};
use crate::qp::{Data, Local, Remote, Work};

#[inline]
fn remote(remotes: &Remotes, span: &RemoteSpan) -> Remote {
    let place = remotes.place(&span.region);
    Remote { address: place.base.wrapping_add(span.offset), key: place.key as u32 }
}

/// The span of this side that a request uses: where its data comes from, or where they go to.
#[inline]
fn own_span(verb: &Verb<'_>) -> Option<Span> {
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

impl VerbsDevice {
    #[inline]
    pub(super) fn post_work(
        &mut self,
        remotes: &Remotes,
        qp: QpId,
        request: &WorkRequest<'_>,
    ) -> Result<(), PostError> {
        let half = &self.halves[qp.index()];
        if half.sends.is_full() {
            return Err(PostError::SendQueueFull { qp, depth: half.config.send_depth });
        }
        let peer = half.peer;
        let own = own_span(&request.verb).filter(|span| span.bytes > 0);
        if let Some(span) = own {
            self.register_for_use(qp, peer, span.region)?;
        }
        let local = |span: Span| self.regions.local(peer, span);
        let at = |span: &RemoteSpan| remote(remotes, span);
        let work = match &request.verb {
            // A READ of nothing is a WRITE of nothing: neither looks at memory, and both are answered.
            Verb::Read { local: Span { bytes: 0, .. }, remote } => {
                Work::Write { data: Data::Inline(&[]), remote: at(remote), imm: None }
            }
            verb => verb.operation(|source| data(source, local), local, at)?,
        };
        let half = &self.halves[qp.index()];
        let name = Name { receive: false, qp, life: half.life, sequence: half.sends.next() };
        let Some(pair) = &half.pair else { return Err(PostError::NotReady { qp, state: QpState::Error }) };
        if let Err(error) = pair.post(name.encode(), &work, request.signalled) {
            return Err(self.not_posted(qp, &error));
        }
        let entry = Posted { id: request.id, opcode: request.verb.opcode() };
        self.halves[qp.index()].sends.push(entry);
        Ok(())
    }

    pub(super) fn post_to_receive(&mut self, qp: QpId, span: Span, id: u64) -> Result<(), PostError> {
        let half = &self.halves[qp.index()];
        if half.receives.is_full() {
            return Err(PostError::RecvQueueFull { qp, depth: half.config.recv_depth });
        }
        let peer = half.peer;
        if span.bytes > 0 {
            self.register_for_use(qp, peer, span.region)?;
        }
        let local = (span.bytes > 0).then(|| self.regions.local(peer, span));
        let half = &self.halves[qp.index()];
        let name = Name { receive: true, qp, life: half.life, sequence: half.receives.next() };
        let Some(pair) = &half.pair else { return Err(PostError::NotReady { qp, state: QpState::Error }) };
        if let Err(error) = pair.post_recv(name.encode(), local) {
            return Err(self.not_posted(qp, &error));
        }
        self.halves[qp.index()].receives.push(Posted { id, opcode: Opcode::Recv });
        Ok(())
    }
}

/// A source, whose memory is registered if it has any.
#[inline]
fn data<'a>(source: &Source<'a>, local: impl Fn(Span) -> Local<'a>) -> Data<'a> {
    match *source {
        Source::Inline(bytes) => Data::Inline(bytes),
        Source::Region(span) if span.bytes > 0 => Data::Region(local(span)),
        Source::Region(_) => Data::Inline(&[]),
    }
}
