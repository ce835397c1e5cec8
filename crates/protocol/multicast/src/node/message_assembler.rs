//! Peer messages: rare messages between members, of up to `Limits::letter_bytes` bytes, sent in pieces through the
//! control ring.
//!
//! A peer message consists of words and bytes after them. It is sent in pieces, one per record, so that timestamps and
//! acknowledgements can pass in between: a piece is at most a quarter of the ring and is written only if at most half
//! of the ring is then in use. Pieces are writes with an immediate, which wakes the peer, as long as the peer has
//! receives for them; otherwise they are plain writes. A peer message is lost with its connection, and its sender must
//! send it again.
//!
//! | word of a piece | content |
//! |---|---|
//! | 0 | kind 15 (4 bits), format version (4), 0 (24), words of the whole message (32) |
//! | 1 | number of the message, from 1 per connection (32 bits), first word of this piece (32) |
//! | 2… | the piece |
//!
//! Word 0 of a peer message is the number of bytes after its words. The words follow, then the bytes, padded with
//! zeros.

use std::collections::VecDeque;

use stentor_fabric::ProcessId;
use zerocopy::IntoBytes;

use crate::item::{CHUNK, VERSION};

/// Words of a piece before its part of the message.
pub(super) const PIECE_WORDS: usize = 2;
/// Maximum number of peer messages queued for one peer.
const MOST_WAITING: usize = 64;

/// A peer message that arrived.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Received {
    /// The sender.
    pub from: ProcessId,
    words: Vec<u64>,
    tail_bytes: usize,
}

impl Received {
    /// Returns the words of the message.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words[1..self.words.len() - self.tail_bytes.div_ceil(8)]
    }

    /// Returns the bytes after the words.
    #[must_use]
    pub fn tail(&self) -> &[u8] {
        let first = self.words.len() - self.tail_bytes.div_ceil(8);
        &self.words[first..].as_bytes()[..self.tail_bytes]
    }
}

/// The peer messages from and to one peer.
#[derive(Debug)]
pub(super) struct MessageAssembler {
    /// Queued messages; the first is being written.
    out: VecDeque<Vec<u64>>,
    out_bytes: u64,
    /// Number of words of the first message that are written.
    written: usize,
    /// Number of the last message that is written; 0 before the first.
    number: u32,
    /// Number of writes with an immediate that were posted on this connection.
    pub(super) immediates: u64,
    arriving: Vec<u64>,
    /// Number of the message that is arriving, and its length in words. The number is 0 if no message is arriving.
    expected: (u32, usize),
}

impl MessageAssembler {
    pub(super) fn new() -> Self {
        MessageAssembler {
            out: VecDeque::new(),
            out_bytes: 0,
            written: 0,
            number: 0,
            immediates: 0,
            arriving: Vec::new(),
            expected: (0, 0),
        }
    }

    /// Drops all messages in transit, because the connection ended.
    pub(super) fn clear(&mut self) {
        *self = MessageAssembler::new();
    }

    /// Returns the bytes in use, in both directions.
    pub(super) fn bytes(&self) -> u64 {
        self.out_bytes + self.arriving.capacity() as u64 * 8
    }

