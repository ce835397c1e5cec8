//! A short record that is sealed once for several rings.

use stentor_fabric::memory::LINE_WORDS;
use stentor_fabric::seal::HEADER_WORDS;

/// The record that was sealed last, if it is short. A record that several peers get, each in its own ring, is sealed
/// once as long as these rings are in the same lap.
#[derive(Debug, Default)]
pub(super) struct Sealed {
    pub(super) record: [u64; LINE_WORDS],
    /// Length of the record's payload, in words.
    pub(super) words: usize,
}

impl Sealed {
    /// Sets the payload, which fits one cache line with its header. Returns whether it equals the one that was sealed
    /// last.
    #[inline]
    pub(super) fn take(&mut self, payload: &[u64]) -> bool {
        let kept = &mut self.record[HEADER_WORDS..];
        if self.words == payload.len() && kept.iter().zip(payload).all(|(kept, word)| kept == word) {
            return true;
        }
        self.words = payload.len();
        for (kept, word) in kept.iter_mut().zip(payload) {
            *kept = *word;
        }
        false
    }
}
