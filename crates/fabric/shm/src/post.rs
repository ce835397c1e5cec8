//! Posting: immediate refusals, and the fast path of the most common work request.

use stentor_fabric::{Opcode, PollHint, PostError, QpId, QpKind, QpState, RemoteSpan, Source, Span, Verb, WorkRequest};

use crate::copy::store_bytes;
use crate::data::Data;
use crate::execute::Outcome;
use crate::local::span_words;
use crate::qp::{NONE, Receive, SendEntry};

impl Data {
    /// Posts a work request: see [`stentor_fabric::Fabric::post`].
    #[inline]
    pub(crate) fn post(&mut self, id: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        match request.verb {
            Verb::Write { source: Source::Inline(data), target } => {
                self.write_inline::<false>(id, request.id, data, target, request.signalled)
            }
            _ => self.post_any(id, request),
        }
    }

    /// Posts an inline write: see [`stentor_fabric::Fabric::write_inline`], and for `QUIET` ones
    /// [`stentor_fabric::Fabric::write_quietly`].
    #[inline(always)]
    pub(crate) fn write_inline<const QUIET: bool>(
        &mut self,
        id: QpId,
        work: u64,
        data: &[u8],
        target: RemoteSpan,
        signalled: bool,
    ) -> Result<(), PostError> {
        let qp = self.qps.get_mut(id.index()).ok_or(PostError::UnknownQp(id))?;
        // The fast path: a write of a valid size, which is this queue pair's first write after a flush or has the same
        // region as the previous one.
        if qp.admit(id).is_ok()
            && !data.is_empty()
            && data.len() <= self.capabilities.inline_bytes as usize
            && qp.deferred.is_empty()
            && let Some((slot, remote)) = self.remotes.find(qp.peer, &target)
            && (qp.open == slot || qp.open == NONE)
            && let Some(to) = remote.writable(target.offset, data.len() as u64)
        {
            store_bytes(data, to);
            qp.open = slot;
            let number = qp.number();
            qp.leave_unchecked(SendEntry { id: work, number, opcode: Opcode::Write, signalled });
            if QUIET {
                qp.mark_quietly(id.index(), &mut self.dirty);
            } else {
                qp.mark(id.index(), &mut self.dirty);
            }
            return Ok(());
        }
        self.write_any(id, work, data, target, signalled)
    }

    #[cold]
    fn write_any(
        &mut self,
        id: QpId,
        work: u64,
        data: &[u8],
        target: RemoteSpan,
        signalled: bool,
    ) -> Result<(), PostError> {
        let verb = Verb::Write { source: Source::Inline(data), target };
        self.post_any(id, WorkRequest { id: work, verb, signalled })
    }

    #[inline(never)]
    fn post_any(&mut self, id: QpId, request: WorkRequest<'_>) -> Result<(), PostError> {
        let index = id.index();
        let qp = self.qps.get(index).ok_or(PostError::UnknownQp(id))?;
        qp.admit(id)?;
        let is_unreliable = || qp.config.kind == QpKind::Unreliable;
        request.verb.check(&self.capabilities, is_unreliable, |span| span_words(&self.regions, span).is_some())?;
        let qp = &mut self.qps[index];
        let opcode = request.verb.opcode();
        let entry = SendEntry { id: request.id, number: qp.number(), opcode, signalled: request.signalled };
        if !qp.deferred.is_empty() || self.execute(index, entry, request.verb) == Outcome::Wait {
            self.defer(index, entry, request.verb);
        }
        Ok(())
    }

    /// Posts a receive: see [`stentor_fabric::Fabric::post_recv`]. Receives may be posted before the queue pair is
    /// connected.
    pub(crate) fn post_recv(&mut self, id: QpId, span: Span, work: u64) -> Result<(), PostError> {
        let qp = self.qps.get(id.index()).ok_or(PostError::UnknownQp(id))?;
        if qp.state == QpState::Error {
            return Err(PostError::NotReady { qp: id, state: qp.state });
        }
        if qp.receives_held >= qp.config.recv_depth {
            return Err(PostError::RecvQueueFull { qp: id, depth: qp.config.recv_depth });
        }
        span.check(self.capabilities.max_message_bytes, |span| span_words(&self.regions, span).is_some())?;
        let qp = &mut self.qps[id.index()];
        qp.receives_held += 1;
        qp.receives.push_back(Receive { id: work, span });
        if let Some((consumer, memory)) = &mut qp.inbound {
            consumer.post(memory.words(), span.bytes);
            // An incorrect peer may have sent a message without a receive, which waits for this one.
            let peer = qp.peer;
            self.hear(PollHint::from(peer));
        }
        Ok(())
    }
}
