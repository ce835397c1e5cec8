//! The hello: the first message of each end of a connection, by SEND.
//!
//! On every connection of the main queue pair each end first sends a *hello* with its life and the position at which it
//! resumes writing its ring at the other end. A client sends further ones to restart its ring. A member sends further
//! ones when incarnations have changed, and to reject a superseded client. The life determines the seal of everything
//! that this process writes. Records of an earlier process with the same id therefore fail validation, wherever they
//! lie. A process that keeps running resumes at the position in its hello: at and after that position it has written
//! nothing in that lap, or writes the same bytes again. So rings are never zeroed. The writer waits for its late writes
//! if the fabric does not order writes and the connection stays up, and for late copies of a fan-out set
//! (`outbound.rs`).
//!
//! | word | content |
//! |---|---|
//! | 0 | kind (8 bits), format version (8), 0 (16), `STEN` (32) |
//! | 1 | check of the cluster's salt |
//! | 2 | life of the sender |
//! | 3 | ring position at which the sender resumes; from a member to a client: in the reply ring |
//! | 4 | the sender's generation number of this ring start; credits name it |
//! | 5 | from a client: 1 if it may have multicast to the receiver's group |
//! | 6 | from a client: its generation (32 bits) and lower bound (32), see below |
//! | 7 | from a member: its group's incarnation, number (32) and tag (32) |
//! | 8 | the largest known incarnation of the receiver's group, number (32) and tag (32) |
//! | 9 | from a member: its wall clock in nanoseconds since 1970, or 0 |
//! | 10, 11 | from a client: where its queries resume, position and generation |
//! | 12… | 0, reserved |
//!
//! Word 6 contains the generation plus 1, or 0 if no generation was reported to the client, and the smallest generation
//! that it may have. Word 7 is 0 if the member has no state. Words 12 and above are reserved, for example for the
//! configuration's fingerprint, the format in force and the group of a hosted member.

use stentor_fabric::memory::{Ordering, Word};
use stentor_fabric::seal::Seal;
use stentor_fabric::{Mutant, ProcessId};

use super::seals::Seals;
use crate::item::VERSION;
use crate::{Incarnation, ids};

/// Words of a hello. It fits one receive.
pub(super) const HELLO_WORDS: usize = 16;
/// Bytes of a hello.
pub(super) const HELLO_BYTES: usize = 8 * HELLO_WORDS;

const MAGIC: u64 = 0x4e45_5453;
/// A position that no ring reaches by counting.
const END_OF_POSITIONS: u64 = 1 << 62;

/// The purpose of a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HelloKind {
    /// Starts the connection, and the ring that the sender writes through it.
    Connection = 1,
    /// Unused: a stream starts with the state that its leader sends. Receivers ignore hellos of this kind.
    Stream = 2,
    /// A member rejects a client process, because its generation has ended at the member.
    Superseded = 3,
}

/// The point at which a ring resumes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Start {
    /// Ring position. All records before it are dropped.
    pub(super) position: u64,
    /// The writer's number of this start.
    pub(super) generation: u64,
}

impl Start {
    /// The start of a ring that is not written.
    pub(super) const NONE: Start = Start { position: 0, generation: 0 };
}

/// The content of a hello.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub(super) kind: HelloKind,
    pub(super) life: u64,
    pub(super) start: Start,
    /// `true` if the client has multicast to the group, or may at any time.
    pub(super) begun: bool,
    /// Generation of the client that sends the hello, if a member reported one to the client.
    pub(super) generation: Option<u64>,
    /// Smallest generation that the client that sends the hello may have, as far as members reported it.
    pub(super) above: u64,
    /// Incarnation of the group of the member that sends the hello.
    pub(super) own: Incarnation,
    /// The largest incarnation of the receiver's group that the sender remembers.
    pub(super) yours: Incarnation,
    /// Wall clock of the member that sends the hello, in nanoseconds since 1970; 0 if the member has none.
    pub(super) clock: u64,
    /// Point at which the queries of the client that sends the hello resume.
    pub(super) queries: Start,
}

impl Hello {
    /// Returns a hello that names only where a ring resumes.
    pub(super) fn new(kind: HelloKind, life: u64, start: Start) -> Self {
        let none = Incarnation::NONE;
        Hello {
            kind,
            life,
            start,
            begun: false,
            generation: None,
            above: 0,
            own: none,
            yours: none,
            clock: 0,
            queries: Start::NONE,
        }
    }

    /// Returns whether this client process has begun and its generation is below `over`, which means that it has ended.
    /// On a fabric that does not lock client ids, two processes with one client id may run at the same time. A
    /// partitioned process may have been given up, and its messages may have become no-ops.
    pub(super) fn is_superseded(&self, over: u64) -> bool {
        self.begun && self.generation.is_some_and(|generation| generation < over)
    }

