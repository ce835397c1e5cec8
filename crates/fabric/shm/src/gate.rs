//! Revocation without the power to unmap: a generation that the owner raises before it looks for the last time, and
//! that the writer reads after its stores and before it counts them as done.
//!
//! Writer: stores; full fence; is the generation still the one of the grant? Owner: raise the generation; full fence;
//! copy the memory. Either the writer sees the new generation and its writes fail, or the owner's copy holds them
//! (Dekker). A write that did not succeed may be in the copy too, whole or torn, as on hardware.
#![cfg_attr(not(loom), allow(unreachable_pub, reason = "public under loom only"))]

use stentor_fabric::memory::{Ordering, Word, fence};

/// Passes over the memory after which a copy is taken as it is. A peer that keeps the rules stores at most one batch
/// after the generation rose, so that only one that ignores them gets here; then there is no order left to keep.
const MAX_PASSES: usize = 8;

/// Closes the gate for the writer. What it counts as done after this is in what is copied after this.
#[inline]
pub fn close(generation: &Word) {
    generation.store(generation.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Whether the writer's stores before its last full fence count.
#[inline]
pub fn is_open(generation: u64, granted: u64) -> bool {
    generation == granted
}

/// Copies the memory of a closed gate. The copy is one state that the memory had: with a later write of the peer it
/// holds the earlier ones (rule 1). So it is repeated until two passes agree.
pub fn snapshot(from: &[Word], to: &[Word]) {
    for (from, to) in from.iter().zip(to) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    for _ in 1..MAX_PASSES {
        // What the last pass saw was stored after everything that the writer had stored before it.
        fence(Ordering::SeqCst);
        let mut changed = false;
        for (from, to) in from.iter().zip(to) {
            let now = from.load(Ordering::Relaxed);
            if now != to.load(Ordering::Relaxed) {
                to.store(now, Ordering::Relaxed);
                changed = true;
            }
        }
        if !changed {
            return;
        }
    }
}