    /// Returns the number of queued messages that begin with this word.
    pub(super) fn waiting_with(&self, first: u64) -> usize {
        self.out.iter().filter(|letter| letter.get(1) == Some(&first)).count()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// Returns whether a message with this number of words and tail bytes would be accepted.
    pub(super) fn has_room(&self, words: usize, tail: usize, most_bytes: u64) -> bool {
        self.out.len() < MOST_WAITING && self.out_bytes + length(words, tail) as u64 * 8 <= most_bytes
    }

    /// Queues a message. Returns false, and drops it, if too many messages are queued, or it and the queued ones are
    /// too long together.
    pub(super) fn post(&mut self, words: &[u64], tail: &[u8], most_bytes: u64) -> bool {
        if !self.has_room(words.len(), tail.len(), most_bytes) {
            return false;
        }
        let length = length(words.len(), tail.len());
        let mut letter = Vec::with_capacity(length);
        letter.push(tail.len() as u64);
        letter.extend_from_slice(words);
        letter.resize(length, 0);
        letter[1 + words.len()..].as_mut_bytes()[..tail.len()].copy_from_slice(tail);
        self.out_bytes += length as u64 * 8;
        self.out.push_back(letter);
        true
    }

    /// Returns the number of the message that is being written. After the largest number comes 1, because 0 is no
    /// message's number.
    fn next_number(&self) -> u32 {
        self.number % u32::MAX + 1
    }

    /// Copies the next piece, at most `limit` words in all, into `record`. Returns its words; 0 if nothing is queued.
    pub(super) fn next_piece(&self, limit: usize, record: &mut [u64]) -> usize {
        let Some(letter) = self.out.front() else { return 0 };
        let part = (limit - PIECE_WORDS).min(letter.len() - self.written);
        record[0] = CHUNK | u64::from(VERSION) << 4 | (letter.len() as u64) << 32;
        record[1] = u64::from(self.next_number()) | (self.written as u64) << 32;
        record[PIECE_WORDS..PIECE_WORDS + part].copy_from_slice(&letter[self.written..self.written + part]);
        PIECE_WORDS + part
    }

    /// Notes that a piece of `words` words was written.
    pub(super) fn advance(&mut self, words: usize) {
        self.written += words - PIECE_WORDS;
        if let Some(letter) = self.out.front()
            && self.written == letter.len()
        {
            self.out_bytes -= letter.len() as u64 * 8;
            self.out.pop_front();
            (self.written, self.number) = (0, self.next_number());
        }
    }

    /// Processes a piece that arrived. Returns the message when it is complete.
    ///
    /// # Errors
    /// Returns an error if the piece is not the next one of a message of at most `most_bytes`. The incomplete message
    /// is dropped.
    pub(super) fn take(&mut self, from: ProcessId, piece: &[u64], most_bytes: u64) -> Result<Option<Received>, ()> {
        let taken = self.take_piece(piece, most_bytes);
        if taken != Ok(true) {
            if taken.is_err() {
                (self.arriving, self.expected) = (Vec::new(), (0, 0));
            }
            return taken.map(|_| None);
        }
        let words = std::mem::take(&mut self.arriving);
        self.expected = (0, 0);
        let tail_bytes = words[0];
        if tail_bytes.div_ceil(8) > words.len() as u64 - 1 {
            return Err(());
        }
        Ok(Some(Received { from, words, tail_bytes: tail_bytes as usize }))
    }

    fn take_piece(&mut self, piece: &[u64], most_bytes: u64) -> Result<bool, ()> {
        let [head, place, part @ ..] = piece else { return Err(()) };
        let (total, number, first) = ((head >> 32) as usize, *place as u32, (place >> 32) as usize);
        let known = head & 0xffff_ffff == CHUNK | u64::from(VERSION) << 4;
        if !known || part.is_empty() || total as u64 * 8 > most_bytes || number == 0 {
            return Err(());
        }
        if first == 0 {
            self.arriving.clear();
            self.expected = (number, total);
        }
        // Memory grows with the words that arrive, not with the announced length.
        if self.expected != (number, total) || first != self.arriving.len() || first + part.len() > total {
            return Err(());
        }
        self.arriving.extend_from_slice(part);
        Ok(self.arriving.len() == total)
    }
}

/// Returns the words of an encoded message: the length of its tail, its words, its tail.
fn length(words: usize, tail: usize) -> usize {
    1 + words + tail.div_ceil(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: ProcessId = ProcessId(3);

    fn carry(assembler: &mut MessageAssembler, to: &mut MessageAssembler, limit: usize) -> Vec<Received> {
        let (mut record, mut received) = (vec![0; limit], Vec::new());
        while !assembler.is_empty() {
            let words = assembler.next_piece(limit, &mut record);
            assembler.advance(words);
            received.extend(to.take(FROM, &record[..words], 1 << 20).expect("the next piece"));
        }
        received
    }

    #[test]
    fn peer_messages_arrive_complete_and_in_order_for_any_piece_size() {
        for limit in [3, 4, 7, 600] {
            let (mut assembler, mut to) = (MessageAssembler::new(), MessageAssembler::new());
            let letters: [(&[u64], &[u8]); 4] =
                [(&[], b""), (&[1, 2, 3], b""), (&[], b"nine byte"), (&[7; 99], &[5; 31])];
            for (words, tail) in letters {
                assert!(assembler.post(words, tail, 1 << 20));
            }
            let received = carry(&mut assembler, &mut to, limit);
            let expected = letters.map(|(words, tail)| (words.to_vec(), tail.to_vec()));
            let received: Vec<_> = received.iter().map(|got| (got.words().to_vec(), got.tail().to_vec())).collect();
            assert_eq!(received, expected, "pieces of {limit}");
            assert_eq!(assembler.bytes(), 0);
        }
    }

    #[test]
    fn messages_arrive_after_the_largest_number() {
        let (mut assembler, mut to) = (MessageAssembler::new(), MessageAssembler::new());
        assembler.number = u32::MAX - 1;
        for word in 0..3 {
            assert!(assembler.post(&[word, word], b"", 1 << 20));
        }
        let received = carry(&mut assembler, &mut to, 4);
        assert_eq!(received.iter().map(|got| got.words()[0]).collect::<Vec<_>>(), [0, 1, 2]);
    }

    #[test]
    fn too_many_or_too_long_peer_messages_are_refused() {
        let mut assembler = MessageAssembler::new();
        assert!(!assembler.post(&[0; 10], b"", 80) && assembler.post(&[0; 9], b"", 80));
        let mut assembler = MessageAssembler::new();
        assert_eq!((0..100).filter(|_| assembler.post(&[1], b"", 1 << 20)).count(), MOST_WAITING);
    }

    #[test]
    fn invalid_pieces_are_refused_and_the_next_peer_message_arrives() {
        let (mut assembler, mut record) = (MessageAssembler::new(), [0; 8]);
        assembler.post(&[1, 2, 3, 4, 5, 6, 7, 8], b"", 1 << 20);
        let words = assembler.next_piece(8, &mut record);
        let first = record;
        let refused: [fn(&mut [u64; 8]); 6] = [
            |piece| piece[0] ^= 1 << 4,
            |piece| piece[0] |= 1 << 20,
            |piece| piece[0] |= 0xffff << 48,
            |piece| piece[1] = 0,
            |piece| piece[1] |= 5 << 32,
            |piece| piece[0] = piece[0] & 0xffff_ffff | 2 << 32,
        ];
        for lie in refused {
            let (mut to, mut piece) = (MessageAssembler::new(), first);
            lie(&mut piece);
            assert_eq!(to.take(FROM, &piece[..words], 1 << 20), Err(()));
            assert_eq!(to.take(FROM, &first[..words], 1 << 20), Ok(None));
        }
        // The announced tail is longer than the message.
        let mut to = MessageAssembler::new();
        let lie = [CHUNK | u64::from(VERSION) << 4 | 2 << 32, 1, 9, 0];
        assert_eq!(to.take(FROM, &lie, 1 << 20), Err(()));
        assert_eq!(to.take(FROM, &[], 1 << 20), Err(()));
    }
}
