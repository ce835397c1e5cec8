//! The queue that transports SEND and WRITE_WITH_IMM in one direction of one queue pair. It has one producer and one
//! consumer.
//!
//! Layout of the shared words: word 0 is the producer's tail, word 8 the consumer's head, and word 16 the number of
//! receives that the consumer has posted so far. The sizes of those receives begin at word 24, one word each. The ring
//! follows them. All three counters are 0 in a new queue and never decrease. A record is two header words and its
//! payload, and wraps at any word. Each side trusts only its own counters and checks the other side's values before
//! use, so a peer that stores garbage can break this queue and nothing else.
#![cfg_attr(not(loom), allow(unreachable_pub, reason = "public under loom only"))]

use stentor_fabric::memory::{Ordering, WORD, Word};

const TAIL: usize = 0;
const HEAD: usize = 8;
const POSTED: usize = 16;
const SIZES: usize = 24;
/// Length of a record's header, in words.
pub const HEADER_WORDS: u64 = 2;

/// Kind of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RecordKind {
    /// A SEND without an immediate.
    Send = 1,
    /// A SEND with an immediate.
    SendImm = 2,
    /// The notification of a WRITE_WITH_IMM. It has no payload; `bytes` bytes were written elsewhere.
    WriteImm = 3,
    /// A SEND that is longer than its receive. It has no payload.
    TooLong = 4,
}

/// The header of a record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Kind of the record.
    pub kind: RecordKind,
    /// Number of bytes sent or written.
    pub bytes: u32,
    /// The immediate, or 0 if there is none.
    pub imm: u32,
}

impl Header {
    fn payload_words(self) -> u64 {
        match self.kind {
            RecordKind::Send | RecordKind::SendImm => (self.bytes as usize).div_ceil(WORD) as u64,
            RecordKind::WriteImm | RecordKind::TooLong => 0,
        }
    }

    fn encode(self) -> u64 {
        self.kind as u64 | u64::from(self.bytes) << 8
    }

    fn decode(word: u64, imm: u64) -> Option<Header> {
        let kind = match word & 0xff {
            1 => RecordKind::Send,
            2 => RecordKind::SendImm,
            3 => RecordKind::WriteImm,
            4 => RecordKind::TooLong,
            _ => return None,
        };
        Some(Header { kind, bytes: u32::try_from(word >> 8).ok()?, imm: u32::try_from(imm).ok()? })
    }
}

/// Size of a queue, from which both ends compute the same layout.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// Length of the ring in words, a power of two.
    ring: u64,
    /// Maximum number of posted receives, rounded up to a power of two.
    sizes: u64,
}

impl Shape {
    /// Returns the shape of a queue with room for `receives` records without payload and one with `bytes` bytes.
    #[must_use]
    pub fn new(receives: u32, bytes: u64) -> Self {
        let payload = if receives == 0 { 0 } else { bytes.div_ceil(WORD as u64) };
        let ring = u64::from(receives) * HEADER_WORDS + payload + HEADER_WORDS;
        Shape { ring: ring.next_power_of_two().max(64), sizes: u64::from(receives).next_power_of_two() }
    }

    /// Returns the shape that a peer announced, or `None` if it is invalid.
    #[must_use]
    pub fn announced(ring: u64, receives: u32) -> Option<Self> {
        let shape = Shape { ring, sizes: u64::from(receives).next_power_of_two() };
        (ring.is_power_of_two() && (64..=1 << 32).contains(&ring)).then_some(shape)
    }

    /// Returns the length of the ring in words.
    #[must_use]
    pub fn ring(self) -> u64 {
        self.ring
    }

    /// Returns the size of the shared memory in words.
    #[must_use]
    pub fn words(self) -> u64 {
        SIZES as u64 + self.sizes + self.ring
    }

    #[inline]
    fn size(self, shared: &[Word], receive: u64) -> &Word {
        &shared[SIZES + (receive & (self.sizes - 1)) as usize]
    }

    #[inline]
    fn cell(self, shared: &[Word], position: u64) -> &Word {
        &shared[SIZES + self.sizes as usize + (position & (self.ring - 1)) as usize]
    }
}

/// The result of the check whether a record can be pushed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Readiness {
    /// The record can be pushed.
    Ready,
    /// No receive is posted for the record, or the ring has no room.
    Wait,
    /// The receive that is posted for the record is too short. The ring has room for a record without payload.
    TooLong,
}

/// The sending end of a queue.
#[derive(Debug)]
pub struct Producer {
    shape: Shape,
    tail: u64,
    head_seen: u64,
    sent: u64,
    posted_seen: u64,
}

