//! Remotely written memory, accessed only as atomic 8-byte words (rule 4), never as a `&[u8]`.

#[cfg(loom)]
pub use loom::sync::atomic::{AtomicU64 as Word, Ordering, fence};
#[cfg(not(loom))]
pub use std::sync::atomic::{AtomicU64 as Word, Ordering, fence};

/// Size of a word, in bytes.
pub const WORD: usize = 8;
/// Size of a cache line, in bytes. Records are aligned to it.
pub const LINE: usize = 64;
/// Size of a cache line, in words.
pub const LINE_WORDS: usize = LINE / WORD;

/// Copies words out of shared memory. The loads are unordered, so the caller must validate the copy.
///
/// # Panics
/// Panics if the lengths differ.
#[inline]
pub fn copy_out(from: &[Word], to: &mut [u64]) {
    assert_eq!(from.len(), to.len(), "copy_out of {} words into {}", from.len(), to.len());
    // Copies whole lines first, in loops of constant length. Most records have only one or two lines.
    let (lines, rest) = to.as_chunks_mut::<LINE_WORDS>();
    let (shared_lines, shared_rest) = from.as_chunks::<LINE_WORDS>();
    for (to, from) in lines.iter_mut().zip(shared_lines) {
        for (to, from) in to.iter_mut().zip(from) {
            *to = from.load(Ordering::Relaxed);
        }
    }
    for (to, from) in rest.iter_mut().zip(shared_rest) {
        *to = from.load(Ordering::Relaxed);
    }
}
