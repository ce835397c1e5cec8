//! The receiving direction of a connection: receives that are posted ahead, and messages that are put in order.

use std::collections::VecDeque;

use crate::command::{Op, Way};
use crate::config::LENGTH_BYTES;
use crate::error::Violation;
use crate::sequence::{
    alone_sequence, length_sequence, numbered_alone, numbered_length, numbered_piece, piece_sequence, sequence_of,
};
use crate::window::{Window, around};
use crate::{Cause, Config, Kind, Scheme, Tag, mutant};

/// A message that is to be read next.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Incoming {
    /// Number of the message on this connection, from 0.
    pub number: u64,
    /// Length of the message, in bytes.
    pub bytes: u64,
}

/// A part of the message that is being read, which has arrived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Piece {
    /// Receive in whose slot the part lies.
    pub op: Op,
    /// Offset of the part in the slot, in bytes.
    pub at: u32,
    /// Length of the part, in bytes.
    pub bytes: u32,
    /// `true` if the message ends with this part.
    pub last: bool,
}

/// The way in which a message was announced.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Came {
    /// A length announced the message, or the message arrived in place of its length. The length or the message is in
    /// this slot.
    Length(u16),
    /// The piece with this number is the whole message, and no length was sent.
    Alone(u64),
}

/// A message whose length is known. The numbers of its pieces are known once all earlier lengths have arrived.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Message {
    came: Came,
    bytes: u64,
}

/// The receiving half of a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Inbound {
    config: Config,
    /// Slots for lengths without a posted receive, in the order in which they became free.
    free: VecDeque<u16>,
    /// Number of control messages that arrived in receives for lengths. Element 0 counts those whose receive has been
    /// replaced by another one, and element 1 those whose receive has not been replaced yet.
    strangers: [u64; 2],
    /// Number of receives ever posted for lengths and for pieces.
    posted: [u64; 2],
    /// Number of messages of one piece without a length that were read. Each consumed a credit for a length but no
    /// receive for one, so the credit is granted again.
    alone: u64,
    /// Lengths that arrived before lengths with smaller numbers, by number modulo the size of `lengths`.
    lengths: Box<[Option<Message>]>,
    /// Number of lengths that may arrive out of order. A length is valid if its number is at least `next_length` and
    /// less than `next_length + window`. At most the size of `lengths`.
    window: u64,
    /// Number of the next length. With [`Scheme::LengthPayload`], a length has the number of its message's first piece.
    next_length: u64,
    /// Number of lengths and pieces that arrived. A message of one piece without a length counts as both.
    arrived: [u64; 2],
    /// Messages whose lengths and whose predecessors' lengths are known, in order. The first one is being read.
    messages: VecDeque<Message>,
    /// Number of the message that is being read.
    number: u64,
    /// Number of bytes read of the message that is being read.
    offset: u64,
    /// Number of pieces that were read.
    read: u64,
    /// Number of pieces of all messages that were ever added to `messages`.
    announced: u64,
    /// Number of receives for pieces that are posted ahead. A provider that matches tags in software scans all posted
    /// receives before it finds the one of a short message. With [`Scheme::Eager`] there are therefore none until a
    /// message with pieces is announced. The number then never falls. It is at least [`first_pieces`] and at most
    /// [`Config::pieces`]. It grows to the largest number of pieces that were announced and unread at a time, and
    /// doubles whenever the peer announces a message that could have been sent without a length.
    ahead: u64,
    pieces: Window,
    /// Slots for pieces without a posted receive. The slot that was read last is used first, because it is in the
    /// processor's cache. With [`Scheme::Counted`] each number has a fixed slot.
    free_pieces: Vec<u16>,
    /// Slot of the receive for each piece, and size of the piece once it has arrived, by number modulo the window.
    placed: Box<[(u16, u32)]>,
}

/// Returns the smallest number of receives for pieces that are posted ahead, once there are any.
fn first_pieces(config: &Config) -> u64 {
    config.pieces.min(4).into()
}

