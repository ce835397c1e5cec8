//! Where the bytes of a message are that is being sent.

use stentor_fabric::memory::{Ordering, WORD, Word};
use stentor_fabric::{Fabric, RegionId};

use crate::layout::store;

/// The rest of a message whose writer has gone.
#[derive(Debug)]
pub(super) struct Rest {
    /// Bytes of the message before it, which were sent.
    pub(super) from: u64,
    pub(super) bytes: Box<[u8]>,
}

/// A message, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body<'a> {
    /// In memory that only this process sees: it is copied into registered memory, or while posting.
    Bytes(&'a [u8]),
    /// The end of a message: how many bytes of it went before.
    Rest(u64, &'a [u8]),
    /// In registered memory: region, offset, a multiple of 8, and length.
    Registered(RegionId, u64, u32),
}

impl Body<'_> {
    pub(super) const NONE: Body<'static> = Body::Bytes(&[]);

    pub(super) fn bytes(&self) -> usize {
        match self {
            Body::Bytes(bytes) | Body::Rest(_, bytes) => bytes.len(),
            Body::Registered(_, _, bytes) => *bytes as usize,
        }
    }

    /// A part of it. Parts begin at multiples of 8.
    pub(super) fn part(&self, from: u64, bytes: u32) -> Self {
        match self {
            Body::Bytes(all) => Body::Bytes(&all[from as usize..][..bytes as usize]),
            Body::Rest(before, rest) => Body::Bytes(&rest[(from - before) as usize..][..bytes as usize]),
            Body::Registered(region, offset, _) => Body::Registered(*region, offset + from, bytes),
        }
    }

    /// Copies it to bytes of the same length.
    pub(super) fn copy_to_bytes<F: Fabric>(&self, fabric: &F, to: &mut [u8]) {
        match self {
            Body::Bytes(bytes) | Body::Rest(_, bytes) => to.copy_from_slice(bytes),
            Body::Registered(region, offset, _) => {
                let from = &fabric.memory(*region)[*offset as usize / WORD..];
                for (to, word) in to.chunks_mut(WORD).zip(from) {
                    let bytes = word.load(Ordering::Relaxed).to_ne_bytes();
                    to.copy_from_slice(&bytes[..to.len()]);
                }
            }
        }
    }

    /// Copies it to words from an offset on, a multiple of 8.
    pub(super) fn copy_to_words<F: Fabric>(&self, fabric: &F, to: &[Word], offset: u64) {
        match self {
            Body::Bytes(bytes) | Body::Rest(_, bytes) => store(to, offset, bytes),
            Body::Registered(region, from, bytes) => {
                let from = &fabric.memory(*region)[*from as usize / WORD..];
                let to = &to[offset as usize / WORD..];
                for (to, from) in to.iter().zip(from).take((*bytes as usize).div_ceil(WORD)) {
                    to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
                }
            }
        }
    }
}