impl Producer {
    /// Creates the sending end of an empty queue.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        Producer { shape, tail: 0, head_seen: 0, sent: 0, posted_seen: 0 }
    }

    /// Returns whether the consumer has posted a sufficient receive for the next record, and the ring has room.
    #[inline]
    pub fn readiness(&mut self, shared: &[Word], header: Header) -> Readiness {
        if self.sent >= self.posted_seen {
            // Acquire: the consumer stored the size of the receive before.
            self.posted_seen = shared[POSTED].load(Ordering::Acquire);
            if self.sent >= self.posted_seen {
                return Readiness::Wait;
            }
        }
        let payload = header.payload_words();
        let is_too_long =
            payload > 0 && u64::from(header.bytes) > self.shape.size(shared, self.sent).load(Ordering::Relaxed);
        // The record that reports a message that is too long has no payload.
        let words = HEADER_WORDS + if is_too_long { 0 } else { payload };
        if self.room() < words {
            // Acquire: the consumer's loads from the freed cells precede the stores into them.
            self.head_seen = shared[HEAD].load(Ordering::Acquire);
        }
        match (self.room() >= words, is_too_long) {
            (false, _) => Readiness::Wait,
            (true, false) => Readiness::Ready,
            (true, true) => Readiness::TooLong,
        }
    }

    fn room(&self) -> u64 {
        // A head beyond the tail, or behind it by more than the ring, is garbage. It leaves no room.
        let used = self.tail.wrapping_sub(self.head_seen);
        self.shape.ring.saturating_sub(used)
    }

    /// Appends a record, whose payload words `payload` returns. The caller must have found it ready. If it found the
    /// message too long, it may append a [`RecordKind::TooLong`] record instead.
    #[inline]
    pub fn push(&mut self, shared: &[Word], header: Header, payload: impl Fn(usize) -> u64) {
        let at = |position: u64| self.shape.cell(shared, position);
        at(self.tail).store(header.encode(), Ordering::Relaxed);
        at(self.tail + 1).store(u64::from(header.imm), Ordering::Relaxed);
        let words = header.payload_words();
        for word in 0..words {
            at(self.tail + HEADER_WORDS + word).store(payload(word as usize), Ordering::Relaxed);
        }
        self.tail += HEADER_WORDS + words;
        self.sent += 1;
        // Release: a consumer that sees the tail sees the record, and everything written before it.
        shared[TAIL].store(self.tail, Ordering::Release);
    }
}

/// An error: the producer has stored values that no correct producer stores.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Garbled;

/// The receiving end of a queue.
#[derive(Debug)]
pub struct Consumer {
    shape: Shape,
    head: u64,
    posted: u64,
}

impl Consumer {
    /// Creates the receiving end of an empty queue.
    #[must_use]
    pub fn new(shape: Shape) -> Self {
        Consumer { shape, head: 0, posted: 0 }
    }

    /// Announces another receive of `bytes` bytes to the producer. The caller must not exceed the number of receives of
    /// the shape.
    #[inline]
    pub fn post(&mut self, shared: &[Word], bytes: u32) {
        self.shape.size(shared, self.posted).store(u64::from(bytes), Ordering::Relaxed);
        self.posted += 1;
        shared[POSTED].store(self.posted, Ordering::Release);
    }

    /// Returns the header of the next record, if there is one.
    ///
    /// # Errors
    /// Returns [`Garbled`] if the queue contains garbage.
    #[inline]
    pub fn peek(&self, shared: &[Word]) -> Result<Option<Header>, Garbled> {
        let tail = shared[TAIL].load(Ordering::Acquire);
        if tail == self.head {
            return Ok(None);
        }
        let available = tail.wrapping_sub(self.head);
        if available > self.shape.ring || available < HEADER_WORDS {
            return Err(Garbled);
        }
        let word = self.shape.cell(shared, self.head).load(Ordering::Relaxed);
        let imm = self.shape.cell(shared, self.head + 1).load(Ordering::Relaxed);
        let header = Header::decode(word, imm).ok_or(Garbled)?;
        if HEADER_WORDS + header.payload_words() > available {
            return Err(Garbled);
        }
        Ok(Some(header))
    }

