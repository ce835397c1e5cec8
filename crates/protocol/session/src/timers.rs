//! The timers that a group's state machine has set. They are equal at all members after the same deliveries.
//!
//! ```text
//! magic "STNTIME" and version (8 bytes) | timers u64 | by rising id: id u64, time u64 | digest of all before u64
//! ```

use std::collections::{BTreeMap, BTreeSet};

use stentor_fabric::SplitMix64;
use stentor_multicast::StateReader;
use thiserror::Error;

use crate::Mutant;
use crate::bytes::u64_at;
use crate::mutant::mutant;

/// Magic word and version.
const MAGIC: [u8; 8] = *b"STNTIME\x01";
/// Number of bytes before the first timer.
const HEAD: usize = 16;
/// Size of a timer, in bytes.
const EACH: usize = 16;

/// Reason why serialized timers were refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[non_exhaustive]
pub enum TimersError {
    /// The bytes are truncated.
    #[error("the serialized timers are truncated")]
    Short,
    /// The bytes are not timers, or have another version.
    #[error("not timers in the version that this process reads")]
    Magic,
    /// The digest does not match.
    #[error("the timers are damaged: their digest is wrong")]
    Digest,
    /// The ids are not ascending.
    #[error("the timers are not in the order of their ids")]
    Order,
}

/// The timers of a group's state machine, each an id with a time.
///
/// At each position of the order: call [`begin`](Timers::begin) with its time, and fire the timers that
/// [`fire`](Timers::fire) returns until it returns `None`. Timers may be set and cleared in between.
///
/// # Invariants
/// - A timer fires once, at the first position whose time is not before its own. The timers of one position fire in the
///   order of (time, id).
/// - While the timers of a position fire, a timer may be set for a time that has been reached. It fires at the same
///   position, after all timers that were due when the position began, in the same order. After
///   [`MOST_AGAIN`](Timers::MOST_AGAIN) such timers, the others fire at the next position. A machine that sets a timer
///   in each call therefore does not stay at one position for ever.
/// - A timer that is moved or cleared before its turn does not fire for its earlier time.
#[derive(Clone, Debug, Default)]
pub struct Timers {
    times: BTreeMap<u64, u64>,
    /// All timers that are not about to fire, as (time, id).
    order: BTreeSet<(u64, u64)>,
    /// Timers that fire at the present position.
    due: BTreeSet<(u64, u64)>,
    /// Time of the present position.
    now: u64,
    /// Number of further timers that may be set at the present position and fire there. `None` until all timers have
    /// fired that were due when the position began.
    again: Option<u32>,
    mutant: Mutant,
}

/// Two values are equal if the same timers are set in both. Values may be compared only between two positions.
impl PartialEq for Timers {
    fn eq(&self, other: &Timers) -> bool {
        self.times == other.times
    }
}

impl Eq for Timers {}

impl Timers {
    /// Largest number of timers that fire at the position at which they are set.
    pub const MOST_AGAIN: u32 = 1000;

    /// Switches a mutant on.
    #[doc(hidden)]
    #[must_use]
    pub fn with_mutant(self, mutant: Mutant) -> Self {
        Timers { mutant, ..self }
    }

    /// Returns the mutant that is switched on.
    #[doc(hidden)]
    #[must_use]
    pub fn mutant(&self) -> Mutant {
        self.mutant
    }

    /// Sets a timer, or moves it if it is already set.
    pub fn set(&mut self, at: u64, timer: u64) {
        self.clear(timer);
        self.times.insert(timer, at);
        self.order.insert((at, timer));
    }

    /// Clears a timer. Returns whether it was set.
    pub fn clear(&mut self, timer: u64) -> bool {
        let Some(at) = self.times.remove(&timer) else { return false };
        if !self.order.remove(&(at, timer)) {
            self.due.remove(&(at, timer));
        }
        true
    }

