//! Posting: the contract's work requests as the device's.

use stentor_bootstrap::Remotes;
use stentor_fabric::memory::WORD;
use stentor_fabric::{Opcode, PostError, QpId, QpKind, QpState, RemoteSpan, Source, Span, Verb, WorkRequest};

use super::VerbsFabric;
use super::outstanding::{Entry, Name};
use crate::qp::{Data, Local, Remote, Work};

#[inline]
fn aligned(offset: u64, bytes: u64) -> Result<(), PostError> {
    if (offset | bytes).is_multiple_of(WORD as u64) { Ok(()) } else { Err(PostError::Misaligned { offset, bytes }) }
}

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

impl VerbsFabric {
    #[inline]
    pub(super) fn post_work(&mut self, qp: QpId, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let state = self.state_of(qp).ok_or(PostError::UnknownQp(qp))?;
        if state != QpState::Ready {
            return Err(PostError::NotReady { qp, state });
        }
        self.check(qp, &request.verb)?;
        let half = &self.net.halves[qp.index()];
        if half.sends.is_full() {
            let depth = self.bootstrap.config(qp).map_or(0, |config| config.send_depth);
            return Err(PostError::SendQueueFull { qp, depth });
        }
        let peer = half.peer;
        let local = match own_span(&request.verb) {
            Some(span) if span.bytes > 0 => Some(self.regions.local(&mut self.net, qp, peer, span)?),
            _ => None,
        };
        let at = |span: &RemoteSpan| remote(self.bootstrap.remotes(), span);
        let work = match (&request.verb, local) {
            (Verb::Write { source, target }, _) => {
                Work::Write { data: data(source, local), remote: at(target), imm: None }
            }
            (Verb::WriteImm { source, target, imm }, _) => {
                Work::Write { data: data(source, local), remote: at(target), imm: Some(*imm) }
            }
            (Verb::Send { source, imm }, _) => Work::Send { data: data(source, local), imm: *imm },
            (Verb::Read { remote, .. }, Some(local)) => Work::Read { local, remote: at(remote) },
            // A READ of nothing is a WRITE of nothing: neither looks at memory, and both are answered.
            (Verb::Read { remote, .. }, None) => Work::Write { data: Data::Inline(&[]), remote: at(remote), imm: None },
            (Verb::CompareSwap { remote, expected, new, .. }, Some(local)) => {
                Work::CompareSwap { local, remote: at(remote), expected: *expected, new: *new }
            }
            (Verb::FetchAdd { remote, add, .. }, Some(local)) => {
                Work::FetchAdd { local, remote: at(remote), add: *add }
            }
            _ => return Err(PostError::Unsupported("tagged send")),
        };
        let half = &mut self.net.halves[qp.index()];
        let name = Name { receive: false, qp, life: half.life, sequence: half.sends.next() };
        let Some(pair) = &half.pair else { return Err(PostError::NotReady { qp, state: QpState::Error }) };
        if let Err(error) = pair.post(name.encode(), &work, request.signalled) {
            return Err(self.net.not_posted(qp, &error));
        }
        half.sends.push(Entry { id: request.id, opcode: request.verb.opcode() });
        Ok(())
    }

    /// What can be said without the device.
    #[inline]
    fn check(&self, qp: QpId, verb: &Verb<'_>) -> Result<(), PostError> {
        match verb {
            Verb::Write { source, target } | Verb::WriteImm { source, target, .. } => {
                self.check_source(source)?;
                aligned(target.offset, source.bytes())
            }
            Verb::Send { source, .. } => self.check_source(source),
            Verb::TaggedSend { .. } => Err(PostError::Unsupported("tagged send")),
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
        self.bootstrap.config(qp).is_some_and(|config| config.kind == QpKind::Unreliable)
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

    pub(super) fn post_receive(&mut self, qp: QpId, span: Span, id: u64) -> Result<(), PostError> {
        let state = self.state_of(qp).ok_or(PostError::UnknownQp(qp))?;
        if state == QpState::Error {
            return Err(PostError::NotReady { qp, state });
        }
        self.check_span(span)?;
        let half = &self.net.halves[qp.index()];
        if half.receives.is_full() {
            let depth = self.bootstrap.config(qp).map_or(0, |config| config.recv_depth);
            return Err(PostError::RecvQueueFull { qp, depth });
        }
        let peer = half.peer;
        let local = if span.bytes > 0 { Some(self.regions.local(&mut self.net, qp, peer, span)?) } else { None };
        let half = &mut self.net.halves[qp.index()];
        let name = Name { receive: true, qp, life: half.life, sequence: half.receives.next() };
        let Some(pair) = &half.pair else { return Err(PostError::NotReady { qp, state: QpState::Error }) };
        if let Err(error) = pair.post_recv(name.encode(), local) {
            return Err(self.net.not_posted(qp, &error));
        }
        half.receives.push(Entry { id, opcode: Opcode::Recv });
        Ok(())
    }
}

/// A source, whose memory is registered if it has any.
#[inline]
fn data<'a>(source: &Source<'a>, local: Option<Local<'a>>) -> Data<'a> {
    match (*source, local) {
        (Source::Inline(bytes), _) => Data::Inline(bytes),
        (Source::Region(_), Some(local)) => Data::Region(local),
        (Source::Region(_), None) => Data::Inline(&[]),
    }
}
