//! Posting: the contract's work requests, checked.

use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::{Access, PostError, QpId, QpState, RegionId, RemoteSpan, Source, Span, Verb, WorkRequest};

use super::OfiFabric;
use super::life::INLINE;
use super::queue::{There, Work};
use crate::operations::Local;

fn aligned(offset: u64, bytes: u64) -> Result<(), PostError> {
    if (offset | bytes).is_multiple_of(WORD as u64) { Ok(()) } else { Err(PostError::Misaligned { offset, bytes }) }
}

impl OfiFabric {
    pub(super) fn post_work(&mut self, qp: QpId, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let state = self.state_of(qp).ok_or(PostError::UnknownQp(qp))?;
        if state != QpState::Ready {
            return Err(PostError::NotReady { qp, state });
        }
        self.check(&request.verb)?;
        let end = &self.net.ends[qp.index()];
        if end.is_full() {
            return Err(PostError::SendQueueFull { qp, depth: end.config.send_depth });
        }
        if end.peer == self.net.me {
            return self.post_to_itself(qp, request);
        }
        if let Verb::TaggedSend { source: Source::Inline(data), tag } = &request.verb
            && self.net.ends[qp.index()].inject_tagged(data, *tag, (request.id, request.signalled))
        {
            return Ok(());
        }
        let work = self.work(qp, &request.verb);
        self.net.ends[qp.index()].push(request.id, request.verb.opcode(), request.signalled, work);
        self.net.ends[qp.index()].advance(&mut self.net.shared);
        Ok(())
    }

    /// What the caller can know to be wrong.
    fn check(&self, verb: &Verb<'_>) -> Result<(), PostError> {
        match verb {
            Verb::Write { source, target } | Verb::WriteImm { source, target, .. } => {
                self.check_source(source)?;
                aligned(target.offset, source.bytes())
            }
            Verb::Send { source, .. } => self.check_source(source),
            Verb::TaggedSend { .. } if !self.capabilities.tagged => Err(PostError::Unsupported("tagged send")),
            Verb::TaggedSend { source, .. } => self.check_source(source),
            Verb::Read { local, remote } => {
                self.check_span(*local)?;
                aligned(remote.offset, local.bytes.into())
            }
            Verb::CompareSwap { .. } | Verb::FetchAdd { .. } if !self.capabilities.atomics => {
                Err(PostError::Unsupported("atomic operation"))
            }
            Verb::CompareSwap { local, remote, .. } | Verb::FetchAdd { local, remote, .. } => {
                if local.bytes as usize != WORD {
                    return Err(PostError::Misaligned { offset: local.offset, bytes: local.bytes.into() });
                }
                self.check_span(*local)?;
                aligned(remote.offset, WORD as u64)
            }
        }
    }

    fn check_source(&self, source: &Source<'_>) -> Result<(), PostError> {
        let (bytes, limit) = (source.bytes(), self.capabilities.inline_bytes);
        match source {
            Source::Inline(_) if bytes > limit.into() => Err(PostError::InlineTooLong { bytes, limit }),
            Source::Inline(_) => Ok(()),
            Source::Region(span) => self.check_span(*span),
        }
    }

    fn check_span(&self, span: Span) -> Result<(), PostError> {
        let Span { region, offset, bytes } = span;
        let (bytes, limit) = (u64::from(bytes), self.capabilities.max_message_bytes);
        if bytes > limit {
            return Err(PostError::TooLong { bytes, limit });
        }
        if bytes > 0 {
            aligned(offset, 0)?;
            let memory = self.net.shared.memories.get(region.index());
            let end = offset.checked_add(bytes);
            if memory.is_none_or(|memory| end.is_none_or(|end| end > memory.bytes())) {
                return Err(PostError::OutOfLocalRegion { region, offset, bytes });
            }
        }
        Ok(())
    }

