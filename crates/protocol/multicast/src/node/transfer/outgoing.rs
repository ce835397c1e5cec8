//! A transfer at its donor.

use std::collections::VecDeque;
use std::fmt;

use stentor_fabric::ProcessId;
use stentor_fabric::memory::WORD;

use super::{ACKNOWLEDGED_EVERY, Backlog, GivenUp, Name, PIECE_BYTES, Standing, Subject, TransferLetter, WINDOW};
use crate::Incarnation;
use crate::node::frozen::{Frozen, Readiness};

/// The progress of a donor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) enum Stage {
    /// The donor sends the frozen state.
    Snapshot,
    /// The donor sends the deliveries that it has made since the freeze.
    Backlog,
    /// The donor has sent the state machine's state, which ends the transfer.
    Final,
}

#[derive(Debug)]
enum Piece {
    Snapshot(Vec<u8>),
    End(u64),
    Deliveries(Incarnation, Vec<u64>),
}

impl Piece {
    fn bytes(&self) -> u64 {
        (match self {
            Piece::Snapshot(bytes) => bytes.capacity(),
            Piece::End(_) => 0,
            Piece::Deliveries(_, words) => words.capacity() * WORD,
        }) as u64
    }
}

/// A transfer at its donor. See the [module](super).
pub(in crate::node) struct OutgoingTransfer {
    pub(in crate::node) to: ProcessId,
    pub(in crate::node) name: Name,
    /// Number of deliveries that the frozen state contains.
    pub(in crate::node) position: u64,
    pub(in crate::node) stage: Stage,
    /// Tick at which the receiver last made progress, or at which the transfer began.
    pub(in crate::node) heard: u64,
    /// `true` if the connection broke and the receiver has not reported its progress since.
    pub(in crate::node) paused: bool,
    /// The frozen state; `None` when all of it is in pieces.
    frozen: Option<Box<dyn Frozen>>,
    /// Bytes of the frozen state that are in pieces.
    read: u64,
    limit: u64,
    /// Pieces that are not acknowledged.
    pieces: VecDeque<Piece>,
    /// Number of the first unacknowledged piece.
    first: u64,
    /// Number of the next piece to send.
    next: u64,
    /// Number of the snapshot's last piece; 0 before that piece is made.
    end: u64,
}

impl fmt::Debug for OutgoingTransfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutgoingTransfer { to, name, position, stage, read, first, next, .. } = self;
        write!(f, "OutgoingTransfer to {to}: {name:?} of {position}, {stage:?}, {read} bytes read, {first}..{next}")
    }
}

impl OutgoingTransfer {
    pub(in crate::node) fn new(
        to: ProcessId,
        name: Name,
        (position, frozen): (u64, Box<dyn Frozen>),
        limit: u64,
        now: u64,
    ) -> Self {
        OutgoingTransfer {
            to,
            name,
            position,
            stage: Stage::Snapshot,
            heard: now,
            paused: false,
            frozen: Some(frozen),
            read: 0,
            limit,
            pieces: VecDeque::new(),
            first: 1,
            next: 1,
            end: 0,
        }
    }

    /// Returns the number of bytes of the frozen state that were read into pieces.
    pub(in crate::node) fn read(&self) -> u64 {
        self.read
    }

    /// Returns the bytes of the pieces in memory.
    pub(in crate::node) fn bytes(&self) -> u64 {
        self.pieces.iter().map(Piece::bytes).sum()
    }

