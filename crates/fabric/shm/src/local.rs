//! This process's own regions.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use stentor_fabric::memory::{WORD, Word};
use stentor_fabric::{Access, ProcessId, RegionSpec, Span};

use crate::mapping::Mapping;

/// A region.
#[derive(Debug)]
pub(crate) struct LocalRegion {
    pub(crate) spec: RegionSpec,
    pub(crate) memory: Mapping,
    /// What peers map; none for memory that nobody else reaches.
    pub(crate) fd: Option<Arc<OwnedFd>>,
    /// What its peer may do now.
    pub(crate) granted: Option<Access>,
    /// Peers beside it that may read.
    pub(crate) readers: Vec<ProcessId>,
    /// What the seals of `fd` were finished for: a memfd serves one kind of access only.
    pub(crate) sealed_for: Option<Access>,
}

impl LocalRegion {
    /// What a peer may do now.
    pub(crate) fn access_of(&self, peer: ProcessId) -> Option<Access> {
        if peer == self.spec.writer {
            return self.granted;
        }
        self.readers.contains(&peer).then_some(Access::Read)
    }

    /// Everybody who may use it now.
    pub(crate) fn peers(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.granted.map(|_| self.spec.writer).into_iter().chain(self.readers.iter().copied())
    }

    pub(crate) fn forget(&mut self, peer: ProcessId) {
        if peer == self.spec.writer {
            self.granted = None;
        }
        self.readers.retain(|reader| *reader != peer);
    }

    #[inline]
    pub(crate) fn words(&self) -> &[Word] {
        self.memory.words()
    }
}

/// The words of a span; a last partial word counts. `None` if it is not inside a region, or not at a word.
#[inline]
pub(crate) fn span_words(regions: &[LocalRegion], span: Span) -> Option<&[Word]> {
    if !span.offset.is_multiple_of(WORD as u64) {
        return None;
    }
    let words = regions.get(span.region.index())?.words();
    let first = usize::try_from(span.offset).ok()? / WORD;
    words.get(first..first.checked_add((span.bytes as usize).div_ceil(WORD))?)
}