    /// Memory of a region, as operations name it; the span was checked.
    fn local(&self, span: Span) -> Local {
        let region = self.regions.get(span.region.index());
        let descriptor =
            region.and_then(|own| own.local.as_ref()).map_or(std::ptr::null_mut(), |made| made.descriptor());
        let start = match self.net.shared.memories.get(span.region.index()) {
            Some(memory) if span.bytes > 0 => memory.at(span.offset),
            _ => std::ptr::NonNull::dangling(),
        };
        Local { start, bytes: span.bytes as usize, descriptor }
    }

    /// A place of a peer's memory, if what is meant to be done there was granted.
    fn there(&self, qp: QpId, span: &RemoteSpan, bytes: u64, needs: Access) -> Option<There> {
        let of = self.net.ends[qp.index()].peer;
        let granted = self.bootstrap.remotes().granted(&span.region).filter(|_| span.region.peer == of)?;
        let enough = match granted.access {
            Access::Read => needs == Access::Read,
            Access::Write => needs != Access::Atomic,
            Access::Atomic => true,
        };
        let inside = span.offset.checked_add(bytes).is_some_and(|end| end <= granted.bytes);
        let address = granted.place.base.checked_add(span.offset)?;
        (enough && inside).then_some(There { key: granted.place.key, address })
    }