    /// Returns the next piece to send, if the window allows one and there is something to send. Call
    /// [`advance`](OutgoingTransfer::advance) when it is sent.
    ///
    /// # Errors
    /// Returns the reason to end the transfer if the state is too large, or cannot be written.
    pub(in crate::node) fn next_letter(
        &mut self,
        backlog: &mut Backlog,
    ) -> Result<Option<TransferLetter<'_>>, GivenUp> {
        if self.paused || self.stage == Stage::Final {
            return Ok(None);
        }
        if self.next == self.first + self.pieces.len() as u64 {
            if self.pieces.len() >= WINDOW {
                return Ok(None);
            }
            let Some(piece) = self.make_piece(backlog)? else { return Ok(None) };
            self.pieces.push_back(piece);
        }
        let (name, position, number) = (self.name, self.position, self.next);
        let piece = self.pieces.get((self.next - self.first) as usize);
        let subject = piece.map(|piece| match piece {
            Piece::Snapshot(bytes) => Subject::Snapshot(bytes),
            Piece::End(total) => Subject::End(*total),
            Piece::Deliveries(origin, words) => Subject::Deliveries(*origin, words),
        });
        Ok(subject.map(|subject| TransferLetter { name, position, number, subject }))
    }

    /// Notes that the piece was sent.
    pub(in crate::node) fn advance(&mut self) {
        self.next += 1;
    }

    fn make_piece(&mut self, backlog: &mut Backlog) -> Result<Option<Piece>, GivenUp> {
        let Some(frozen) = &mut self.frozen else {
            return Ok(backlog.pop().map(|(origin, words)| Piece::Deliveries(origin, words)));
        };
        if let Some(bytes) = frozen.bytes_hint().filter(|bytes| *bytes > self.limit) {
            return Err(GivenUp::TooLarge { bytes, limit: self.limit });
        }
        match frozen.readiness() {
            Readiness::Ready => {}
            Readiness::Pending => return Ok(None),
            Readiness::Failed => return Err(GivenUp::Unwritable),
        }
        let mut bytes = Vec::with_capacity(PIECE_BYTES);
        frozen.read(&mut bytes, PIECE_BYTES);
        if bytes.is_empty() {
            (self.frozen, self.stage) = (None, Stage::Backlog);
            self.end = self.first + self.pieces.len() as u64;
            return Ok(Some(Piece::End(self.read)));
        }
        self.read += bytes.len() as u64;
        if self.read > self.limit {
            return Err(GivenUp::TooLarge { bytes: self.read, limit: self.limit });
        }
        Ok(Some(Piece::Snapshot(bytes)))
    }

    /// Drops the pieces before `next`, which the receiver has consumed. Returns whether there were any.
    fn acknowledge(&mut self, next: u64) -> bool {
        let mut any = false;
        while self.first < next.min(self.next) && self.pieces.pop_front().is_some() {
            self.first += 1;
            any = true;
        }
        any
    }

    /// Handles the receiver's progress report. Returns whether the transfer can continue: the receiver takes part in it
    /// and has all acknowledged pieces, or no piece is acknowledged.
    pub(in crate::node) fn on_standing(&mut self, standing: Standing, now: u64) -> bool {
        match standing.under_way {
            Some((name, next)) if name == self.name && (self.first..=self.next).contains(&next) => {
                if self.acknowledge(next) || self.paused {
                    self.heard = now;
                }
                if std::mem::take(&mut self.paused) {
                    self.next = next;
                }
                true
            }
            // An outdated report: everything before its piece is already acknowledged.
            Some((name, next)) if name == self.name && next < self.first && !self.paused => true,
            // No piece is acknowledged, so all of them can be sent again.
            _ if self.first == 1 => {
                if std::mem::take(&mut self.paused) {
                    self.next = 1;
                }
                true
            }
            _ => false,
        }
    }

    /// Pauses the transfer after its connection broke.
    pub(in crate::node) fn pause(&mut self) {
        self.paused = true;
        self.reopen();
    }

    /// Returns to the backlog, because the receiver could not use the last state. Sends the deliveries made since, and
    /// then the state again.
    pub(in crate::node) fn reopen(&mut self) {
        if self.stage == Stage::Final {
            self.stage = Stage::Backlog;
        }
    }

    /// Returns whether the receiver's application may be restoring the snapshot, which was sent completely. Meanwhile
    /// the receiver does not answer, and may lose its connections because of that.
    pub(in crate::node) fn may_be_restored(&self) -> bool {
        self.end != 0 && self.next > self.end && self.first <= self.end
    }

    /// Returns whether the receiver's application has restored the snapshot.
    pub(in crate::node) fn is_draining(&self) -> bool {
        self.stage != Stage::Snapshot && self.first > self.end
    }

    /// Returns whether the receiver's application has restored the snapshot, and only the state machine's state is left
    /// to send.
    pub(in crate::node) fn is_at_end(&self, backlog: &Backlog) -> bool {
        let sent = self.next == self.first + self.pieces.len() as u64;
        self.stage == Stage::Backlog && !self.paused && self.first > self.end && sent && backlog.is_empty()
    }
}

