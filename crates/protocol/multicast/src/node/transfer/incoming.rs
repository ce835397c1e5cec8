//! A transfer at its receiver.

use std::collections::VecDeque;

use stentor_fabric::ProcessId;
use stentor_fabric::memory::WORD;

use super::outgoing::is_acknowledged;
use super::{GivenUp, Name, StateReader, Subject, TransferLetter};
use crate::Incarnation;

/// The consequence of a piece.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) enum Taken<'a> {
    /// The piece is not the next one.
    Ignored,
    /// The piece was kept.
    Kept,
    /// The snapshot is complete.
    Whole,
    /// The application must make these deliveries.
    Deliveries(&'a [u64]),
    /// The transfer must end.
    Refused(GivenUp),
}

/// A transfer at its receiver. See the [module](super).
#[derive(Debug)]
pub(in crate::node) struct IncomingTransfer {
    pub(in crate::node) from: ProcessId,
    pub(in crate::node) name: Name,
    /// Number of deliveries that the frozen state contains.
    pub(in crate::node) position: u64,
    /// Tick at which the first piece arrived.
    pub(in crate::node) began: u64,
    /// Tick at which the transfer last made progress: a piece was accepted, or the application had room again.
    pub(in crate::node) heard: u64,
    /// `true` if an acknowledgement is due.
    pub(in crate::node) answers: bool,
    /// `true` if the state machine's state arrived, which ends the transfer.
    pub(in crate::node) done: bool,
    /// Number of the next piece.
    next: u64,
    /// `true` if the snapshot is complete and was passed to the application.
    restored: bool,
    /// `true` if the application is still restoring the snapshot.
    restoring: bool,
    /// Deliveries for which the application had no room. Each element holds the deliveries of one piece.
    held_back: VecDeque<Vec<u64>>,
    /// Origin of the history of the deliveries, which does not change during a transfer.
    pub(in crate::node) origin: Incarnation,
    /// The snapshot, in the chunks in which it arrived.
    chunks: VecDeque<Vec<u8>>,
    received: u64,
    limit: u64,
}

impl IncomingTransfer {
    /// Starts with the first piece of a transfer.
    pub(in crate::node) fn new(from: ProcessId, first: &TransferLetter<'_>, limit: u64, now: u64) -> Self {
        IncomingTransfer {
            from,
            name: first.name,
            position: first.position,
            began: now,
            heard: now,
            answers: false,
            done: false,
            next: 1,
            restored: false,
            restoring: false,
            held_back: VecDeque::new(),
            origin: Incarnation::NONE,
            chunks: VecDeque::new(),
            received: 0,
            limit,
        }
    }

    /// Returns whether a transfer letter belongs to this transfer.
    pub(in crate::node) fn is_named(&self, from: ProcessId, name: Name) -> bool {
        self.from == from && self.name == name
    }

    /// Returns the number of the piece that the receiver waits for, as reported to the donor: the application has
    /// consumed all pieces before it.
    pub(in crate::node) fn next(&self) -> u64 {
        self.next - self.held_back.len() as u64 - u64::from(self.restoring)
    }

    /// Returns whether the application has not consumed all pieces that arrived.
    pub(in crate::node) fn is_held_back(&self) -> bool {
        self.restoring || !self.held_back.is_empty()
    }

    /// Returns whether the application is still restoring the snapshot.
    pub(in crate::node) fn is_restoring(&self) -> bool {
        self.restoring
    }

    /// Notes that the application restores the snapshot in the background. It has room again when it has finished;
    /// until then the donor gets no acknowledgement.
    pub(in crate::node) fn restores(&mut self) {
        (self.restoring, self.answers) = (true, false);
    }

    /// Keeps deliveries for which the application has no room: at most a window of pieces, which the donor does not
    /// exceed.
    pub(in crate::node) fn hold_back(&mut self, words: Vec<u64>) {
        self.answers = false;
        self.held_back.push_back(words);
    }

    /// Notes that the application has room again. Returns whether a piece was held back. If so, the donor gets an
    /// acknowledgement.
    pub(in crate::node) fn settle(&mut self, now: u64) -> bool {
        let any = self.is_held_back();
        if any {
            self.heard = now;
        }
        self.restoring = false;
        self.answers |= any;
        any
    }

    /// Returns the next deliveries that were held back.
    pub(in crate::node) fn next_held_back(&mut self) -> Option<Vec<u64>> {
        self.held_back.pop_front()
    }

    /// Returns the bytes of the snapshot that arrived.
    pub(in crate::node) fn received(&self) -> u64 {
        self.received
    }