impl Inbound {
    pub(crate) fn new(config: &Config) -> Self {
        // With `LengthPayload`, lengths are numbered by pieces.
        let window = (config.lengths.max(config.pieces) + 1) as usize;
        Inbound {
            config: *config,
            free: (0..(config.lengths_ahead() + config.spare()) as u16).collect(),
            strangers: [0; 2],
            posted: [0; 2],
            alone: 0,
            lengths: vec![None; window.next_power_of_two()].into(),
            window: window as u64,
            next_length: 0,
            arrived: [0; 2],
            messages: VecDeque::with_capacity(config.lengths as usize),
            number: 0,
            offset: 0,
            read: 0,
            ahead: if config.scheme == Scheme::Eager { 0 } else { first_pieces(config) },
            announced: 0,
            pieces: Window::new(config.pieces),
            free_pieces: (0..config.pieces as u16).rev().collect(),
            placed: (0..config.pieces as u16).map(|place| (place, 0)).collect(),
        }
    }

    /// Returns the next receive to post: its slot and its sequence. A receive for a length matches any sequence.
    pub(crate) fn next_recv(&mut self) -> Option<(Op, u32)> {
        if let Some(place) = self.free.pop_front() {
            self.posted[0] += 1;
            let [replaced, left] = &mut self.strangers;
            let replaces = u64::from(*left > 0);
            (*replaced, *left) = (*replaced + replaces, *left - replaces);
            return Some((Op { way: Way::Recv, kind: Kind::Length, place }, 0));
        }
        let number = self.posted[1];
        if number == self.read + self.ahead {
            return None;
        }
        self.posted[1] += 1;
        let slot = self.pieces.place(number);
        if self.config.scheme != Scheme::Counted
            && let Some(place) = self.free_pieces.pop()
        {
            self.placed[slot].0 = place;
        }
        let place = self.placed[slot].0;
        Some((Op { way: Way::Recv, kind: Kind::Payload, place }, piece_sequence(&self.config, number)))
    }

    /// Returns the number of lengths and pieces that the peer may have in flight at present.
    pub(crate) fn windows(&self) -> [u64; 2] {
        [self.config.lengths_ahead().into(), self.ahead]
    }

    /// Returns the cumulative credits for the peer: receives ever posted for lengths and for pieces, without those for
    /// control messages, plus one length for each message that used no receive for its length.
    pub(crate) fn granted(&self) -> [u64; 2] {
        let others = u64::from(self.config.spare()) + self.strangers[0];
        let lengths = |posted: u64| (posted + self.alone).saturating_sub(others);
        if mutant!(self.config.mutant, CreditBeforeReceive) {
            let early = self.posted[0] + self.free.len() as u64 + self.messages.len() as u64;
            return [lengths(early), self.posted[1] + self.arrived[1] - self.read];
        }
        [lengths(self.posted[0]), self.posted[1]]
    }

    /// Records a control message that arrived in a receive for a length.
    pub(crate) fn stranger(&mut self, place: u16) {
        self.strangers[1] += 1;
        self.free.push_back(place);
    }

    /// Records what arrived in a receive that was posted for a length: a message's length, or a short message in place
    /// of its length. `word` is the first word that arrived, and `size` the number of bytes.
    pub(crate) fn length(&mut self, place: u16, sequence: u32, size: u32, word: u64) -> Result<(), Violation> {
        let whole = self.config.scheme == Scheme::Eager && sequence & Tag::WHOLE != 0;
        let (bytes, limit) = (if whole { size.into() } else { word }, self.config.message_bytes);
        if bytes > limit {
            return Err(Cause::TooLong { bytes, limit });
        }
        if whole && !self.config.is_whole(bytes) {
            return Err(Cause::Size { kind: "whole message", bytes, expected: self.config.eager_bytes.into() });
        }
        if !whole {
            let behind = self.config.is_inline(bytes) && !self.config.is_whole(bytes);
            self.check_size("length", size, LENGTH_BYTES + if behind { bytes as u32 } else { 0 })?;
            if self.config.is_whole(bytes) {
                return Err(Cause::Nonsense("it sent the length of a message that is sent in place of its length"));
            }
        }
        let window = self.window;
        let number = self.number_of_length(place, sequence, window);
        let wrong = Cause::Sequence {
            kind: "length",
            sequence: if whole { sequence & !Tag::WHOLE } else { sequence },
            expected: length_sequence(&self.config, self.next_length, false),
            window: window as u32,
        };
        self.wait_for_turn(number, Message { came: Came::Length(place), bytes }, wrong)
    }