/// Returns whether the receiver acknowledges the piece with this number, if the piece contains bytes of the snapshot.
/// Pieces without such bytes are always acknowledged.
pub(super) fn is_acknowledged(number: u64) -> bool {
    number.is_multiple_of(ACKNOWLEDGED_EVERY)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::node::app::Delivered;
    use crate::node::frozen::FrozenBytes;
    use crate::{Ballot, ClientId, DestinationGroups, MessageId, Timestamp};

    const NAME: Name = Name { life: 1, freeze: 1, incarnation: Incarnation::FIRST };

    fn outgoing(bytes: usize, limit: u64) -> OutgoingTransfer {
        let frozen = Box::new(FrozenBytes::new((0..bytes).map(|at| at as u8).collect()));
        OutgoingTransfer::new(ProcessId(2), NAME, (4, frozen), limit, 0)
    }

    /// Sends as many pieces as the window allows. Returns their numbers and kinds.
    fn send(outgoing: &mut OutgoingTransfer, backlog: &mut Backlog) -> Vec<(u64, &'static str)> {
        let mut sent = Vec::new();
        while let Some(letter) = outgoing.next_letter(backlog).expect("not too large") {
            let what = match letter.subject {
                Subject::Snapshot(_) => "bytes",
                Subject::End(_) => "end",
                _ => "deliveries",
            };
            sent.push((letter.number, what));
            outgoing.advance();
        }
        sent
    }

    fn waits_for(next: u64) -> Standing {
        Standing { applied: 0, under_way: Some((NAME, next)) }
    }

    fn deliver(backlog: &mut Backlog, number: u64) {
        let (id, timestamp) = (MessageId { client: ClientId(0), sequence: number }, Timestamp { time: 1, group: 0 });
        let groups = DestinationGroups::from_words(&[0]);
        let (ballot, origin) = (Ballot::from_word(1), Incarnation::FIRST);
        backlog.push(&Delivered { id, timestamp, number, ballot, origin, groups, enveloped: false, payload: b"" });
    }

    #[test]
    fn pieces_wait_for_acknowledgements_and_the_state_for_the_last_of_them() {
        let (mut outgoing, mut backlog) = (outgoing(20 * PIECE_BYTES, 1 << 30), Backlog::new(1 << 20));
        assert_eq!(send(&mut outgoing, &mut backlog).len(), WINDOW);
        assert_eq!(outgoing.bytes(), (WINDOW * PIECE_BYTES) as u64);
        assert!(outgoing.on_standing(waits_for(5), 0));
        assert_eq!(send(&mut outgoing, &mut backlog), [(17, "bytes"), (18, "bytes"), (19, "bytes"), (20, "bytes")]);
        assert!(outgoing.on_standing(waits_for(21), 0));
        deliver(&mut backlog, 5);
        assert_eq!(send(&mut outgoing, &mut backlog), [(21, "end"), (22, "deliveries")]);
        assert!(!outgoing.is_at_end(&backlog) && outgoing.may_be_restored());
        outgoing.pause();
        assert!(outgoing.may_be_restored(), "also after the connection of the silent receiver ended");
        assert!(outgoing.on_standing(waits_for(21), 0));
        assert!(!outgoing.may_be_restored(), "the receiver lacks the last piece");
        assert_eq!(send(&mut outgoing, &mut backlog), [(21, "end"), (22, "deliveries")]);
        assert!(outgoing.on_standing(waits_for(22), 0));
        assert!(outgoing.is_at_end(&backlog) && !outgoing.may_be_restored());
        deliver(&mut backlog, 6);
        assert!(!outgoing.is_at_end(&backlog));
    }

    #[test]
    fn missing_pieces_are_sent_again_after_a_broken_connection() {
        let (mut outgoing, mut backlog) = (outgoing(8 * PIECE_BYTES, 1 << 30), Backlog::new(1 << 20));
        assert_eq!(send(&mut outgoing, &mut backlog).len(), 9);
        assert!(outgoing.on_standing(waits_for(5), 0));
        outgoing.pause();
        assert!(send(&mut outgoing, &mut backlog).is_empty());
        assert!(outgoing.on_standing(waits_for(7), 3));
        assert_eq!(send(&mut outgoing, &mut backlog), [(7, "bytes"), (8, "bytes"), (9, "end")]);
        assert_eq!(outgoing.heard, 3);
        assert!(outgoing.on_standing(waits_for(10), 0));
        // The state was sent and lost, and a message was delivered meanwhile.
        outgoing.stage = Stage::Final;
        outgoing.pause();
        deliver(&mut backlog, 5);
        assert!(outgoing.on_standing(waits_for(10), 0));
        assert_eq!(send(&mut outgoing, &mut backlog), [(10, "deliveries")]);
    }

    #[test]
    fn receiver_that_lost_its_pieces_is_detected() {
        let (mut outgoing, mut backlog) = (outgoing(8 * PIECE_BYTES, 1 << 30), Backlog::new(1 << 20));
        let nothing = Standing { applied: 0, under_way: None };
        send(&mut outgoing, &mut backlog);
        outgoing.pause();
        assert!(outgoing.on_standing(nothing, 0), "all pieces are still there");
        assert_eq!(send(&mut outgoing, &mut backlog).len(), 9);
        assert!(outgoing.on_standing(waits_for(3), 0));
        let other = Standing { applied: 0, under_way: Some((Name { freeze: 2, ..NAME }, 1)) };
        assert!(!outgoing.on_standing(nothing, 0) && !outgoing.on_standing(other, 0));
        outgoing.pause();
        assert!(!outgoing.on_standing(waits_for(2), 0), "that piece was dropped");
        assert!(!outgoing.on_standing(waits_for(11), 0), "that piece was never sent");
    }

    /// A state that another thread writes. It contains the bytes written so far.
    struct Written(Arc<Mutex<(Readiness, Vec<u8>)>>);

    impl Frozen for Written {
        fn read(&mut self, out: &mut Vec<u8>, _: usize) {
            out.append(&mut self.0.lock().unwrap().1);
        }

        fn readiness(&mut self) -> Readiness {
            self.0.lock().unwrap().0
        }
    }

    #[test]
    fn pending_state_is_waited_for_and_a_failed_one_is_given_up() {
        let written = Arc::new(Mutex::new((Readiness::Pending, Vec::new())));
        let frozen = Box::new(Written(Arc::clone(&written)));
        let mut outgoing = OutgoingTransfer::new(ProcessId(2), NAME, (4, frozen), 1 << 20, 0);
        let mut backlog = Backlog::new(1 << 20);
        assert_eq!(send(&mut outgoing, &mut backlog), []);
        *written.lock().unwrap() = (Readiness::Ready, vec![1; 9]);
        assert_eq!(send(&mut outgoing, &mut backlog)[0], (1, "bytes"));
        let written = Arc::new(Mutex::new((Readiness::Failed, Vec::new())));
        let mut outgoing = OutgoingTransfer::new(ProcessId(2), NAME, (4, Box::new(Written(written))), 1 << 20, 0);
        assert_eq!(outgoing.next_letter(&mut backlog).map(|_| ()), Err(GivenUp::Unwritable));
    }

    #[test]
    fn a_state_that_is_too_large_is_refused_before_or_while_it_is_read() {
        let mut backlog = Backlog::new(1 << 20);
        let refused = outgoing(101, 100).next_letter(&mut backlog).map(|_| ());
        assert_eq!(refused, Err(GivenUp::TooLarge { bytes: 101, limit: 100 }));
        /// A state that does not report its length.
        struct Endless;
        impl Frozen for Endless {
            fn read(&mut self, out: &mut Vec<u8>, most: usize) {
                out.resize(most, 1);
            }
        }
        let limit = 3 * PIECE_BYTES as u64;
        let mut endless = OutgoingTransfer::new(ProcessId(2), NAME, (4, Box::new(Endless)), limit, 0);
        for _ in 0..3 {
            assert!(endless.next_letter(&mut backlog).is_ok_and(|letter| letter.is_some()));
            endless.advance();
        }
        let refused = endless.next_letter(&mut backlog).map(|_| ());
        assert_eq!(refused, Err(GivenUp::TooLarge { bytes: limit + PIECE_BYTES as u64, limit }));
    }
}