    /// Returns the bytes in use.
    pub(in crate::node) fn bytes(&self) -> u64 {
        let held_back: usize = self.held_back.iter().map(|words| words.capacity() * WORD).sum();
        (if self.restored { 0 } else { self.received }) + held_back as u64
    }

    /// Processes a piece of this transfer.
    pub(in crate::node) fn take<'a>(&mut self, letter: &TransferLetter<'a>, now: u64) -> Taken<'a> {
        if letter.number != self.next || letter.position != self.position {
            // A repeated piece means that its acknowledgement was lost.
            self.answers |= letter.number < self.next;
            return Taken::Ignored;
        }
        let taken = match letter.subject {
            Subject::Snapshot(bytes) if !self.restored => {
                self.received += bytes.len() as u64;
                if self.received > self.limit {
                    return Taken::Refused(GivenUp::TooLarge { bytes: self.received, limit: self.limit });
                }
                self.chunks.push_back(bytes.to_vec());
                self.answers |= is_acknowledged(letter.number);
                Taken::Kept
            }
            Subject::End(total) if !self.restored && total == self.received => {
                (self.restored, self.answers) = (true, true);
                Taken::Whole
            }
            Subject::Deliveries(origin, words) if self.restored => {
                (self.answers, self.origin) = (true, origin);
                Taken::Deliveries(words)
            }
            _ => return Taken::Refused(GivenUp::Abandoned),
        };
        self.next += 1;
        self.heard = now;
        taken
    }

    /// Processes a piece of any transfer, for the mutant that mixes transfers.
    pub(in crate::node) fn take_any<'a>(
        &mut self,
        from: ProcessId,
        letter: &TransferLetter<'a>,
        now: u64,
    ) -> Taken<'a> {
        (self.from, self.name, self.position) = (from, letter.name, letter.position);
        self.take(letter, now)
    }

    /// Returns a reader of the complete snapshot.
    pub(in crate::node) fn snapshot(&mut self) -> StateReader<'_> {
        StateReader::new(&mut self.chunks)
    }

    /// Drops the snapshot, which is no longer needed.
    pub(in crate::node) fn forget_snapshot(&mut self) {
        self.chunks = VecDeque::new();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Name = Name { life: 3, freeze: 1, incarnation: Incarnation::FIRST };

    fn piece(number: u64, subject: Subject<'_>) -> TransferLetter<'_> {
        TransferLetter { name: NAME, position: 7, number, subject }
    }

    fn incoming(limit: u64) -> IncomingTransfer {
        IncomingTransfer::new(ProcessId(0), &piece(1, Subject::End(0)), limit, 0)
    }

    #[test]
    fn pieces_count_once_and_in_their_order() {
        let mut incoming = incoming(100);
        let mut take = |letter: TransferLetter<'static>| incoming.take(&letter, 0);
        assert_eq!(take(piece(2, Subject::Snapshot(b"second"))), Taken::Ignored);
        assert_eq!(take(piece(1, Subject::Snapshot(b"first "))), Taken::Kept);
        assert_eq!(take(piece(1, Subject::Snapshot(b"first "))), Taken::Ignored);
        assert_eq!(take(piece(2, Subject::Snapshot(b"second"))), Taken::Kept);
        assert_eq!(take(piece(3, Subject::End(12))), Taken::Whole);
        assert_eq!(take(piece(4, Subject::Deliveries(Incarnation::FIRST, &[1]))), Taken::Deliveries(&[1]));
        assert_eq!((incoming.next(), incoming.bytes()), (5, 0));
        assert_eq!(incoming.snapshot().read_to_end(), b"first second");
    }

    #[test]
    fn invalid_pieces_end_the_transfer() {
        let too_large = Taken::Refused(GivenUp::TooLarge { bytes: 5, limit: 4 });
        assert_eq!(incoming(4).take(&piece(1, Subject::Snapshot(b"12345")), 0), too_large);
        let refused = Taken::Refused(GivenUp::Abandoned);
        for lie in [Subject::End(1), Subject::Deliveries(Incarnation::FIRST, &[1]), Subject::Query] {
            assert_eq!(incoming(4).take(&piece(1, lie), 0), refused, "{lie:?}");
        }
        let mut incoming = incoming(4);
        assert_eq!(incoming.take(&piece(1, Subject::End(0)), 0), Taken::Whole);
        assert_eq!(incoming.take(&piece(2, Subject::Snapshot(b"1")), 0), refused);
    }

    #[test]
    fn lost_acknowledgement_is_repeated() {
        let mut incoming = incoming(100);
        incoming.take(&piece(1, Subject::Snapshot(b"x")), 0);
        assert!(!incoming.answers, "not each one is acknowledged");
        incoming.take(&piece(1, Subject::Snapshot(b"x")), 0);
        assert!(incoming.answers);
    }
}