    /// Stores a message until the lengths of all earlier messages are known.
    fn wait_for_turn(&mut self, number: Option<u64>, message: Message, wrong: Violation) -> Result<(), Violation> {
        let slot = self.slot(number.ok_or(wrong)?);
        if self.lengths[slot].replace(message).is_some() {
            return Err(wrong);
        }
        self.arrived[0] += 1;
        self.sort()
    }

    /// Fast path of [`length`](Inbound::length) for the next message, if it arrives in place of its length and the
    /// message after it has not arrived yet. Returns false, and changes nothing, in all other cases.
    #[inline]
    pub(crate) fn takes_next(&mut self, place: u16, sequence: u32, size: u32) -> bool {
        let config = &self.config;
        let bytes = u64::from(size);
        let fits = config.is_whole(bytes) && bytes <= config.message_bytes;
        // These mutants number lengths differently, which only the slow path implements.
        if mutant!(config.mutant, PostingOrder) {
            return false;
        }
        if mutant!(config.mutant, ArrivalOrder) {
            return false;
        }
        let is_next = fits && sequence == length_sequence(config, self.next_length, true);
        if !is_next || self.lengths[self.slot(self.next_length + 1)].is_some() {
            return false;
        }
        self.next_length += 1;
        self.arrived[0] += 1;
        self.messages.push_back(Message { came: Came::Length(place), bytes });
        true
    }

    /// Returns the slot of `lengths` in which a length waits for earlier ones.
    #[inline]
    fn slot(&self, number: u64) -> usize {
        around(number, self.lengths.len() as u64) as usize
    }

    /// Returns the number of a length, from the tag that completed.
    #[inline]
    fn number_of_length(&self, place: u16, sequence: u32, window: u64) -> Option<u64> {
        let lengths = u64::from(self.config.lengths);
        if mutant!(self.config.mutant, PostingOrder) {
            return Some(self.next_length + (u64::from(place) + lengths - self.next_length % lengths) % lengths);
        }
        if mutant!(self.config.mutant, ArrivalOrder) {
            return self.next_to_arrive();
        }
        numbered_length(&self.config, sequence, self.next_length, window)
    }

    /// Returns the message number of a message that is one piece.
    #[inline]
    fn number_alone(&self, sequence: u32) -> Option<u64> {
        if mutant!(self.config.mutant, ArrivalOrder) {
            return self.next_to_arrive();
        }
        numbered_alone(&self.config, sequence, self.next_length, self.window)
    }

    /// Returns the first number whose length has not arrived.
    fn next_to_arrive(&self) -> Option<u64> {
        let mut numbers = self.next_length..self.next_length + self.window;
        numbers.find(|number| self.lengths[self.slot(*number)].is_none())
    }

    /// Returns the sequence of the next message that arrives in this slot. Valid only with [`Scheme::Counted`], in
    /// which the slot determines the sequence.
    pub(crate) fn sequence_at(&self, kind: Kind, place: u16) -> u32 {
        let (next, window) = match kind {
            Kind::Payload => (self.read, self.pieces.size()),
            _ => (self.next_length, u64::from(self.config.lengths)),
        };
        let ahead = around(u64::from(place) + window - around(next, window), window);
        sequence_of(&self.config, next + ahead)
    }

    /// Moves messages to `messages` as long as the next length is known.
    #[inline]
    fn sort(&mut self) -> Result<(), Violation> {
        loop {
            let slot = self.slot(self.next_length);
            let Some(message) = self.lengths[slot].take() else { return Ok(()) };
            if matches!(message.came, Came::Alone(piece) if piece != self.announced) {
                return Err(Cause::Nonsense("it sent a message as one piece, but not as the next piece"));
            }
            let (bytes, by_pieces) = (message.bytes, self.config.scheme == Scheme::LengthPayload);
            self.next_length += if by_pieces { self.config.pieces_of(bytes) } else { 1 };
            // If the message could have been sent without a length, the peer had no credit or no free slot for a piece.
            let was_short = matches!(message.came, Came::Length(_)) && self.config.is_alone(bytes);
            self.announce(self.config.pieces_of(bytes), was_short);
            self.messages.push_back(message);
        }
    }

