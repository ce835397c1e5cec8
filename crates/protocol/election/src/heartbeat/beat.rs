//! What a process lets the others read.

use stentor_fabric::ProcessId;
use thiserror::Error;

/// Whether a claim is an appointment or leadership.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Kind {
    /// The old leader has resigned in favour of the process, which has not come forward yet.
    Nominated,
    /// The process leads.
    Settled,
}

/// Who leads, as far as a process knows: one word, so that it is never read half. Claims compare by epoch, then kind,
/// then process; the larger one holds.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Claim {
    /// The number of the reign, from 1.
    pub epoch: u64,
    /// What kind of claim it is.
    pub kind: Kind,
    /// Whom it names.
    pub process: ProcessId,
}

impl Claim {
    /// Epochs are below this.
    pub const EPOCH_LIMIT: u64 = 1 << 46;

    /// As the others read it: the epoch in the upper 46 bits, the kind in two (1 or 2), the process in 16. Never 0 and
    /// never all ones.
    #[must_use]
    pub fn to_word(self) -> u64 {
        let kind = match self.kind {
            Kind::Nominated => 1,
            Kind::Settled => 2,
        };
        self.epoch << 18 | kind << 16 | u64::from(self.process.0)
    }

    /// As it was read. Nothing if no claim looks like that; 0 is "nobody leads" and nothing too.
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

    /// How a doubt of this claim is written. Never 0.
    pub(crate) fn doubt(claim: Option<Claim>) -> u64 {
        !claim.map_or(0, Claim::to_word)
    }
}

/// The words that a process writes into its own memory and that the others read one-sided, all of them within one cache
/// line.
///
/// Each word is read whole; the six together need not be of one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beat {
    /// From 1, larger after every restart; 0 in the memory of a process that has not begun.
    pub incarnation: u64,
    /// Any other value than before is a sign of life.
    pub counter: u64,
    /// [`Claim::to_word`], or 0.
    pub claim: u64,
    /// The complement of the claim that the process doubts, or 0.
    pub doubt: u64,
    /// 1 if it would lead, 0 if not.
    pub stands: u64,
    /// The members that the process sees alive over working links, itself included: bit n is the n-th of
    /// [`HeartbeatConfig::members`](super::HeartbeatConfig::members). Second format of beats; the first one ended before
    /// this word. All processes of a cluster run one version.
    pub sees: u64,
}

impl Beat {
    /// Words of a beat.
    pub const WORDS: usize = 6;
    /// Its size in bytes.
    pub const BYTES: usize = 8 * Self::WORDS;

    /// In the order in which they lie in memory.
    #[must_use]
    pub fn to_words(self) -> [u64; Self::WORDS] {
        [self.incarnation, self.counter, self.claim, self.doubt, self.stands, self.sees]
    }

    /// From memory.
    #[must_use]
    pub fn from_words([incarnation, counter, claim, doubt, stands, sees]: [u64; Self::WORDS]) -> Self {
        Beat { incarnation, counter, claim, doubt, stands, sees }
    }
}

/// What is wrong with an observation.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum BeatError {
    /// It is of somebody who is not another member of the group.
    #[error("{process} is not another member of this group: observe only its peers")]
    NotAPeer {
        /// Whose it is.
        process: ProcessId,
    },
    /// The claim names nobody of the group or is none. The rest of the beat was used.
    #[error(
        "the claim {word:#018x} read at {process} names no member of this group: do both run the same version and cluster?"
    )]
    Claim {
        /// Where it was read.
        process: ProcessId,
        /// The word.
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
    fn what_is_no_claim_is_refused() {
        for word in [0, u64::MAX, 3 << 16 | 1 << 18, 1 << 18, 2 << 16] {
            assert_eq!(Claim::from_word(word), None, "{word:#x}");
        }
    }
}