    /// Removes the record that [`peek`](Consumer::peek) returned, and passes its payload words to `sink`.
    #[inline]
    pub fn take(&mut self, shared: &[Word], header: Header, mut sink: impl FnMut(usize, u64)) {
        let words = header.payload_words();
        for word in 0..words {
            let value = self.shape.cell(shared, self.head + HEADER_WORDS + word).load(Ordering::Relaxed);
            sink(word as usize, value);
        }
        self.head += HEADER_WORDS + words;
        shared[HEAD].store(self.head, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const SHAPE: Shape = Shape { ring: 64, sizes: 4 };

    fn queue() -> (Vec<Word>, Producer, Consumer) {
        let memory = (0..SHAPE.words()).map(|_| Word::new(0)).collect();
        (memory, Producer::new(SHAPE), Consumer::new(SHAPE))
    }

    fn send(bytes: u32) -> Header {
        Header { kind: RecordKind::SendImm, bytes, imm: 7 }
    }

    #[test]
    fn records_of_all_sizes_come_out_in_order_and_wrap() {
        let (memory, mut producer, mut consumer) = queue();
        for n in 0..200_u32 {
            let header = send(n * 3 % 400);
            assert_eq!(producer.readiness(&memory, header), Readiness::Wait, "record {n} has no receive");
            consumer.post(&memory, header.bytes);
            assert_eq!(producer.readiness(&memory, header), Readiness::Ready, "record {n}");
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
    }

    #[test]
    fn full_ring_accepts_records_only_after_a_take() {
        let (memory, mut producer, mut consumer) = queue();
        for _ in 0..3 {
            consumer.post(&memory, 240);
        }
        producer.push(&memory, send(240), |_| 1);
        producer.push(&memory, send(200), |_| 2);
        assert_eq!(producer.readiness(&memory, send(40)), Readiness::Wait);
        let header = consumer.peek(&memory).unwrap().unwrap();
        consumer.take(&memory, header, |_, word| assert_eq!(word, 1));
        assert_eq!(producer.readiness(&memory, send(40)), Readiness::Ready);
    }

    #[test]
    fn record_of_a_long_message_waits_for_room_in_a_full_ring() {
        let (memory, mut producer, mut consumer) = queue();
        for bytes in [240, 240, 8] {
            consumer.post(&memory, bytes);
        }
        producer.push(&memory, send(240), |_| 1);
        producer.push(&memory, send(240), |_| 2);
        assert_eq!(producer.readiness(&memory, send(9)), Readiness::Wait, "the ring is full");
        let header = consumer.peek(&memory).unwrap().unwrap();
        consumer.take(&memory, header, |_, word| assert_eq!(word, 1));
        assert_eq!(producer.readiness(&memory, send(9)), Readiness::TooLong);
    }

    #[test]
    fn record_is_compared_with_its_own_receive() {
        let (memory, mut producer, mut consumer) = queue();
        for bytes in [8, 100, 0] {
            consumer.post(&memory, bytes);
        }
        assert_eq!(producer.readiness(&memory, send(9)), Readiness::TooLong);
        producer.push(&memory, send(8), |_| 0);
        assert_eq!(producer.readiness(&memory, send(100)), Readiness::Ready);
        producer.push(&memory, send(100), |_| 0);
        assert_eq!(producer.readiness(&memory, send(1)), Readiness::TooLong);
        let imm = Header { kind: RecordKind::WriteImm, bytes: 4096, imm: 1 };
        assert_eq!(producer.readiness(&memory, imm), Readiness::Ready, "its data do not go through the receive");
    }

    #[test]
    fn garbage_in_the_counters_or_headers_is_found() {
        let (memory, mut producer, consumer) = queue();
        for (tail, word) in [(1, 1), (u64::MAX, 1), (66, 1), (4, 9), (2, 1 | 8 << 8), (4, 1 | 1 << 50)] {
            memory[TAIL].store(tail, Ordering::Relaxed);
            SHAPE.cell(&memory, 0).store(word, Ordering::Relaxed);
            assert_eq!(consumer.peek(&memory), Err(Garbled), "tail {tail}, header {word:x}");
        }
        memory[POSTED].store(u64::MAX, Ordering::Relaxed);
        SHAPE.size(&memory, 0).store(u64::MAX, Ordering::Relaxed);
        memory[HEAD].store(5, Ordering::Relaxed);
        assert_eq!(producer.readiness(&memory, send(496)), Readiness::Ready);
        assert_eq!(producer.readiness(&memory, send(504)), Readiness::Wait, "a head beyond the tail gives no room");
    }

    #[test]
    fn invalid_shapes_are_refused() {
        for ring in [0, 32, 65, 1 << 33] {
            assert_eq!(Shape::announced(ring, 4), None);
        }
        let mine = Shape::new(300, 4096);
        assert_eq!(Shape::announced(mine.ring(), 300), Some(mine));
    }
}