    fn announce(&mut self, pieces: u64, was_short: bool) {
        self.announced += pieces;
        if pieces > 0 {
            let more = if was_short { 2 * self.ahead } else { 0 };
            let wanted = (self.announced - self.read).max(first_pieces(&self.config)).max(more);
            self.ahead = self.ahead.max(wanted.min(self.pieces.size()));
        }
    }

    /// Records the completion of a receive for a piece.
    pub(crate) fn payload(&mut self, place: u16, sequence: u32, size: u32) -> Result<(), Violation> {
        let window = self.pieces.size();
        let number = numbered_piece(&self.config, sequence, self.read, window);
        // The tag identifies the piece, but its bytes are in the slot of the receive that completed.
        let number = number.filter(|number| self.placed[self.pieces.place(*number)].0 == place);
        let Some(number) = number.filter(|number| *number < self.posted[1] && self.pieces.mark(*number)) else {
            let expected = piece_sequence(&self.config, self.read);
            return Err(Cause::Sequence { kind: "payload", sequence, expected, window: window as u32 });
        };
        self.placed[self.pieces.place(number)].1 = size;
        self.arrived[1] += 1;
        let alone = self.config.scheme == Scheme::Eager && sequence & Tag::WHOLE != 0;
        if alone { self.message(number, sequence, size) } else { Ok(()) }
    }

    /// Records a piece that is a whole message.
    fn message(&mut self, piece: u64, sequence: u32, size: u32) -> Result<(), Violation> {
        let (bytes, limit) = (u64::from(size), self.config.message_bytes);
        if bytes > limit {
            return Err(Cause::TooLong { bytes, limit });
        }
        if !self.config.is_alone(bytes) {
            return Err(Cause::Nonsense("it sent a message as one piece that is sent in place of its length"));
        }
        let window = self.window as u32;
        let expected = alone_sequence(&self.config, self.next_length, self.announced);
        let wrong = Cause::Sequence { kind: "message", sequence, expected, window };
        self.wait_for_turn(self.number_alone(sequence), Message { came: Came::Alone(piece), bytes }, wrong)
    }

    /// Checks the size of a message of the fabric. With [`Scheme::Counted`] the size may be padded to a multiple of 8
    /// bytes.
    fn check_size(&self, kind: &'static str, size: u32, expected: u32) -> Result<(), Violation> {
        let padded = expected.next_multiple_of(8);
        let fine = size == expected || self.config.scheme == Scheme::Counted && size == padded;
        if fine { Ok(()) } else { Err(Cause::Size { kind, bytes: u64::from(size), expected: u64::from(expected) }) }
    }

    /// Returns the message to read next, once its length has arrived.
    pub(crate) fn incoming(&self) -> Option<Incoming> {
        self.messages.front().map(|message| Incoming { number: self.number, bytes: message.bytes })
    }

    /// Returns the number of messages that were read.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Returns the next part of the message that is being read, if it has arrived.
    #[inline]
    pub(crate) fn piece(&self) -> Result<Option<Piece>, Violation> {
        let Some(message) = self.messages.front() else { return Ok(None) };
        if self.config.is_inline(message.bytes) {
            let Came::Length(place) = message.came else { return Ok(None) };
            let op = Op { way: Way::Recv, kind: Kind::Length, place };
            let at = if self.config.is_whole(message.bytes) { 0 } else { LENGTH_BYTES };
            return Ok(Some(Piece { op, at, bytes: message.bytes as u32, last: true }));
        }
        if !self.pieces.is_done(self.read) {
            return Ok(None);
        }
        let left = message.bytes - self.offset;
        let bytes = left.min(u64::from(self.config.piece_bytes)) as u32;
        let (place, size) = self.placed[self.pieces.place(self.read)];
        self.check_size("payload", size, bytes)?;
        let op = Op { way: Way::Recv, kind: Kind::Payload, place };
        Ok(Some(Piece { op, at: 0, bytes, last: u64::from(bytes) == left }))
    }

