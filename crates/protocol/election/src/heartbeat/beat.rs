//! The words that a process publishes for the other members to read.

use stentor_fabric::ProcessId;
use thiserror::Error;

/// Kind of a claim: a nomination or leadership.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// The previous leader has resigned in favour of the process, which has not claimed leadership yet.
    Nominated,
    /// The process leads.
    Settled,
}

/// A statement about who leads, in one word, so that it is never read torn. Claims compare by epoch, then kind, then
/// process. The larger one is valid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Claim {
    /// Epoch, from 1.
    pub epoch: u64,
    /// Kind of the claim.
    pub kind: Kind,
    /// The process that the claim names.
    pub process: ProcessId,
}

impl Claim {
    /// All epochs are below this one.
    pub const EPOCH_LIMIT: u64 = 1 << 46;

    /// Returns the claim as the word that members read: the epoch in the upper 46 bits, the kind in two (1 or 2), the
    /// process in 16. The word is never 0 and never all ones.
    #[must_use]
    pub fn to_word(self) -> u64 {
        let kind = match self.kind {
            Kind::Nominated => 1,
            Kind::Settled => 2,
        };
        self.epoch << 18 | kind << 16 | u64::from(self.process.0)
    }

    /// Parses a word that was read. Returns `None` for a word that encodes no claim, and for 0, which means that there
    /// is no leader.
    #[must_use]
    pub fn from_word(word: u64) -> Option<Self> {
        let kind = match word >> 16 & 3 {
            1 => Kind::Nominated,
            2 => Kind::Settled,
            _ => return None,
        };
        let epoch = word >> 18;
        (epoch != 0).then_some(Claim { epoch, kind, process: ProcessId(word as u16) })
    }

    /// Returns the word that expresses doubt of this claim. It is never 0.
    pub(crate) fn doubt(claim: Option<Claim>) -> u64 {
        !claim.map_or(0, Claim::to_word)
    }
}

/// The words that a process writes into its memory and that the other members read one-sided. All of them lie in one
/// cache line.
///
/// Each word is read atomically. The six words together need not be from the same moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beat {
    /// Life of the process, from 1, larger after every restart. It is 0 in the memory of a process that has not
    /// started.
    pub incarnation: u64,
    /// Counter of polls. Any change of it is a sign of life.
    pub counter: u64,
    /// Largest known claim as [`Claim::to_word`], or 0.
    pub claim: u64,
    /// Complement of the claim that the process doubts, or 0.
    pub doubt: u64,
    /// 1 if the process is willing to lead, otherwise 0.
    pub stands: u64,
    /// Mask of the members that the process sees alive over working links, itself included. Bit n is the n-th of
    /// [`HeartbeatConfig::members`](super::HeartbeatConfig::members). All processes of a cluster run one version, so
    /// every member publishes this word.
    pub sees: u64,
}

impl Beat {
    /// Number of words of a beat.
    pub const WORDS: usize = 6;
    /// Size of a beat, in bytes.
    pub const BYTES: usize = 8 * Self::WORDS;

    /// Returns the words in their order in memory.
    #[must_use]
    pub fn to_words(self) -> [u64; Self::WORDS] {
        [self.incarnation, self.counter, self.claim, self.doubt, self.stands, self.sees]
    }

    /// Returns the beat with these words from memory.
    #[must_use]
    pub fn from_words([incarnation, counter, claim, doubt, stands, sees]: [u64; Self::WORDS]) -> Self {
        Beat { incarnation, counter, claim, doubt, stands, sees }
    }
}

/// Reason why a reading was refused.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum BeatError {
    /// The reading is from a process that is not another member of the group.
    #[error("{process} is not another member of this group: observe only its peers")]
    NotAPeer {
        /// The process from which the beat was read.
        process: ProcessId,
    },
    /// The claim is malformed or names a process outside the group. The rest of the beat was used.
    #[error(
        "the claim {word:#018x} read at {process} names no member of this group: do both run the same version and cluster?"
    )]
    Claim {
        /// The process from which the beat was read.
        process: ProcessId,
        /// The word that was read as a claim.
        word: u64,
    },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_compare_as_their_words_do() {
        let claim = |epoch, kind, process| Claim { epoch, kind, process: ProcessId(process) };
        let rising = [
            claim(1, Kind::Nominated, 9),
            claim(1, Kind::Settled, 0),
            claim(1, Kind::Settled, u16::MAX),
            claim(2, Kind::Nominated, 0),
            claim(Claim::EPOCH_LIMIT - 1, Kind::Settled, u16::MAX),
        ];
        assert!(rising.is_sorted() && rising.iter().map(|claim| claim.to_word()).is_sorted());
        for claim in rising {
            assert_eq!(Claim::from_word(claim.to_word()), Some(claim));
            assert_ne!(Claim::doubt(Some(claim)), 0);
        }
        assert_ne!(Claim::doubt(None), 0);
    }

    #[test]
    fn malformed_claims_are_refused() {
        for word in [0, u64::MAX, 3 << 16 | 1 << 18, 1 << 18, 2 << 16] {
            assert_eq!(Claim::from_word(word), None, "{word:#x}");
        }
    }
}
