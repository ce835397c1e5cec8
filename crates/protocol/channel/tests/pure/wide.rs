//! Tests with the widest windows and with sequences that wrap. More messages are in flight than in the exhaustive
//! searches.

use std::collections::BTreeMap;

use stentor_channel::{Config, Connection, Kind, MAX_WINDOW, Notice, Op, Outcome, Tag, What};
use stentor_fabric::ProcessId;

/// Pseudo-random numbers from a fixed seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % limit
    }
}

/// One end, and its operations in the fabric.
struct End {
    connection: Connection,
    /// Receives that match any sequence.
    lengths: Vec<Op>,
    /// Receives for pieces, by the sequence bits that they do not ignore.
    pieces: BTreeMap<u32, Op>,
    greeting: Option<Op>,
    /// Sends whose completion is not reported yet.
    sent: Vec<Op>,
    /// Messages of the fabric in flight to the other end, each with the number of the channel's message to which it
    /// belongs.
    flying: Vec<(Tag, What, u64)>,
    controls: Vec<(Tag, What)>,
    written: u64,
    /// Largest number of lengths and pieces in flight at a time.
    most: usize,
}

impl End {
    fn new(config: &Config, peer: u16) -> End {
        let connection = Connection::new(config, ProcessId(peer), 5, 1);
        let (lengths, pieces, greeting) = (Vec::new(), BTreeMap::new(), None);
        let (sent, flying, controls) = (Vec::new(), Vec::new(), Vec::new());
        End { connection, lengths, pieces, greeting, sent, flying, controls, written: 0, most: 0 }
    }

    /// Posts all operations that may be posted. `message` is the number of the message that is being written.
    fn drive(&mut self, message: u64) {
        while let Some(recv) = self.connection.next_recv() {
            match recv.op.kind {
                Kind::Greeting => self.greeting = Some(recv.op),
                Kind::Payload => {
                    let exact = recv.tag.sequence & !(recv.ignore as u32);
                    assert_eq!(self.pieces.insert(exact, recv.op), None, "two receives for one piece");
                }
                _ => self.lengths.push(recv.op),
            }
        }
        while let Some(send) = self.connection.next_send() {
            self.sent.push(send.op);
            match send.what {
                What::Control(_) => self.controls.push((send.tag, send.what)),
                what => self.flying.push((send.tag, what, message)),
            }
        }
        self.most = self.most.max(self.flying.len());
        while let Some(notice) = self.connection.next_notice() {
            match notice {
                Notice::Written(number) => {
                    assert_eq!(number, self.written, "C2");
                    self.written += 1;
                }
                Notice::Failed(error) => panic!("{error}"),
                Notice::Opened | Notice::Closed => {}
            }
        }
    }

    /// Completes the receive that matches `tag`. If no such receive is posted, property C3 is violated.
    fn take(&mut self, tag: Tag, what: What, dice: &mut Dice) -> Op {
        let op = match tag.kind {
            Kind::Payload => self.pieces.remove(&(tag.sequence & 0xffff)),
            Kind::Greeting => self.greeting.take(),
            _ if self.lengths.is_empty() => None,
            _ => Some(self.lengths.swap_remove(dice.below(self.lengths.len()))),
        };
        let op = op.unwrap_or_else(|| panic!("C3: {tag} has no receive"));
        let whole = tag.kind == Kind::Length && tag.sequence & Tag::WHOLE != 0;
        let (bytes, words) = match what {
            What::Length { inline, .. } if whole => (inline, [u64::MAX; 8]),
            What::Length { bytes, .. } => (8, [bytes; 8]),
            What::Payload { bytes, .. } => (bytes, [0; 8]),
            What::Control(words) => (64, words),
        };
        self.connection.completed(op, &Outcome::Received { kind: tag.kind, sequence: tag.sequence, bytes, words });
        op
    }
}

/// Delivers the control messages of both ends at once.
fn swap_controls(from: &mut End, to: &mut End, dice: &mut Dice) {
    for (tag, what) in std::mem::take(&mut from.controls) {
        to.take(tag, what, dice);
    }
    for (tag, what) in std::mem::take(&mut to.controls) {
        from.take(tag, what, dice);
    }
    to.sent.drain(..).for_each(|op| to.connection.completed(op, &Outcome::Sent));
}

/// Writes messages of these lengths from one end to the other. Arrivals and completions happen in random order. Returns
/// the largest number of lengths and pieces in flight at a time.
fn one_way(config: &Config, lengths: &[u64], dice: &mut Dice) -> usize {
    let (mut from, mut to) = (End::new(config, 1), End::new(config, 0));
    // Number and offset of the message part that each slot of the receiver holds.
    let mut memory = BTreeMap::new();
    let (mut begun, mut read, mut offset) = (0_usize, 0, 0);
    let mut turns = 0;
    while read < lengths.len() || from.written < lengths.len() as u64 {
        turns += 1;
        assert!(turns < 1_000_000, "the run does not end");
        from.drive(begun.saturating_sub(1) as u64);
        while from.connection.left().is_none() && begun < lengths.len() {
            from.connection.begin(lengths[begun]).expect("the end is open, and no other message is begun");
            from.drive(begun as u64);
            begun += 1;
        }
        // The writer now has no credits, no slots or no messages left. Let some messages arrive, report some
        // completions, and read some parts.
        for _ in 0..dice.below(from.flying.len() + 1) {
            let (tag, what, message) = from.flying.swap_remove(dice.below(from.flying.len()));
            let offset = if let What::Payload { offset, .. } = what { offset } else { 0 };
            memory.insert(to.take(tag, what, dice), (message, offset));
        }
        for _ in 0..dice.below(from.sent.len() + 1) {
            let op = from.sent.swap_remove(dice.below(from.sent.len()));
            from.connection.completed(op, &Outcome::Sent);
        }
        for _ in 0..dice.below(2 * from.most + 2) {
            let Some(piece) = to.connection.piece() else { break };
            let bytes = to.connection.incoming().expect("a part of it is being read").bytes;
            assert_eq!((memory[&piece.op], bytes), ((read as u64, offset), lengths[read]), "C1");
            offset += u64::from(piece.bytes);
            assert_eq!(piece.last, offset == bytes);
            (read, offset) = if piece.last { (read + 1, 0) } else { (read, offset) };
            to.connection.consume(&piece);
        }
        to.drive(0);
        swap_controls(&mut from, &mut to, dice);
    }
    from.most
}

/// Writes messages that are sent in place of their length, as one piece, and as several pieces, while every field of
/// the tags wraps.
#[test]
fn widest_windows_work_while_numbers_wrap() {
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    for (lengths, pieces) in [(MAX_WINDOW, MAX_WINDOW), (MAX_WINDOW, 3), (5, MAX_WINDOW), (100, 70)] {
        for first_sequence in [u32::MAX - 900, (1 << 31) - 900, (1 << 16) - 900, 5 * (1 << 15) - 900] {
            let config =
                Config { lengths, pieces, first_sequence, piece_bytes: 64, eager_bytes: 8, ..Config::default() };
            let messages: Vec<u64> =
                (0..10_000).map(|_| [3, 9, 30, 64, 64, 64, 64, 64, 64, 65, 200][dice.below(11)]).collect();
            let most = one_way(&config, &messages, &mut dice);
            assert!(
                most > lengths.min(pieces) as usize / 2,
                "{lengths}, {pieces}: only {most} messages were in flight"
            );
        }
    }
}
