//! The queue behind SEND and WRITE_WITH_IMM: one producer, one consumer, one direction of one queue pair.
//!
//! Layout of the shared words: word 0 is the producer's tail, word 8 the consumer's head, word 16 the number of receives
//! that the consumer has ever posted; from word 24 the ring. All three count since the queue was made and never go back.
//! A record is two header words and its payload, and wraps anywhere. Each side believes only its own counters: what the
//! other side stores is checked before use, so a peer that stores garbage can break this queue and nothing else.
#![cfg_attr(not(loom), allow(unreachable_pub, reason = "public under loom only"))]

use stentor_fabric::memory::{Ordering, WORD, Word};

const TAIL: usize = 0;
const HEAD: usize = 8;
const POSTED: usize = 16;
const RING: usize = 24;
/// Words of a record before its payload.
pub const HEADER_WORDS: u64 = 2;

/// What a record stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A SEND without an immediate.
    Send = 1,
    /// A SEND with one.
    SendImm = 2,
    /// The notification of a WRITE_WITH_IMM: no payload, `bytes` were written elsewhere.
    WriteImm = 3,
}

/// The header of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// What it stands for.
    pub kind: Kind,
    /// Bytes sent or written.
    pub bytes: u32,
    /// The immediate; 0 where there is none.
    pub imm: u32,
}

impl Header {
    fn payload_words(self) -> u64 {
        if self.kind == Kind::WriteImm { 0 } else { (self.bytes as usize).div_ceil(WORD) as u64 }
    }

    fn encode(self) -> u64 {
        self.kind as u64 | u64::from(self.bytes) << 8
    }

    fn decode(word: u64, imm: u64) -> Option<Header> {
        let kind = match word & 0xff {
            1 => Kind::Send,
            2 => Kind::SendImm,
            3 => Kind::WriteImm,
            _ => return None,
        };
        Some(Header { kind, bytes: u32::try_from(word >> 8).ok()?, imm: u32::try_from(imm).ok()? })
    }
}

/// Words of shared memory for a ring of `ring_words`.
#[must_use]
pub const fn queue_words(ring_words: u64) -> u64 {
    RING as u64 + ring_words
}

/// The words that a ring needs to hold `receives` records without payload and one with `bytes`: a power of two.
#[must_use]
pub fn ring_words(receives: u32, bytes: u64) -> u64 {
    let payload = if receives == 0 { 0 } else { bytes.div_ceil(WORD as u64) };
    (u64::from(receives) * HEADER_WORDS + payload + HEADER_WORDS).next_power_of_two().max(64)
}

/// The sending end.
#[derive(Debug)]
pub struct Producer {
    mask: u64,
    tail: u64,
    head_seen: u64,
    sent: u64,
    posted_seen: u64,
}

impl Producer {
    /// For an empty queue with a ring of `ring_words`, a power of two.
    #[must_use]
    pub fn new(ring_words: u64) -> Self {
        assert!(ring_words.is_power_of_two(), "a ring of {ring_words} words");
        Producer { mask: ring_words - 1, tail: 0, head_seen: 0, sent: 0, posted_seen: 0 }
    }

    /// Whether the consumer has posted a receive for the next record and there is room for it.
    #[inline]
    pub fn ready(&mut self, shared: &[Word], header: Header) -> bool {
        if self.sent >= self.posted_seen {
            self.posted_seen = shared[POSTED].load(Ordering::Relaxed);
            if self.sent >= self.posted_seen {
                return false;
            }
        }
        let words = HEADER_WORDS + header.payload_words();
        if self.room() < words {
            // Acquire: the consumer's loads from the cells that it freed come before our stores into them.
            self.head_seen = shared[HEAD].load(Ordering::Acquire);
        }
        self.room() >= words
    }

    fn room(&self) -> u64 {
        // A head beyond the tail, or behind by more than the ring, is not the consumer's: no room.
        let used = self.tail.wrapping_sub(self.head_seen);
        (self.mask + 1).saturating_sub(used)
    }

    /// Appends a record whose payload words `payload` gives. Call only when [`ready`](Producer::ready) for it.
    #[inline]
    pub fn push(&mut self, shared: &[Word], header: Header, payload: impl Fn(usize) -> u64) {
        let ring = &shared[RING..];
        let at = |position: u64| &ring[(position & self.mask) as usize];
        at(self.tail).store(header.encode(), Ordering::Relaxed);
        at(self.tail + 1).store(u64::from(header.imm), Ordering::Relaxed);
        let words = header.payload_words();
        for word in 0..words {
            at(self.tail + HEADER_WORDS + word).store(payload(word as usize), Ordering::Relaxed);
        }
        self.tail += HEADER_WORDS + words;
        self.sent += 1;
        // Release: who sees the tail sees the record, and everything written before it.
        shared[TAIL].store(self.tail, Ordering::Release);
    }
}

/// The producer stored what no producer stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Garbled;

