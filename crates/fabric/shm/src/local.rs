//! Regions of this process.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use stentor_fabric::memory::{WORD, Word};
use stentor_fabric::{Access, ProcessId, RegionSpec, Span};

use crate::mapping::Mapping;

/// A region of this process.
#[derive(Debug)]
pub(crate) struct LocalRegion {
    pub(crate) spec: RegionSpec,
    pub(crate) memory: Mapping,
    /// The memfd that peers map; `None` for memory that only this process maps.
    pub(crate) fd: Option<Arc<OwnedFd>>,
    /// Current access of the region's writer.
    pub(crate) granted: Option<Access>,
    /// Peers other than the writer that may read the region.
    pub(crate) readers: Vec<ProcessId>,
    /// Access for which the seals of `fd` were finished: a memfd supports only one kind of access.
    pub(crate) sealed_for: Option<Access>,
}

impl LocalRegion {
    /// Returns the current access of a peer.
    pub(crate) fn access_of(&self, peer: ProcessId) -> Option<Access> {
        if peer == self.spec.writer {
            return self.granted;
        }
        self.readers.contains(&peer).then_some(Access::Read)
    }

    /// Returns all peers that have access now.
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

/// Returns the words of a span, including a partial last word. Returns `None` if the span is not inside a region or not
/// aligned to words.
#[inline]
pub(crate) fn span_words(regions: &[LocalRegion], span: Span) -> Option<&[Word]> {
    if !span.offset.is_multiple_of(WORD as u64) {
        return None;
    }
    let words = regions.get(span.region.index())?.words();
    let first = usize::try_from(span.offset).ok()? / WORD;
    words.get(first..first.checked_add((span.bytes as usize).div_ceil(WORD))?)
}
