//! A short record that is sealed once for several rings.

use stentor_fabric::memory::LINE_WORDS;
use stentor_fabric::seal::HEADER_WORDS;

/// The record that was sealed last, if it is a short one: what goes to several peers alike, each in a ring of its own, is
/// sealed once as long as their rings are in the same lap.
#[derive(Debug, Default)]
pub(super) struct Sealed {
    pub(super) record: [u64; LINE_WORDS],
    /// Words of its payload.
    pub(super) words: usize,
}

impl Sealed {
    /// Takes a payload of at most a line without its header. Whether it is the one that was sealed.
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
