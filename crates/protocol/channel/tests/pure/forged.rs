//! A peer that sends any messages that the fabric permits. The attacked end fails with a named cause or continues. It
//! posts no more receives than its windows allow, and reads no slot that has a posted receive.

use proptest::prelude::*;
use stentor_channel::{Cause, Config, Connection, Kind, Notice, Op, Outcome, Recv, Scheme, Tag, Way, What};
use stentor_fabric::ProcessId;

const PIECE_BYTES: u32 = 64;

/// One action of the peer: its kind, and two numbers that determine its details.
type Step = (u8, u32, u32);

/// The attacked end, and the numbers that an honest peer would use next.
struct Victim {
    end: Connection,
    recvs: Vec<Recv>,
    messages: u32,
    pieces: u32,
    controls: u32,
    words: [u64; 8],
}

impl Victim {
    fn new(config: &Config) -> Victim {
        let end = Connection::new(config, ProcessId(1), 5, 1);
        let mut victim = Victim { end, recvs: Vec::new(), messages: 0, pieces: 0, controls: 0, words: [0; 8] };
        victim.post();
        let send = victim.end.next_send().expect("a greeting");
        let What::Control(words) = send.what else { panic!("{send:?}") };
        victim.words = words;
        victim.end.completed(send.op, &Outcome::Sent);
        victim.take(|recv| recv.op.kind == Kind::Greeting, Kind::Greeting, 1, 64, words);
        victim
    }

    fn post(&mut self) {
        self.recvs.extend(std::iter::from_fn(|| self.end.next_recv()));
    }

    /// Completes a matching receive with the message, if there is such a receive.
    fn take(&mut self, fits: impl Fn(&Recv) -> bool, kind: Kind, sequence: u32, bytes: u32, words: [u64; 8]) {
        if let Some(place) = self.recvs.iter().position(fits) {
            let op = self.recvs.remove(place).op;
            self.end.completed(op, &Outcome::Received { kind, sequence, bytes, words });
        }
    }

    fn say(&mut self, kind: Kind, sequence: u32, bytes: u32, words: [u64; 8]) {
        let tag = Tag { connection: 5, kind, sequence };
        self.take(|recv| (recv.tag.bits() ^ tag.bits()) & !recv.ignore == 0, kind, sequence, bytes, words);
    }

    /// Performs one action. Most actions are honest, so that violations also happen late.
    fn step(&mut self, config: &Config, (what, a, b): Step) {
        let lie = if a.is_multiple_of(8) { a >> 8 & 3 } else { 0 };
        let first = config.first_sequence;
        let (message, piece) = (first.wrapping_add(self.messages + lie), first.wrapping_add(self.pieces + (lie & b)));
        let (low, alone) = (piece & 0xffff, Tag::WHOLE | (message & 0x7fff) << Tag::PIECE_BITS);
        match what % 8 {
            0 => {
                self.say(Kind::Length, message | Tag::WHOLE, b % 9 + lie, [u64::MAX; 8]);
                self.messages += 1;
            }
            1 => {
                let bytes = u64::from(9 + b % 250);
                self.say(Kind::Length, message & !Tag::WHOLE, 8 + lie / 3, [bytes; 8]);
                self.messages += 1;
                // The last piece often has a wrong length.
                (0..bytes.div_ceil(64)).for_each(|_| self.piece(first, (bytes as u32).min(64)));
            }
            2 | 3 => {
                self.post();
                self.say(Kind::Payload, alone | low, 9 + b % 56 - lie, [0; 8]);
                (self.messages, self.pieces) = (self.messages + 1, self.pieces + 1);
            }
            4 => self.piece(first, b % (PIECE_BYTES + 1)),
            5 => self.control(a, b),
            6 if b.is_multiple_of(4) => {
                let kind = Kind::ALL[(a & 3) as usize];
                self.say(kind, a, b % (PIECE_BYTES + 1), [u64::from(b); 8]);
            }
            _ => {}
        }
        self.post();
    }

    fn piece(&mut self, first: u32, bytes: u32) {
        self.post();
        self.say(Kind::Payload, first.wrapping_add(self.pieces) & 0xffff, bytes, [0; 8]);
        self.pieces += 1;
    }

    fn control(&mut self, a: u32, b: u32) {
        let mut words = self.words;
        words[3] = u64::from(a >> 4 & 1);
        words[4] = u64::from(if b.is_multiple_of(64) { b } else { 0 });
        // The peer has finished, and announces its totals.
        if a % 16 == 1 {
            words[0] |= 1 << 16;
            (words[5], words[6]) = (u64::from(self.messages), u64::from(self.pieces + (b & 1)));
        }
        let sequence = self.words[2] >> 32;
        self.say(Kind::Control, (sequence as u32).wrapping_add(self.controls), 64, words);
        self.controls += 1;
    }

    /// Reads arrived parts, and posts the operations that are due.
    fn live(&mut self, reads: bool) -> Result<(), TestCaseError> {
        while reads && let Some(piece) = self.end.piece() {
            prop_assert!(!self.end.has_posted(piece.op), "{:?} has a posted receive but is read", piece.op);
            prop_assert!(piece.bytes <= PIECE_BYTES && piece.at == 0);
            self.end.consume(&piece);
        }
        self.post();
        let _ = self.end.begin(30);
        while let Some(send) = self.end.next_send() {
            self.end.completed(send.op, &Outcome::Sent);
        }
        Ok(())
    }

    /// Aborts the end. Checks that it cancels each posted receive once and is then over.
    fn end(mut self) -> Result<Option<Cause>, TestCaseError> {
        self.end.abort();
        self.live(false)?;
        let mut back: Vec<Op> = std::iter::from_fn(|| self.end.next_cancel()).collect();
        // A receive that was cancelled may have been used before the cancel.
        back.retain(|op| self.end.has_posted(*op));
        prop_assert_eq!(back.len(), self.recvs.len(), "each receive is cancelled once");
        back.iter().for_each(|op| self.end.completed(*op, &Outcome::GivenBack));
        prop_assert!(self.end.is_over() && self.end.lent() == 0);
        prop_assert!(back.iter().all(|op| op.way == Way::Recv));
        Ok(std::iter::from_fn(|| self.end.next_notice()).find_map(|notice| match notice {
            Notice::Failed(error) => Some(error.cause),
            _ => None,
        }))
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    prop::collection::vec((any::<u8>(), any::<u32>(), any::<u32>()), 0..150)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn forged_messages_fail_by_name_or_are_harmless(
        lengths in 1_u32..6, pieces in 1_u32..6,
        first_sequence in prop_oneof![Just(0), Just(u32::MAX - 9), Just((1 << 15) - 9)], steps in steps(), reads: bool,
    ) {
        let config = Config {
            lengths, pieces, first_sequence, piece_bytes: PIECE_BYTES, eager_bytes: 8, message_bytes: 1 << 20,
            ..Config::with(Scheme::Eager)
        };
        let mut victim = Victim::new(&config);
        for step in steps {
            victim.step(&config, step);
            victim.live(reads || step.0 > 99)?;
            let of = |kind| victim.recvs.iter().filter(|recv| recv.op.kind == kind).count() as u32;
            prop_assert!(of(Kind::Length) <= lengths + 16 && of(Kind::Payload) <= pieces);
        }
        victim.end()?;
    }
}