    /// Returns the words of the hello, as a process with these seals sends them.
    pub(super) fn encode(&self, seals: &Seals) -> [u64; HELLO_WORDS] {
        let Hello { kind, life, start, begun, generation, above, own, yours, clock, queries } = *self;
        let head = kind as u64 | u64::from(VERSION) << 8 | MAGIC << 32;
        let begun = u64::from(begun);
        let first = generation.map_or(0, |generation| generation + 1) | above << 32;
        let (own, yours) = (own.to_word(), yours.to_word());
        let check = seals.check(MAGIC);
        let Start { position, generation } = start;
        let asks = [queries.position, queries.generation];
        [head, check, life, position, generation, begun, first, own, yours, clock, asks[0], asks[1], 0, 0, 0, 0]
    }

    /// Decodes a hello. Returns `None` for another format version, another cluster, or words that are no hello.
    pub(super) fn decode(seals: &Seals, words: &[Word]) -> Option<Hello> {
        let mut hello = [0; HELLO_WORDS];
        for (to, from) in hello.iter_mut().zip(words) {
            *to = from.load(Ordering::Relaxed);
        }
        let [head, check, life, position, generation, begun, first, own, yours, clock, asks, asked, rest @ ..] = hello;
        let kind = match head & 0xff {
            1 => HelloKind::Connection,
            2 => HelloKind::Stream,
            3 => HelloKind::Superseded,
            _ => return None,
        };
        let known = head >> 8 == u64::from(VERSION) | MAGIC << 24 && check == seals.check(MAGIC) && rest == [0; 4];
        let (told, above) = (first & u64::from(u32::MAX), first >> 32);
        let possible =
            position.max(asks) < END_OF_POSITIONS && begun <= 1 && told <= ids::GENERATIONS && above < ids::GENERATIONS;
        let start = Start { position, generation };
        let (own, yours) = (Incarnation::from_word(own), Incarnation::from_word(yours));
        let possible = possible && own.is_possible() && yours.is_possible();
        let generation = told.checked_sub(1);
        let queries = Start { position: asks, generation: asked };
        let hello = Hello { kind, life, start, begun: begun == 1, generation, above, own, yours, clock, queries };
        (known && possible).then_some(hello)
    }
}

/// Returns the hello and the seal of a process that takes over a client id from its first process. Tests use them to
/// write records that no correct process writes.
#[doc(hidden)]
#[must_use]
pub fn forged_hello(process: ProcessId, life: u64, salt: u64) -> ([u64; HELLO_WORDS], Seal) {
    let seals = Seals::new(salt, Mutant::None);
    let start = Start { position: 0, generation: 1 };
    let hello = Hello { above: 1, ..Hello::new(HelloKind::Connection, life, start) };
    (hello.encode(&seals), seals.of(process, life))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: [u64; HELLO_WORDS]) -> Vec<Word> {
        words.into_iter().map(Word::new).collect()
    }

    #[test]
    fn process_that_had_begun_is_superseded_once_given_up() {
        let start = Start { position: 64, generation: 1 };
        let hello = Hello { begun: true, generation: Some(4), ..Hello::new(HelloKind::Connection, 9, start) };
        assert!(hello.is_superseded(5) && !hello.is_superseded(4) && !hello.is_superseded(0));
        let new = Hello { begun: false, generation: None, ..hello };
        assert!(!new.is_superseded(5), "a process that has not begun gets a new first slot");
    }

    #[test]
    fn hello_round_trips_and_foreign_or_malformed_ones_are_refused() {
        let seals = Seals::new(7, Mutant::None);
        let start = Start { position: 640, generation: 3 };
        let (own, yours) = (Incarnation { number: 2, tag: 5 }, Incarnation { number: 1, tag: u32::MAX });
        let hello = Hello {
            kind: HelloKind::Stream,
            life: 9,
            start,
            begun: true,
            generation: Some(0),
            above: 3,
            own,
            yours,
            clock: 8,
            queries: Start { position: 64, generation: 2 },
        };
        let sound = hello.encode(&seals);
        assert_eq!(Hello::decode(&seals, &words(sound)), Some(hello));
        assert_eq!(Hello::decode(&Seals::new(8, Mutant::None), &words(sound)), None);
        for (word, value) in [
            (0, sound[0] ^ 4),
            (0, sound[0] ^ 1 << 8),
            (0, sound[0] ^ 1 << 60),
            (3, 1 << 62),
            (5, 2),
            (6, ids::GENERATIONS + 1),
            (6, ids::GENERATIONS << 32),
            (7, 1 << 16),
            (8, 7 << 32),
            (10, 1 << 62),
            (12, 1),
            (15, 1),
        ] {
            let mut broken = sound;
            broken[word] = value;
            assert_eq!(Hello::decode(&seals, &words(broken)), None, "word {word}");
        }
    }

    #[test]
    fn lives_of_a_process_have_different_seals() {
        let seals = Seals::new(7, Mutant::None);
        assert_ne!(seals.of(ProcessId(1), 1), seals.of(ProcessId(1), 2));
        assert_eq!(seals.of(ProcessId(1), 1), seals.of(ProcessId(1), 1));
    }
}
