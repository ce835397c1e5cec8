//! Location of the bytes of a message that is being sent.

use stentor_fabric::memory::{Ordering, WORD, Word};
use stentor_fabric::{Fabric, RegionId};

use crate::layout::store;

/// The unsent bytes of a message whose writer has detached it.
#[derive(Debug)]
pub(super) struct Rest {
    /// Number of bytes of the message that were sent before it was detached.
    pub(super) from: u64,
    pub(super) bytes: Box<[u8]>,
}

/// A message, or a part of one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Body<'a> {
    /// Bytes in private memory, which are copied into registered memory or posted inline.
    Bytes(&'a [u8]),
    /// The last bytes of a message, with the number of bytes before them.
    Rest(u64, &'a [u8]),
    /// Bytes in registered memory: region, offset (a multiple of 8) and length.
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

    /// Returns a part of the body. Parts begin at multiples of 8.
    pub(super) fn part(&self, from: u64, bytes: u32) -> Self {
        match self {
            Body::Bytes(all) => Body::Bytes(&all[from as usize..][..bytes as usize]),
            Body::Rest(before, rest) => Body::Bytes(&rest[(from - before) as usize..][..bytes as usize]),
            Body::Registered(region, offset, _) => Body::Registered(*region, offset + from, bytes),
        }
    }

    /// Copies the body to `to`, which must have the same length.
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

    /// Copies the body into `to`. The first byte goes to `offset`, which is in bytes and a multiple of 8.
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
