//! Translation of the contract's work requests into operations of the provider, and requests of a process to itself.

use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::{Access, PostError, QpId, RegionId, RemoteSpan, Source, Span, Verb, WorkRequest};
use stentor_fabric_net::Remotes;

use super::OfiDevice;
use super::life::INLINE;
use super::work::{There, Work};
use crate::endpoint::Local;

impl OfiDevice {
    /// Returns a region's memory in the form that operations require. The caller must have checked the span.
    pub(super) fn local(&self, span: Span) -> Local {
        let local = self.locals.get(span.region.index()).and_then(Option::as_ref);
        let descriptor = local.map_or(std::ptr::null_mut(), |made| made.descriptor());
        let start = match self.shared.memories.get(span.region.index()) {
            Some(memory) if span.bytes > 0 => memory.at(span.offset),
            _ => std::ptr::NonNull::dangling(),
        };
        Local { start, bytes: span.bytes as usize, descriptor }
    }

    /// Returns a location in a peer's memory, or `None` if the peer has not granted the access that the operation
    /// needs.
    fn there(&self, remotes: &Remotes, qp: QpId, span: &RemoteSpan, bytes: u64, needs: Access) -> Option<There> {
        let of = self.ends[qp.index()].peer;
        let granted = remotes.granted(&span.region).filter(|_| span.region.peer == of)?;
        let enough = match granted.access {
            Access::Read => needs == Access::Read,
            Access::Write => needs != Access::Atomic,
            Access::Atomic => true,
        };
        let inside = span.offset.checked_add(bytes).is_some_and(|end| end <= granted.bytes);
        let address = granted.place.base.checked_add(span.offset)?;
        (enough && inside).then_some(There { key: granted.place.key, address })
    }

    pub(super) fn work_of(&mut self, remotes: &Remotes, qp: QpId, verb: &Verb<'_>) -> Work {
        let Some(life) = &mut self.ends[qp.index()].life else { return Work::Refused };
        let copied = match verb {
            Verb::FetchAdd { add, .. } => life.copy_inline(&add.to_ne_bytes()),
            Verb::CompareSwap { expected, new, .. } => {
                life.copy_inline([new.to_ne_bytes(), expected.to_ne_bytes()].as_flattened())
            }
            verb => life.copy_inline(verb.inline()),
        };
        debug_assert!(copied.bytes <= INLINE);
        let source = |source: &Source<'_>| match source {
            Source::Inline(_) => copied,
            Source::Region(span) => self.local(*span),
        };
        let work = match verb {
            Verb::Write { source: from, target } => {
                let region = if let Source::Region(span) = from { Some(span.region) } else { None };
                let to = self.there(remotes, qp, target, from.bytes(), Access::Write);
                to.map(|to| Work::Write { local: source(from), region, to, imm: None })
            }
            Verb::WriteImm { source: from, target, imm } => self
                .there(remotes, qp, target, from.bytes(), Access::Write)
                .map(|to| Work::Write { local: source(from), region: None, to, imm: Some(*imm) }),
            Verb::Read { local, remote } => self
                .there(remotes, qp, remote, local.bytes.into(), Access::Read)
                .map(|from| Work::Read { local: self.local(*local), from }),
            Verb::Send { source: from, imm } => Some(Work::Send { local: source(from), imm: *imm, sent: 0 }),
            Verb::TaggedSend { source: from, tag } => Some(Work::Tagged { local: source(from), tag: *tag }),
            Verb::FetchAdd { local, remote, .. } => self
                .there(remotes, qp, remote, 8, Access::Atomic)
                .map(|to| Work::FetchAdd { old: self.local(*local), operand: copied, to }),
            Verb::CompareSwap { local, remote, .. } => self
                .there(remotes, qp, remote, 8, Access::Atomic)
                .map(|to| Work::CompareSwap { old: self.local(*local), operands: copied, to }),
        };
        work.unwrap_or(Work::Refused)
    }

    /// Executes a one-sided verb on this process's own memory at once, word by word.
    pub(super) fn post_to_itself(
        &mut self,
        remotes: &Remotes,
        qp: QpId,
        request: &WorkRequest<'_>,
    ) -> Result<(), PostError> {
        let done = match &request.verb {
            Verb::Write { source, target } => {
                self.itself(remotes, qp, target, source.bytes(), Access::Write).map(|(region, first)| {
                    let to = &self.shared.memories[region.index()].words()[first..];
                    match source {
                        Source::Inline(data) => super::life::store(to, 0, data),
                        Source::Region(span) => self.copy(*span, to),
                    }
                })
            }
            Verb::Read { local, remote } => {
                self.itself(remotes, qp, remote, local.bytes.into(), Access::Read).map(|(region, first)| {
                    let from = &self.shared.memories[region.index()].words()[first..];
                    let to = &self.shared.memories[local.region.index()].words()[local.offset as usize / WORD..];
                    for (to, from) in to.iter().zip(from).take(local.bytes as usize / WORD) {
                        to.store(from.load(Ordering::Relaxed), Ordering::Release);
                    }
                })
            }
            Verb::FetchAdd { local, remote, add } => {
                self.itself(remotes, qp, remote, 8, Access::Atomic).map(|(region, word)| {
                    let old = self.shared.memories[region.index()].words()[word].fetch_add(*add, Ordering::AcqRel);
                    self.shared.memories[local.region.index()].words()[local.offset as usize / WORD]
                        .store(old, Ordering::Release);
                })
            }
            Verb::CompareSwap { local, remote, expected, new } => {
                self.itself(remotes, qp, remote, 8, Access::Atomic).map(|(region, word)| {
                    let word = &self.shared.memories[region.index()].words()[word];
                    let old = word.compare_exchange(*expected, *new, Ordering::AcqRel, Ordering::Acquire);
                    self.shared.memories[local.region.index()].words()[local.offset as usize / WORD]
                        .store(old.unwrap_or_else(|old| old), Ordering::Release);
                })
            }
            _ => return Err(PostError::Unsupported("messages from a process to itself")),
        };
        let (end, shared) = (&mut self.ends[qp.index()], &mut self.shared);
        match done {
            Some(()) => end.push_done(request.id, request.verb.opcode(), request.signalled),
            None => end.push(request.id, request.verb.opcode(), request.signalled, Work::Refused),
        }
        shared.rung = true;
        end.advance(shared);
        Ok(())
    }

    fn copy(&self, from: Span, to: &[stentor_fabric::Word]) {
        let words = &self.shared.memories[from.region.index()].words()[from.offset as usize / WORD..];
        for (to, from) in to.iter().zip(words).take(from.bytes as usize / WORD) {
            to.store(from.load(Ordering::Relaxed), Ordering::Release);
        }
    }

    fn itself(
        &self,
        remotes: &Remotes,
        qp: QpId,
        span: &RemoteSpan,
        bytes: u64,
        needs: Access,
    ) -> Option<(RegionId, usize)> {
        let there = self.there(remotes, qp, span, bytes, needs)?;
        let region = *self.own_keys.get(&there.key)?;
        Some((region, there.address as usize / WORD))
    }
}