    /// Returns the earliest time of a timer.
    #[inline]
    #[must_use]
    pub fn earliest(&self) -> Option<u64> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Returns the number of timers that are set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.times.len()
    }

    /// Returns whether no timer is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.times.is_empty()
    }

    /// Begins a position with this time. Returns whether a timer is due.
    #[inline]
    pub fn begin(&mut self, time: u64) -> bool {
        let early = if mutant!(self.mutant, FiresEarly) { self.earliest() } else { None };
        let time = early.map_or(time, |at| at.max(time));
        let is_due = self.earliest().is_some_and(|at| at <= time);
        if is_due {
            (self.now, self.again) = (time, None);
            self.take_due();
        }
        is_due
    }

    /// Returns the timer that fires next at the present position. It is then no longer set.
    #[must_use]
    pub fn fire(&mut self) -> Option<u64> {
        if self.due.is_empty() {
            self.again.get_or_insert(Self::MOST_AGAIN);
            self.take_due();
        }
        match &mut self.again {
            Some(0) => {
                self.order.append(&mut self.due);
                return None;
            }
            Some(left) => *left -= 1,
            None => {}
        }
        let by_id = mutant!(self.mutant, FiresById);
        let first = if by_id { self.due.iter().min_by_key(|(_, timer)| *timer) } else { self.due.first() };
        let (at, timer) = *first?;
        self.due.remove(&(at, timer));
        if !mutant!(self.mutant, FiredKept) {
            self.times.remove(&timer);
        }
        if mutant!(self.mutant, FiresTwice) && self.again.is_none() {
            self.set(at, timer);
        }
        Some(timer)
    }

    fn take_due(&mut self) {
        let later = match self.now.checked_add(1) {
            Some(next) => self.order.split_off(&(next, 0)),
            None => BTreeSet::new(),
        };
        self.due.append(&mut self.order);
        self.order = later;
    }

    /// Appends all timers in serialized form. Must not be called between [`begin`](Timers::begin) and the last
    /// [`fire`](Timers::fire) of a position.
    pub fn write(&self, out: &mut Vec<u8>) {
        let (first, none) = (out.len(), BTreeMap::new());
        let times = if mutant!(self.mutant, TimersLeftOut) { &none } else { &self.times };
        out.extend(MAGIC);
        out.extend((times.len() as u64).to_le_bytes());
        for (timer, at) in times {
            out.extend(timer.to_le_bytes());
            out.extend(at.to_le_bytes());
        }
        let digest = digest(&out[first..]);
        out.extend(digest.to_le_bytes());
    }

    /// Parses timers that [`write`](Timers::write) wrote. Returns them with the bytes that follow.
    ///
    /// # Errors
    /// Returns an error if the bytes are truncated or damaged.
    pub fn read(bytes: &[u8]) -> Result<(Timers, &[u8]), TimersError> {
        let head = bytes.first_chunk().ok_or(TimersError::Short)?;
        let length = Timers::length(head)?;
        let split = usize::try_from(length).ok().and_then(|length| bytes.split_at_checked(length));
        let (whole, rest) = split.ok_or(TimersError::Short)?;
        let (said, sum) = whole.split_at(whole.len() - 8);
        if u64_at(sum, 0) != digest(said) {
            return Err(TimersError::Digest);
        }
        let mut timers = Timers::default();
        for each in said[HEAD..].chunks_exact(EACH) {
            let (timer, at) = (u64_at(each, 0), u64_at(each, 8));
            if timers.times.last_key_value().is_some_and(|(last, _)| *last >= timer) {
                return Err(TimersError::Order);
            }
            timers.set(at, timer);
        }
        Ok((timers, rest))
    }

    /// Reads timers that [`write`](Timers::write) wrote from the beginning of a state, and leaves the rest of the state
    /// unread.
    ///
    /// # Errors
    /// See [`read`](Timers::read).
    pub fn read_from(state: &mut StateReader<'_>) -> Result<Timers, TimersError> {
        let mut head = [0; HEAD];
        if state.read(&mut head) < HEAD {
            return Err(TimersError::Short);
        }
        let length = Timers::length(&head)?;
        // The length is not trusted: memory is allocated only for bytes that exist.
        if length - HEAD as u64 > state.left() {
            return Err(TimersError::Short);
        }
        let mut whole = head.to_vec();
        whole.resize(length as usize, 0);
        state.read(&mut whole[HEAD..]);
        Timers::read(&whole).map(|(timers, _)| timers)
    }

    /// Returns the total size of the timers that begin with this head, in bytes.
    fn length(head: &[u8; HEAD]) -> Result<u64, TimersError> {
        if head[..8] != MAGIC {
            return Err(TimersError::Magic);
        }
        let bytes = u64_at(head, 8).checked_mul(EACH as u64).and_then(|bytes| bytes.checked_add(HEAD as u64 + 8));
        bytes.ok_or(TimersError::Short)
    }
}