    /// Frees the slot of a part that was read.
    #[inline]
    pub(crate) fn consume(&mut self, piece: &Piece) {
        if piece.op.kind == Kind::Payload {
            self.read += 1;
            if self.config.scheme != Scheme::Counted {
                self.free_pieces.push(piece.op.place);
            }
            self.offset += u64::from(piece.bytes);
        }
        if piece.last {
            match self.messages.pop_front().map(|message| message.came) {
                Some(Came::Length(place)) => self.free.push_back(place),
                Some(Came::Alone(_)) => self.alone += 1,
                None => {}
            }
            self.number += 1;
            self.offset = 0;
        }
    }

    /// Returns whether exactly `total` lengths and pieces have arrived.
    pub(crate) fn has_all(&self, total: [u64; 2]) -> bool {
        self.arrived == total
    }

    /// Returns whether more than `total` lengths or pieces have arrived.
    pub(crate) fn has_more_than(&self, total: [u64; 2]) -> bool {
        self.arrived[0] > total[0] || self.arrived[1] > total[1]
    }

    /// Returns whether no message is ready to be read. Messages whose predecessors have not arrived do not count.
    pub(crate) fn is_read(&self) -> bool {
        self.messages.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Posts every receive that may be posted. Returns the number of receives for pieces that are then outstanding.
    fn pieces_posted(inbound: &mut Inbound) -> u64 {
        while inbound.next_recv().is_some() {}
        inbound.posted[1] - inbound.arrived[1]
    }

    #[test]
    fn receives_for_pieces_follow_announced_pieces() {
        let config = Config { pieces: 16, piece_bytes: 64, eager_bytes: 8, ..Config::default() };
        let mut inbound = Inbound::new(&config);
        assert_eq!(pieces_posted(&mut inbound), 0);
        assert!(inbound.takes_next(0, length_sequence(&config, 0, true), 8));
        assert_eq!(pieces_posted(&mut inbound), 0);
        let short = inbound.piece().unwrap().expect("the piece has arrived");
        inbound.consume(&short);
        let mut number = 0;
        let mut places = std::collections::BTreeSet::new();
        // Each pair is the number of pieces of a message, and the number of receives that are posted ahead afterwards.
        for (n, (pieces, ahead)) in [(1, 4), (3, 4), (4, 4), (20, 16), (1, 16)].into_iter().enumerate() {
            inbound.length(1, length_sequence(&config, n as u64 + 1, false), 8, pieces * 64).unwrap();
            assert_eq!((pieces_posted(&mut inbound), inbound.windows()), (ahead, [32, ahead]));
            for _ in 0..pieces {
                let place = inbound.placed[inbound.pieces.place(number)].0;
                inbound.payload(place, piece_sequence(&config, number), 64).unwrap();
                let piece = inbound.piece().unwrap().expect("the piece has arrived");
                assert_eq!(piece.op.place, place);
                places.insert(place);
                inbound.consume(&piece);
                assert_eq!(pieces_posted(&mut inbound), ahead);
                number += 1;
            }
            assert!(places.len() as u64 <= ahead, "slots {places:?} were used instead of the last freed slot");
        }
    }

    /// Delivers a message of one piece to `inbound`, with or without a length in front, and reads the message.
    fn one_piece(inbound: &mut Inbound, number: u64, alone: bool) {
        let config = inbound.config;
        let place = inbound.placed[inbound.pieces.place(number)].0;
        let sequence = if alone {
            alone_sequence(&config, number, number)
        } else {
            let length = inbound.free.front().copied().unwrap_or(0);
            inbound.length(length, length_sequence(&config, number, false), 8, 64).unwrap();
            piece_sequence(&config, number)
        };
        pieces_posted(inbound);
        let place = if alone { place } else { inbound.placed[inbound.pieces.place(number)].0 };
        let granted = inbound.granted();
        inbound.payload(place, sequence, 64).unwrap();
        assert_eq!(inbound.granted(), granted, "credits for a message that was not read");
        assert_eq!(inbound.incoming(), Some(Incoming { number, bytes: 64 }));
        let piece = inbound.piece().unwrap().expect("the piece has arrived");
        assert!(piece.last && piece.bytes == 64);
        inbound.consume(&piece);
        pieces_posted(inbound);
    }

    /// A message of one piece without a length uses no receive for a length, but the credit for a length that it
    /// consumed is granted again. Sequences wrap during the test.
    #[test]
    fn single_piece_message_returns_its_credits() {
        let first_sequence = u32::MAX - 2;
        let config = Config { pieces: 16, piece_bytes: 64, eager_bytes: 8, first_sequence, ..Config::default() };
        let mut inbound = Inbound::new(&config);
        pieces_posted(&mut inbound);
        one_piece(&mut inbound, 0, false);
        for number in 1..100_000 {
            one_piece(&mut inbound, number, true);
            assert_eq!(inbound.granted(), [32 + number + 1, 4 + number + 1]);
        }
        assert_eq!((inbound.posted[0], inbound.windows()), (32 + 16 + 1, [32, 4]));
    }

    /// A peer that sends a length for a message of one piece may have lacked a receive for the piece, so this end
    /// doubles the number of receives.
    #[test]
    fn peer_short_of_receives_gets_twice_as_many() {
        let config = Config { pieces: 13, piece_bytes: 64, eager_bytes: 8, ..Config::default() };
        let mut inbound = Inbound::new(&config);
        pieces_posted(&mut inbound);
        let mut ahead = Vec::new();
        for (number, alone) in [false, true, false, true, false, false].into_iter().enumerate() {
            one_piece(&mut inbound, number as u64, alone);
            ahead.push(inbound.windows()[1]);
        }
        assert_eq!(ahead, [4, 4, 8, 8, 13, 13]);
    }

    #[test]
    fn length_of_single_piece_message_is_checked() {
        let base = Config { pieces: 4, piece_bytes: 64, eager_bytes: 8, message_bytes: 40, ..Config::default() };
        let of = |config: Config, bytes| {
            let mut inbound = Inbound::new(&config);
            inbound.length(0, length_sequence(&config, 0, false), 8, 9).unwrap();
            pieces_posted(&mut inbound);
            let place = inbound.placed[1].0;
            (inbound.payload(place, alone_sequence(&config, 1, 1), bytes), inbound.arrived)
        };
        assert_eq!(of(base, 40), (Ok(()), [2, 1]));
        assert_eq!(of(base, 41).0, Err(Cause::TooLong { bytes: 41, limit: 40 }));
        assert!(matches!(of(base, 8).0, Err(Cause::Nonsense(_))));
        assert_eq!(of(base, 9).0, Ok(()));
    }

    /// The list of free slots does not grow beyond the number of slots, however many pieces arrive. With
    /// [`Scheme::Counted`] it does not change.
    #[test]
    fn free_slots_never_exceed_all_slots() {
        for scheme in Scheme::ALL {
            let config = Config { pieces: 4, piece_bytes: 64, eager_bytes: 8, ..Config::with(scheme) }.normal();
            let mut inbound = Inbound::new(&config);
            inbound.length(0, length_sequence(&config, 0, false), 8, 100 * 64).unwrap();
            for number in 0..100 {
                pieces_posted(&mut inbound);
                let place = inbound.placed[inbound.pieces.place(number)].0;
                inbound.payload(place, piece_sequence(&config, number), 64).unwrap();
                let piece = inbound.piece().unwrap().expect("the piece has arrived");
                inbound.consume(&piece);
                assert!(inbound.free_pieces.len() <= 4, "{scheme:?}: {:?}", inbound.free_pieces);
            }
        }
    }

    #[test]
    fn receive_used_by_control_message_is_no_credit() {
        let mut inbound = Inbound::new(&Config::default());
        pieces_posted(&mut inbound);
        assert_eq!((inbound.posted[0], inbound.granted()), (32 + 16, [32, 0]));
        (0..5).for_each(|place| inbound.stranger(place));
        assert_eq!(inbound.granted()[0], 32);
        pieces_posted(&mut inbound);
        assert_eq!((inbound.posted[0], inbound.granted()[0]), (32 + 16 + 5, 32));
    }
}