    fn work(&self, qp: QpId, verb: &Verb<'_>) -> Work {
        let end = &self.net.ends[qp.index()];
        let Some(life) = &end.life else { return Work::Refused };
        let slot = end.slot();
        let source = |source: &Source<'_>| match source {
            Source::Inline(data) => {
                debug_assert!(data.len() <= INLINE);
                life.store_inline(slot, data);
                life.inline(slot, data.len())
            }
            Source::Region(span) => self.local(*span),
        };
        let work = match verb {
            Verb::Write { source: from, target } => self
                .there(qp, target, from.bytes(), Access::Write)
                .map(|to| Work::Write { local: source(from), to, imm: None }),
            Verb::WriteImm { source: from, target, imm } => self
                .there(qp, target, from.bytes(), Access::Write)
                .map(|to| Work::Write { local: source(from), to, imm: Some(*imm) }),
            Verb::Read { local, remote } => self
                .there(qp, remote, local.bytes.into(), Access::Read)
                .map(|from| Work::Read { local: self.local(*local), from }),
            Verb::Send { source: from, imm } => Some(Work::Send { local: source(from), imm: *imm, sent: 0 }),
            Verb::TaggedSend { source: from, tag } => Some(Work::Tagged { local: source(from), tag: *tag }),
            Verb::FetchAdd { local, remote, add } => self.there(qp, remote, 8, Access::Atomic).map(|to| {
                life.store_inline(slot, &add.to_ne_bytes());
                Work::FetchAdd { old: self.local(*local), to }
            }),
            Verb::CompareSwap { local, remote, expected, new } => self.there(qp, remote, 8, Access::Atomic).map(|to| {
                let (mut both, [first, second]) = ([0; 16], [new.to_ne_bytes(), expected.to_ne_bytes()]);
                both[..8].copy_from_slice(&first);
                both[8..].copy_from_slice(&second);
                life.store_inline(slot, &both);
                Work::CompareSwap { old: self.local(*local), to }
            }),
        };
        work.unwrap_or(Work::Refused)
    }

    /// One-sided verbs of a process to itself are done at once, word by word.
    fn post_to_itself(&mut self, qp: QpId, request: &WorkRequest<'_>) -> Result<(), PostError> {
        let done = match &request.verb {
            Verb::Write { source, target } => {
                self.itself(qp, target, source.bytes(), Access::Write).map(|(region, first)| {
                    let to = &self.net.shared.memories[region.index()].words()[first..];
                    match source {
                        Source::Inline(data) => super::life::store(to, 0, data),
                        Source::Region(span) => self.copy(*span, to),
                    }
                })
            }
            Verb::Read { local, remote } => {
                self.itself(qp, remote, local.bytes.into(), Access::Read).map(|(region, first)| {
                    let from = &self.net.shared.memories[region.index()].words()[first..];
                    let to = &self.net.shared.memories[local.region.index()].words()[local.offset as usize / WORD..];
                    for (to, from) in to.iter().zip(from).take(local.bytes as usize / WORD) {
                        to.store(from.load(Ordering::Relaxed), Ordering::Release);
                    }
                })
            }
            Verb::FetchAdd { local, remote, add } => {
                self.itself(qp, remote, 8, Access::Atomic).map(|(region, word)| {
                    let old = self.net.shared.memories[region.index()].words()[word].fetch_add(*add, Ordering::AcqRel);
                    self.net.shared.memories[local.region.index()].words()[local.offset as usize / WORD]
                        .store(old, Ordering::Release);
                })
            }
            Verb::CompareSwap { local, remote, expected, new } => {
                self.itself(qp, remote, 8, Access::Atomic).map(|(region, word)| {
                    let word = &self.net.shared.memories[region.index()].words()[word];
                    let old = word.compare_exchange(*expected, *new, Ordering::AcqRel, Ordering::Acquire);
                    self.net.shared.memories[local.region.index()].words()[local.offset as usize / WORD]
                        .store(old.unwrap_or_else(|old| old), Ordering::Release);
                })
            }
            _ => return Err(PostError::Unsupported("messages of a process to itself")),
        };
        let (end, shared) = (&mut self.net.ends[qp.index()], &mut self.net.shared);
        match done {
            Some(()) => end.push_done(request.id, request.verb.opcode(), request.signalled),
            None => end.push(request.id, request.verb.opcode(), request.signalled, Work::Refused),
        }
        shared.rung = true;
        end.advance(shared);
        Ok(())
    }

    fn copy(&self, from: Span, to: &[stentor_fabric::Word]) {
        let words = &self.net.shared.memories[from.region.index()].words()[from.offset as usize / WORD..];
        for (to, from) in to.iter().zip(words).take(from.bytes as usize / WORD) {
            to.store(from.load(Ordering::Relaxed), Ordering::Release);
        }
    }

    fn itself(&self, qp: QpId, span: &RemoteSpan, bytes: u64, needs: Access) -> Option<(RegionId, usize)> {
        let there = self.there(qp, span, bytes, needs)?;
        let region = *self.own_keys.get(&there.key)?;
        Some((region, there.address as usize / WORD))
    }

    pub(super) fn post_receive(&mut self, qp: QpId, span: Span, id: u64) -> Result<(), PostError> {
        self.check_receive(qp, span)?;
        let end = &mut self.net.ends[qp.index()];
        if end.receives_full() {
            return Err(PostError::RecvQueueFull { qp, depth: end.config.recv_depth });
        }
        end.push_receive(id, span);
        Ok(())
    }

    fn check_receive(&self, qp: QpId, span: Span) -> Result<(), PostError> {
        let state = self.state_of(qp).ok_or(PostError::UnknownQp(qp))?;
        if state == QpState::Error {
            return Err(PostError::NotReady { qp, state });
        }
        self.check_span(span)
    }

    pub(super) fn post_tagged(
        &mut self,
        qp: QpId,
        span: Span,
        (tag, ignore): (u64, u64),
        id: u64,
    ) -> Result<(), PostError> {
        if !self.capabilities.tagged {
            return Err(PostError::Unsupported("tagged receive"));
        }
        self.check_receive(qp, span)?;
        let local = self.local(span);
        let end = &mut self.net.ends[qp.index()];
        for _ in 0..16 {
            if end.push_tagged(id, local, tag, ignore) {
                return Ok(());
            }
            end.drive(&mut self.net.shared, &mut []);
        }
        Err(PostError::RecvQueueFull { qp, depth: end.config.recv_depth })
    }

    /// The state as posts see it: a queue pair may have broken a moment ago.
    pub(super) fn state_of(&self, qp: QpId) -> Option<QpState> {
        let state = self.bootstrap.state(qp)?;
        Some(if self.net.ends[qp.index()].alive { state } else { QpState::Error })
    }
}
