//! What the two ends of a connection say first, by SEND.
//!
//! On every connection of the main queue pair each end sends one *hello*: its incarnation, and where it goes on writing
//! its ring at the other end. With the incarnation comes the seal of everything that this process writes, so nothing that
//! an earlier process of the same id wrote validates, wherever it lies; a process that lives on goes on at its own
//! position, at and behind which it never wrote in that lap, or writes the same again. Nothing is zeroed, and no late write is
//! waited for but where writes are not ordered and the connection stays (`outbound.rs`).
//!
//! | word | content |
//! |---|---|
//! | 0 | what (8 bits), format version (8), 0 (16), `STEN` (32) |
//! | 1 | check of the cluster's salt |
//! | 2 | incarnation of the sender |
//! | 3 | ring position at which the sender goes on |
//! | 4 | generation: the sender's number for this start of that ring; credits name it |
//! | 5 | of a client: 1 if it has begun to multicast |
//! | 6 | of a client: its sequences are above this; 0: it does not know yet |
//! | 7 | 0 |

use stentor_fabric::memory::{Ordering, Word};
use stentor_fabric::seal::Seal;
use stentor_fabric::{Plant, ProcessId};

use crate::ids;
use crate::item::VERSION;

/// Words of a greeting: one receive.
pub(super) const GREETING_WORDS: usize = 8;
/// Bytes of a greeting.
pub(super) const GREETING_BYTES: usize = 8 * GREETING_WORDS;

const MAGIC: u64 = 0x4e45_5453;
/// No ring gets there by counting.
const END_OF_POSITIONS: u64 = 1 << 62;

/// What a greeting is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum About {
    /// The connection, and the ring that the sender writes through it.
    Hello = 1,
    /// The sender's stream.
    Stream = 2,
    /// A member does not let a client go on: another process has greeted in its place.
    Superseded = 3,
}

/// Where a ring goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Start {
    /// What lies before this is given up.
    pub(super) position: u64,
    /// The writer's number for this start.
    pub(super) generation: u64,
}

/// What one end says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Greeting {
    pub(super) about: About,
    pub(super) incarnation: u64,
    pub(super) start: Start,
    /// A client that has multicast, or may at any time.
    pub(super) begun: bool,
    /// Of a client: the beginning of its generation, if it knows that already.
    pub(super) first: u64,
}

impl Greeting {
    /// Of a client: the generation in which it multicasts, if it knows.
    pub(super) fn generation(&self) -> Option<u64> {
        (self.begun || self.first > 0).then(|| ids::generation(self.first))
    }

    /// Whether this client had begun, and the processes with generations below `over` are gone: on a fabric that does not lock
    /// places two may live, and who was cut off may have been given up. What it left behind may be void by now.
    pub(super) fn is_superseded(&self, over: u64) -> bool {
        self.begun && ids::generation(self.first) < over
    }
}

/// Makes the seals of a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seals {
    salt: u64,
    plant: Plant,
}

impl Seals {
    pub(super) fn new(salt: u64, plant: Plant) -> Self {
        Seals { salt, plant }
    }

    /// For what this incarnation of a process writes.
    pub(super) fn of(&self, process: ProcessId, incarnation: u64) -> Seal {
        Seal::new(process, mix(self.salt ^ mix(incarnation))).with_plant(self.plant)
    }

    /// Tells clusters apart, and does not tell the salt.
    fn check(&self) -> u64 {
        mix(mix(self.salt) ^ MAGIC)
    }

    pub(super) fn encode(&self, greeting: &Greeting) -> [u64; GREETING_WORDS] {
        let Greeting { about, incarnation, start, begun, first } = *greeting;
        let head = about as u64 | u64::from(VERSION) << 8 | MAGIC << 32;
        [head, self.check(), incarnation, start.position, start.generation, u64::from(begun), first, 0]
    }

    /// `None`: another format version, another cluster, or not a greeting.
    pub(super) fn decode(&self, words: &[Word]) -> Option<Greeting> {
        let mut greeting = [0; GREETING_WORDS];
        for (to, from) in greeting.iter_mut().zip(words) {
            *to = from.load(Ordering::Relaxed);
        }
        let [head, check, incarnation, position, generation, begun, first, rest @ ..] = greeting;
        let about = match head & 0xff {
            1 => About::Hello,
            2 => About::Stream,
            3 => About::Superseded,
            _ => return None,
        };
        let known = head >> 8 == u64::from(VERSION) | MAGIC << 24 && check == self.check() && rest == [0];
        let possible = position < END_OF_POSITIONS && begun <= 1 && ids::is_nameless(first);
        let start = Start { position, generation };
        (known && possible).then_some(Greeting { about, incarnation, start, begun: begun == 1, first })
    }
}

/// What a process would say and how it would seal, for tests that write what no process of ours writes.
#[doc(hidden)]
#[must_use]
pub fn forged_hello(process: ProcessId, incarnation: u64, salt: u64) -> ([u64; GREETING_WORDS], Seal) {
    let seals = Seals::new(salt, Plant::None);
    let start = Start { position: 0, generation: 1 };
    (
        seals.encode(&Greeting { about: About::Hello, incarnation, start, begun: false, first: 0 }),
        seals.of(process, incarnation),
    )
}

/// Spreads a word's bits over the whole word (the finalizer of `SplitMix64`).
fn mix(word: u64) -> u64 {
    let word = word.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(words: [u64; GREETING_WORDS]) -> Vec<Word> {
        words.into_iter().map(Word::new).collect()
    }

    #[test]
    fn a_process_that_had_begun_does_not_come_back_after_it_was_given_up() {
        let start = Start { position: 64, generation: 1 };
        let hello =
            Greeting { about: About::Hello, incarnation: 9, start, begun: true, first: ids::first_of_generation(4) };
        assert!(hello.is_superseded(5) && !hello.is_superseded(4) && !hello.is_superseded(0));
        let new = Greeting { begun: false, first: 0, ..hello };
        assert!(!new.is_superseded(5), "it has not begun, and is told where to");
        let told = Greeting { begun: false, ..hello };
        assert_eq!([hello, new, told].map(|greeting| greeting.generation()), [Some(4), None, Some(4)]);
    }

    #[test]
    fn a_greeting_comes_back_and_any_other_cluster_version_or_garbage_is_refused() {
        let seals = Seals::new(7, Plant::None);
        let start = Start { position: 640, generation: 3 };
        let greeting = Greeting { about: About::Stream, incarnation: 9, start, begun: true, first: 3 << 40 };
        let sound = seals.encode(&greeting);
        assert_eq!(seals.decode(&words(sound)), Some(greeting));
        assert_eq!(Seals::new(8, Plant::None).decode(&words(sound)), None);
        for (word, value) in
            [(0, sound[0] ^ 4), (0, sound[0] ^ 1 << 8), (0, sound[0] ^ 1 << 60), (3, 1 << 62), (5, 2), (6, 1), (7, 1)]
        {
            let mut broken = sound;
            broken[word] = value;
            assert_eq!(seals.decode(&words(broken)), None, "word {word}");
        }
    }

    #[test]
    fn incarnations_of_a_process_seal_differently() {
        let seals = Seals::new(7, Plant::None);
        assert_ne!(seals.of(ProcessId(1), 1), seals.of(ProcessId(1), 2));
        assert_eq!(seals.of(ProcessId(1), 1), seals.of(ProcessId(1), 1));
    }
}
