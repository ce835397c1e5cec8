//! Revocation without unmapping: a generation that the owner increments before it copies the memory for the last time,
//! and that the writer reads after its stores and before it counts them as done.
//!
//! The writer stores, executes a full fence, and checks that the generation is still that of the grant. The owner
//! increments the generation, executes a full fence, and copies the memory. Either the writer sees the new generation
//! and its writes fail, or the owner's copy contains them (Dekker's algorithm). A failed write may be in the copy as
//! well, whole or torn, as on hardware.
#![cfg_attr(not(loom), allow(unreachable_pub, reason = "public under loom only"))]

use stentor_fabric::memory::{Ordering, Word, fence};

/// Number of passes over the memory after which the copy is used as it is. A correct peer stores at most one batch
/// after the generation has changed, so only an incorrect peer reaches this limit. The writes of an incorrect peer have
/// no order that the copy must preserve.
const MAX_PASSES: usize = 8;

/// Closes the gate for the writer. A copy that is made after this call contains every write that the writer counts as
/// done.
#[inline]
pub fn close(generation: &Word) {
    generation.store(generation.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    fence(Ordering::SeqCst);
}

/// Returns whether the writer's stores before its last full fence count as done.
#[inline]
pub fn is_open(generation: u64, granted: u64) -> bool {
    generation == granted
}

/// Copies the memory of a closed gate. The copy must be one state that the memory had: if it contains a later write of
/// the peer, it must contain the earlier ones (rule 1 of the fabric contract). The copy is therefore repeated until two
/// passes agree, but at most `MAX_PASSES` times.
pub fn snapshot(from: &[Word], to: &[Word]) {
    for (from, to) in from.iter().zip(to) {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    for _ in 1..MAX_PASSES {
        // If the last pass read a store of the writer, the next pass reads all earlier stores of the writer.
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
