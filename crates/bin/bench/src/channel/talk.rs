//! Messages of a channel.

use std::hint::black_box;

use stentor_channel::{Config, Endpoint, EndpointConfig, Handle, Notice};
use stentor_fabric::memory::{Ordering, WORD, Word};
use stentor_fabric::{Fabric, ProcessId, Purpose, RegionId, RegionSpec};
use stentor_support::Failure;

use super::super::plain::Exchange;
use super::LARGE;

/// Number of turns between two calls that handle the fabric's events. These turns take from some hundred microseconds
/// to a few milliseconds. The fabric requires the call at intervals of that length.
const HOUSEKEEP_TURNS: u32 = 4096;

/// Region from which messages are sent in place.
const MESSAGES: Purpose = Purpose(1);

/// Returns the failure of a call to the fabric or the channel.
pub(super) fn refused(error: impl std::error::Error + 'static) -> Failure {
    Failure::refused(&error, "bench channel", "run `stentor doctor`; if it finds nothing, report this as a bug")
}

/// Value of each word of every message.
const CONTENT: u64 = 0x0707_0707_0707_0707;

/// The way in which the receiver reads messages. Unless messages are copied, they are also sent from registered memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reading {
    /// The reader copies the message into a private buffer.
    Copy,
    /// The reader gets the location of the message and loads nothing.
    Place,
    /// The reader loads and checks every byte of the message in place.
    EveryByte,
}

/// Number of words loaded at a time, as in a fast copy.
const PIECE: usize = 128;

/// Returns the sum of all words. They are loaded in pieces, because the processor prefetches the cache lines of a piece
/// but not those of single atomic loads.
#[inline]
fn sum(words: &[Word]) -> u64 {
    let mut piece = [[0; WORD]; PIECE];
    let mut all = 0_u64;
    for words in words.chunks(PIECE) {
        let loaded = &mut piece[..words.len()];
        stentor_atomic_copy::load(words, loaded);
        all = loaded.iter().fold(all, |all, word| all.wrapping_add(u64::from_ne_bytes(*word)));
    }
    all
}

/// One end of the only connection of its endpoint.
pub(super) struct Talk<F: Fabric> {
    endpoint: Endpoint<F>,
    handle: Handle,
    is_open: bool,
    turns: u32,
    writing: Vec<u8>,
    /// Region from which messages are sent, unless they are copied.
    region: Option<RegionId>,
    reading: Vec<u8>,
    every_byte: bool,
}

impl<F: Fabric> Talk<F> {
    pub(super) fn new(mut fabric: F, channel: Config, how: Reading) -> Result<Self, Failure> {
        let me = fabric.me();
        let peer = ProcessId(1 - me.0);
        let spec = RegionSpec { purpose: MESSAGES, writer: me, bytes: LARGE as u64 };
        let region = if how == Reading::Copy { None } else { Some(fabric.register(spec).map_err(refused)?) };
        for word in region.into_iter().flat_map(|region| fabric.memory(region)) {
            word.store(CONTENT, Ordering::Relaxed);
        }
        let config = EndpointConfig { connections: 1, ..EndpointConfig::new(channel) };
        let mut endpoint = Endpoint::new(fabric, config, &[peer]).map_err(refused)?;
        let handle = endpoint.open(peer, 0).map_err(refused)?;
        let writing = vec![7; LARGE];
        let reading = Vec::with_capacity(LARGE);
        let every_byte = how == Reading::EveryByte;
        Ok(Talk { endpoint, handle, is_open: false, turns: 0, writing, region, reading, every_byte })
    }

    #[inline]
    pub(super) fn turn(&mut self) -> Result<bool, Failure> {
        self.turns = self.turns.wrapping_add(1);
        self.endpoint.step();
        if !self.is_open || self.turns.is_multiple_of(HOUSEKEEP_TURNS) {
            self.endpoint.housekeep();
        }
        while let Some((_, notice)) = self.endpoint.next_notice() {
            match notice {
                Notice::Opened => self.is_open = true,
                Notice::Written(_) => {}
                Notice::Failed(error) => return Err(refused(error)),
                Notice::Closed => return Err(Failure::run("it closed", "bench channel", "report this as a bug")),
            }
        }
        Ok(self.is_open)
    }

    /// Passes as much of the message to the channel as fits now. Returns whether that is all of it.
    #[inline]
    fn hand_over(&mut self, bytes: usize) -> bool {
        let all = match self.region {
            Some(region) => self.endpoint.hand_over_registered(self.handle, region, 0, bytes as u32),
            None => self.endpoint.hand_over(self.handle, &self.writing[..bytes]),
        };
        all.expect("the message that was begun, in its region")
    }

    /// Returns the exchange of messages of `bytes` bytes.
    pub(super) fn exchange(&mut self, bytes: usize) -> Messages<'_, F> {
        Messages { talk: self, bytes }
    }
}

/// Messages of one size.
pub(super) struct Messages<'a, F: Fabric> {
    talk: &'a mut Talk<F>,
    bytes: usize,
}

impl<F: Fabric> Exchange for Messages<'_, F> {
    #[inline]
    fn send(&mut self, _: u64) -> Result<(), Failure> {
        self.talk.endpoint.begin(self.talk.handle, self.bytes as u64).map_err(refused)?;
        while !self.talk.hand_over(self.bytes) {
            self.talk.turn()?;
        }
        self.talk.endpoint.fabric_mut().flush();
        Ok(())
    }

    #[inline]
    fn receive(&mut self, _: u64) -> Result<(), Failure> {
        self.talk.reading.clear();
        let (mut read, mut content) = (0, 0_u64);
        loop {
            let Talk { endpoint, handle, region, reading, every_byte, .. } = &mut *self.talk;
            let whole = if region.is_some() {
                endpoint.read_in_place(*handle, |memory, bytes| {
                    black_box(memory);
                    if *every_byte {
                        content = content.wrapping_add(sum(memory));
                    }
                    read += bytes as usize;
                })
            } else {
                let whole = endpoint.read(*handle, reading);
                read = black_box(&*reading).len();
                whole
            };
            if whole {
                break;
            }
            self.talk.turn()?;
        }
        // Messages consist of whole words, and so do their pieces.
        if self.talk.every_byte && content != CONTENT.wrapping_mul((read / WORD) as u64) {
            return Err(Failure::run(
                "a message arrived with other bytes than were sent",
                "bench channel",
                "report this as a bug",
            ));
        }
        if read == self.bytes {
            return Ok(());
        }
        let what = format!("a message of {read} bytes arrived, {} bytes were sent", self.bytes);
        Err(Failure::run(what, "bench channel", "report this as a bug"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_has_every_word_in_it() {
        for count in [0, 1, 2, 127, 128, 129, 300] {
            let words: Vec<_> = (0..count).map(|n| Word::new(n * n + 1)).collect();
            assert_eq!(sum(&words), (0..count).map(|n| n * n + 1).sum::<u64>(), "{count} words");
        }
    }
}
