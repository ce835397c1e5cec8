//! A log of the writes, deliveries and submissions of one process in a phase, with times.

use std::cell::RefCell;

use stentor_fabric::memory::{Ordering, Word};

use super::super::super::clock::now;

/// Number of words of an entry.
pub(super) const ENTRY_WORDS: usize = 2;
const SUBMITTED: u64 = u64::MAX;
const DELIVERED: u64 = u64::MAX - 1;

/// An event at a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mark {
    /// The client is about to submit a message. The message begins with this event.
    Submitted,
    /// The writes for the process with this index have left.
    Wrote(usize),
    /// The process delivered the message.
    Delivered,
}

/// An event and its time, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub(super) at: u64,
    pub(super) mark: Mark,
}

/// A log of bounded length. It never allocates after its creation.
#[derive(Debug)]
pub(super) struct Log {
    entries: RefCell<Vec<Entry>>,
    most: usize,
}

impl Log {
    /// Creates an empty log with room for `most` entries, and touches its memory.
    pub(super) fn new(most: usize) -> Self {
        let mut entries = vec![Entry { at: 0, mark: Mark::Submitted }; most];
        entries.clear();
        Log { entries: RefCell::new(entries), most }
    }

    /// Removes all entries.
    pub(super) fn clear(&self) {
        self.entries.borrow_mut().clear();
    }

    /// Returns the number of entries.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.entries.borrow().len()
    }

    /// Returns whether entries may be missing.
    pub(super) fn is_full(&self) -> bool {
        self.len() == self.most
    }

    /// Appends marks with the present time.
    #[inline]
    pub(super) fn mark(&self, marks: impl IntoIterator<Item = Mark>) {
        let (at, mut entries) = (now(), self.entries.borrow_mut());
        for mark in marks {
            if entries.len() < self.most {
                entries.push(Entry { at, mark });
            }
        }
    }

    /// Stores all entries where the conductor finds them.
    pub(super) fn store(&self, words: &[Word]) {
        for (words, Entry { at, mark }) in words.chunks_exact(ENTRY_WORDS).zip(self.entries.borrow().iter()) {
            let mark = match mark {
                Mark::Submitted => SUBMITTED,
                Mark::Delivered => DELIVERED,
                Mark::Wrote(peer) => *peer as u64,
            };
            words[0].store(*at, Ordering::Relaxed);
            words[1].store(mark, Ordering::Relaxed);
        }
    }
}

/// Loads the first `count` entries that a process stored.
pub(super) fn load(words: &[Word], count: usize) -> Vec<Entry> {
    let entry = |words: &[Word]| Entry {
        at: words[0].load(Ordering::Relaxed),
        mark: match words[1].load(Ordering::Relaxed) {
            SUBMITTED => Mark::Submitted,
            DELIVERED => Mark::Delivered,
            peer => Mark::Wrote(peer as usize),
        },
    };
    words.chunks_exact(ENTRY_WORDS).take(count).map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_round_trip_and_a_full_log_drops_more() {
        let log = Log::new(4);
        log.mark([Mark::Submitted]);
        log.mark([Mark::Wrote(3), Mark::Wrote(5)]);
        assert!(!log.is_full());
        log.mark([Mark::Delivered, Mark::Wrote(1)]);
        assert!(log.is_full());
        let words: Vec<Word> = (0..8).map(|_| Word::new(0)).collect();
        log.store(&words);
        let entries = load(&words, log.len());
        let marks: Vec<_> = entries.iter().map(|entry| entry.mark).collect();
        assert_eq!(marks, [Mark::Submitted, Mark::Wrote(3), Mark::Wrote(5), Mark::Delivered]);
        assert!(entries.is_sorted_by_key(|entry| entry.at) && entries[1].at == entries[2].at, "{entries:?}");
        log.clear();
        assert_eq!(log.len(), 0);
    }
}