/// The receiving end.
#[derive(Debug)]
pub struct Consumer {
    mask: u64,
    head: u64,
    posted: u64,
}

impl Consumer {
    /// For an empty queue with a ring of `ring_words`, a power of two.
    #[must_use]
    pub fn new(ring_words: u64) -> Self {
        assert!(ring_words.is_power_of_two(), "a ring of {ring_words} words");
        Consumer { mask: ring_words - 1, head: 0, posted: 0 }
    }

    /// Tells the producer that `receives` more receives were posted.
    #[inline]
    pub fn post(&mut self, shared: &[Word], receives: u64) {
        self.posted += receives;
        shared[POSTED].store(self.posted, Ordering::Relaxed);
    }

    /// The header of the next record, if one is there.
    ///
    /// # Errors
    /// If the queue holds garbage.
    #[inline]
    pub fn peek(&self, shared: &[Word]) -> Result<Option<Header>, Garbled> {
        let tail = shared[TAIL].load(Ordering::Acquire);
        if tail == self.head {
            return Ok(None);
        }
        let available = tail.wrapping_sub(self.head);
        if available > self.mask + 1 || available < HEADER_WORDS {
            return Err(Garbled);
        }
        let word = self.at(shared, self.head).load(Ordering::Relaxed);
        let imm = self.at(shared, self.head + 1).load(Ordering::Relaxed);
        let header = Header::decode(word, imm).ok_or(Garbled)?;
        if HEADER_WORDS + header.payload_words() > available {
            return Err(Garbled);
        }
        Ok(Some(header))
    }

    /// Takes the record that [`peek`](Consumer::peek) showed; gives its payload words to `sink`.
    #[inline]
    pub fn take(&mut self, shared: &[Word], header: Header, mut sink: impl FnMut(usize, u64)) {
        let words = header.payload_words();
        for word in 0..words {
            let value = self.at(shared, self.head + HEADER_WORDS + word).load(Ordering::Relaxed);
            sink(word as usize, value);
        }
        self.head += HEADER_WORDS + words;
        shared[HEAD].store(self.head, Ordering::Release);
    }

    fn at<'a>(&self, shared: &'a [Word], position: u64) -> &'a Word {
        &shared[RING + (position & self.mask) as usize]
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn shared(ring: u64) -> Vec<Word> {
        (0..queue_words(ring)).map(|_| Word::new(0)).collect()
    }

    fn send(bytes: u32) -> Header {
        Header { kind: Kind::SendImm, bytes, imm: 7 }
    }

    #[test]
    fn records_of_all_sizes_come_out_in_order_and_wrap() {
        let memory = shared(64);
        let (mut producer, mut consumer) = (Producer::new(64), Consumer::new(64));
        consumer.post(&memory, 200);
        for n in 0..200_u32 {
            let header = send(n * 3 % 400);
            assert!(producer.ready(&memory, header), "record {n}");
            producer.push(&memory, header, |i| u64::from(n) << 32 | i as u64);
            assert_eq!(consumer.peek(&memory), Ok(Some(header)));
            let mut taken = 0;
            consumer.take(&memory, header, |i, word| {
                assert_eq!(word, u64::from(n) << 32 | i as u64);
                taken += 1;
            });
            assert_eq!(taken, (header.bytes as usize).div_ceil(8));
        }
        assert_eq!(consumer.peek(&memory), Ok(None));
        assert!(!producer.ready(&memory, send(0)), "every receive is used up");
    }

    #[test]
    fn a_full_ring_takes_nothing_until_something_is_taken() {
        let memory = shared(64);
        let (mut producer, mut consumer) = (Producer::new(64), Consumer::new(64));
        consumer.post(&memory, 3);
        producer.push(&memory, send(240), |_| 1);
        producer.push(&memory, send(200), |_| 2);
        assert!(!producer.ready(&memory, send(40)));
        let header = consumer.peek(&memory).unwrap().unwrap();
        consumer.take(&memory, header, |_, word| assert_eq!(word, 1));
        assert!(producer.ready(&memory, send(40)));
    }

    #[test]
    fn garbage_in_the_counters_or_headers_is_found() {
        let memory = shared(64);
        let (mut producer, consumer) = (Producer::new(64), Consumer::new(64));
        for (tail, word) in [(1, 1), (u64::MAX, 1), (66, 1), (4, 9), (2, 1 | 8 << 8), (4, 1 | 1 << 50)] {
            memory[TAIL].store(tail, Ordering::Relaxed);
            memory[RING].store(word, Ordering::Relaxed);
            assert_eq!(consumer.peek(&memory), Err(Garbled), "tail {tail}, header {word:x}");
        }
        memory[POSTED].store(u64::MAX, Ordering::Relaxed);
        memory[HEAD].store(5, Ordering::Relaxed);
        assert!(producer.ready(&memory, send(496)));
        assert!(!producer.ready(&memory, send(504)), "a head beyond the tail gives no room");
    }
}