fn digest(bytes: &[u8]) -> u64 {
    let words = bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(bytes.len() as u64, |sum, word| SplitMix64::finish(sum.rotate_left(5) ^ word))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the timers that fire at a position with this time, if none is set meanwhile.
    fn fired(timers: &mut Timers, time: u64) -> Vec<u64> {
        if !timers.begin(time) {
            return Vec::new();
        }
        std::iter::from_fn(|| timers.fire()).collect()
    }

    #[test]
    fn timers_fire_once_in_the_order_of_time_and_id() {
        fire_once_in_order(Mutant::None);
    }

    fn fire_once_in_order(mutant: Mutant) {
        let mut timers = Timers::default().with_mutant(mutant);
        for (at, timer) in [(20, 1), (10, 9), (10, 3), (30, 2)] {
            timers.set(at, timer);
        }
        assert_eq!((timers.earliest(), timers.len()), (Some(10), 4));
        assert_eq!(fired(&mut timers, 9), []);
        assert_eq!(fired(&mut timers, 20), [3, 9, 1]);
        assert_eq!(fired(&mut timers, 29), []);
        assert_eq!(fired(&mut timers, 30), [2]);
        assert!(timers.is_empty() && timers.earliest().is_none());
        timers.set(u64::MAX, 7);
        assert_eq!(fired(&mut timers, u64::MAX), [7]);
    }

    /// Writes timers after some of them have fired, and reads them back.
    fn written_timers_are_those_that_are_set(mutant: Mutant) {
        let mut timers = Timers::default().with_mutant(mutant);
        (1..=3).for_each(|timer| timers.set(10 * timer, timer));
        assert_eq!(fired(&mut timers, 10), [1]);
        let mut bytes = Vec::new();
        timers.write(&mut bytes);
        let mut read = Timers::read(&bytes).expect("the snapshot is complete").0;
        assert_eq!(fired(&mut read, 20), [2]);
        assert_eq!(fired(&mut read, 30), [3]);
    }

    #[test]
    fn timers_that_have_fired_are_not_written() {
        written_timers_are_those_that_are_set(Mutant::None);
    }

    /// Each mutant of timers fails a test that passes without it.
    #[cfg(feature = "plants")]
    #[test]
    fn mutants_of_timers_are_found() {
        let found: [(Mutant, fn(Mutant)); 5] = [
            (Mutant::FiresEarly, fire_once_in_order),
            (Mutant::FiresById, fire_once_in_order),
            (Mutant::FiresTwice, fire_once_in_order),
            (Mutant::FiredKept, written_timers_are_those_that_are_set),
            (Mutant::TimersLeftOut, written_timers_are_those_that_are_set),
        ];
        for (mutant, test) in found {
            assert!(std::panic::catch_unwind(|| test(mutant)).is_err(), "{mutant:?} is not found");
        }
    }

    #[test]
    fn moved_or_cleared_timer_does_not_fire_at_its_old_time() {
        let mut timers = Timers::default();
        (1..=4).for_each(|timer| timers.set(10, timer));
        timers.set(15, 1);
        assert!(timers.clear(2) && !timers.clear(2));
        assert!(timers.begin(10));
        assert_eq!(timers.fire(), Some(3));
        // Timers can also be moved while those of a position fire.
        timers.set(11, 4);
        assert_eq!(timers.fire(), None);
        assert_eq!(fired(&mut timers, 20), [4, 1]);
    }

    #[test]
    fn timer_set_for_a_past_time_fires_after_due_timers() {
        let mut timers = Timers::default();
        (5..=6).for_each(|timer| timers.set(10, timer));
        assert!(timers.begin(12));
        assert_eq!(timers.fire(), Some(5));
        timers.set(3, 1);
        timers.set(3, 5);
        timers.set(13, 2);
        assert_eq!(std::iter::from_fn(|| timers.fire()).collect::<Vec<_>>(), [6, 1, 5]);
        assert_eq!(timers.earliest(), Some(13));
    }

    #[test]
    fn endless_timers_are_left_to_the_next_position() {
        let mut timers = Timers::default();
        (0..2).for_each(|timer| timers.set(1, timer));
        for position in 0..3 {
            assert!(timers.begin(5));
            let mut calls = 0;
            while let Some(timer) = timers.fire() {
                timers.set(2, timer);
                calls += 1;
            }
            assert_eq!(calls, 2 + Timers::MOST_AGAIN, "position {position}");
            assert_eq!((timers.len(), timers.earliest()), (2, Some(2)), "the timers are still set");
        }
    }

    #[test]
    fn timers_survive_encoding_and_damage_is_refused() {
        let mut timers = Timers::default();
        for (at, timer) in [(7, u64::MAX), (u64::MAX, 0), (7, 3)] {
            timers.set(at, timer);
        }
        for timers in [timers, Timers::default()] {
            let mut bytes = Vec::new();
            timers.write(&mut bytes);
            for at in 0..bytes.len() {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1;
                assert!(Timers::read(&damaged).is_err(), "byte {at}");
                assert_eq!(Timers::read(&bytes[..at]).err(), Some(TimersError::Short), "cut at {at}");
            }
            bytes.extend(*b"value");
            let (read, rest) = Timers::read(&bytes).expect("the snapshot is complete");
            assert_eq!((&read, rest), (&timers, &b"value"[..]));
            assert_eq!(read.earliest(), timers.earliest());
            let mut chunks = bytes.chunks(7).map(<[u8]>::to_vec).collect();
            let mut state = StateReader::new(&mut chunks);
            assert_eq!(Timers::read_from(&mut state).as_ref(), Ok(&timers));
            assert_eq!(state.left(), 5);
        }
        let mut unordered = MAGIC.to_vec();
        for word in [2, 9, 1, 4, 1_u64] {
            unordered.extend(word.to_le_bytes());
        }
        unordered.extend(digest(&unordered.clone()).to_le_bytes());
        assert_eq!(Timers::read(&unordered).err(), Some(TimersError::Order));
        let huge = [&MAGIC[..], &u64::MAX.to_le_bytes(), &[0; 64]].concat();
        assert_eq!(Timers::read(&huge).err(), Some(TimersError::Short));
    }
}
