//! A state that is given to observers: to all that wait for one, together.
//!
//! The value is frozen once for all of them, at most once in [`PAUSE`], and its pieces are written as they are taken. So the state takes
//! [`WINDOW`] pieces of memory, whatever its size and however many take it, and what a frozen value holds is held by one of them. All go at
//! the pace of the slowest, so one that is too slow is put out.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use stentor_multicast::{Frozen, Readiness};

use crate::node::state_writer::StateWriter;
use crate::observer::frame::MOST;
use crate::observer::place::Place;

/// Pieces that are there at once, at most.
const WINDOW: usize = 16;
/// The time between two freezes, at least. Whoever comes within it takes part, as long as the first piece is there.
const PAUSE: Duration = Duration::from_secs(1);
/// An observer is given so much time, and a second more for so many bytes.
const GRACE: Duration = Duration::from_secs(10);
const BYTES_PER_SECOND: u64 = 1 << 20;

/// What an observer gets next of a state.
pub(super) enum Next<'a> {
    /// It is not there yet.
    Waits,
    Begins(Place),
    Piece(&'a [u8]),
    /// All pieces were taken. The state had so many bytes.
    End(Place, u64),
    /// It cannot be written.
    Failed,
}

/// How far an observer is with a state.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    /// The number of the convoy.
    convoy: u64,
    begun: bool,
    piece: usize,
    bytes: u64,
    since: Instant,
}

/// The state.
pub(super) struct Convoy {
    number: u64,
    asked: Instant,
    /// The place of the value, and what writes it; `None`: it is not frozen yet.
    frozen: Option<(Place, Option<StateWriter>)>,
    pieces: VecDeque<Vec<u8>>,
    /// Pieces that all have taken.
    taken: usize,
    bytes: u64,
    is_whole: bool,
    failed: bool,
}

impl Convoy {
    pub(super) fn new(number: u64, now: Instant) -> Self {
        let (frozen, pieces) = (None, VecDeque::new());
        Convoy { number, asked: now, frozen, pieces, taken: 0, bytes: 0, is_whole: false, failed: false }
    }

    /// The value is frozen; or it cannot be, or nobody can write it.
    pub(super) fn begin(&mut self, place: Place, writer: Option<StateWriter>) {
        self.failed |= writer.is_none();
        self.frozen = Some((place, writer));
    }

    /// Returns the place of the value, once it is frozen.
    pub(super) fn place(&self) -> Option<Place> {
        self.frozen.as_ref().map(|(place, _)| *place)
    }

    /// Lets one more take part, if it is not too late for that.
    pub(super) fn join(&self, now: Instant) -> Option<Ticket> {
        let is_early = now.saturating_duration_since(self.asked) < PAUSE || self.frozen.is_none();
        let ticket = Ticket { convoy: self.number, begun: false, piece: 0, bytes: 0, since: now };
        (is_early && self.taken == 0 && !self.failed).then_some(ticket)
    }

    /// Returns whether its next piece is about to be there, of which nobody tells.
    pub(super) fn is_being_written(&self) -> bool {
        self.frozen.is_some() && !self.is_whole && !self.failed && self.pieces.len() < WINDOW
    }

    /// Returns whether it is over: nobody takes part, and the next freeze may be.
    pub(super) fn is_over(&self, tickets: usize, now: Instant) -> bool {
        tickets == 0 && now.saturating_duration_since(self.asked) >= PAUSE
    }

    /// Writes pieces as there is room, and drops those that all have taken. `least`: the piece that the slowest takes next.
    pub(super) fn pump(&mut self, least: Option<usize>, now: Instant) {
        let Some((_, Some(writer))) = &mut self.frozen else { return };
        while !self.is_whole && !self.failed && self.pieces.len() < WINDOW {
            match writer.readiness() {
                Readiness::Pending => break,
                Readiness::Failed => self.failed = true,
                Readiness::Ready => {
                    let mut piece = Vec::new();
                    writer.read(&mut piece, MOST);
                    self.bytes += piece.len() as u64;
                    self.is_whole = piece.is_empty();
                    if !self.is_whole {
                        self.pieces.push_back(piece);
                    }
                }
            }
        }
        // A state that fits into the window stays for those who come a little later.
        let may_drop = self.pieces.len() == WINDOW || now.saturating_duration_since(self.asked) >= PAUSE;
        while may_drop && least.is_some_and(|least| self.taken < least) && self.pieces.pop_front().is_some() {
            self.taken += 1;
        }
    }

    /// Returns what comes next for one that takes part. `None`: it does not, or is too slow.
    pub(super) fn next(&self, ticket: &Ticket, now: Instant) -> Option<Next<'_>> {
        if ticket.convoy != self.number || ticket.piece < self.taken {
            return None;
        }
        if self.failed {
            return Some(Next::Failed);
        }
        let Some((place, _)) = &self.frozen else { return Some(Next::Waits) };
        if !ticket.begun {
            return Some(Next::Begins(*place));
        }
        if let Some(piece) = self.pieces.get(ticket.piece - self.taken) {
            let took = now.saturating_duration_since(ticket.since).saturating_sub(GRACE);
            let is_slow = took.as_secs().saturating_mul(BYTES_PER_SECOND) > ticket.bytes;
            return (!is_slow).then_some(Next::Piece(piece));
        }
        Some(if self.is_whole { Next::End(*place, self.bytes) } else { Next::Waits })
    }

    /// Returns whether one has had its time, and has not taken enough. Called also where it takes nothing.
    pub(super) fn is_slow(&self, ticket: &Ticket, now: Instant) -> bool {
        self.frozen.is_some()
            && ticket.piece - self.taken.min(ticket.piece) < self.pieces.len()
            && self.next(ticket, now).is_none()
    }
}

impl Ticket {
    /// The piece that comes next.
    pub(super) fn piece(&self) -> usize {
        self.piece
    }

    /// The state was begun, or a piece of so many bytes was taken.
    pub(super) fn advance(&mut self, bytes: Option<usize>) {
        match bytes {
            None => self.begun = true,
            Some(bytes) => {
                self.piece += 1;
                self.bytes += bytes as u64;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use super::*;
    use crate::node::journal::logged;

    struct Long(usize);

    impl crate::Frozen for Long {
        fn write(self, out: &mut dyn Write) -> io::Result<()> {
            (0..self.0).try_for_each(|at| out.write_all(&[at as u8]))
        }
    }

    fn frozen(bytes: usize) -> Option<StateWriter> {
        Some(StateWriter::begin(("a", &logged("a")), Long(bytes)))
    }

    /// Takes everything that is there.
    fn take(convoy: &Convoy, ticket: &mut Ticket, now: Instant, into: &mut Vec<u8>) -> Option<u64> {
        loop {
            match convoy.next(ticket, now).expect("it takes part") {
                Next::Waits => return None,
                Next::Begins(_) => ticket.advance(None),
                Next::Piece(piece) => {
                    into.extend_from_slice(piece);
                    ticket.advance(Some(piece.len()));
                }
                Next::End(_, bytes) => return Some(bytes),
                Next::Failed => panic!("it can be written"),
            }
        }
    }

    #[test]
    fn all_that_take_part_get_the_whole_state_at_the_pace_of_the_slowest() {
        let (now, long) = (Instant::now(), 40 * MOST + 7);
        let mut convoy = Convoy::new(1, now);
        let mut tickets = [convoy.join(now).expect("early"), convoy.join(now).expect("early")];
        let mut taken = [Vec::new(), Vec::new()];
        convoy.begin(Place::default(), frozen(long));
        let mut ends = [None, None];
        while ends != [Some(long as u64); 2] {
            assert!(now.elapsed() < Duration::from_secs(20), "it hangs");
            convoy.pump(tickets.iter().map(Ticket::piece).min(), now);
            assert!(convoy.pieces.len() <= WINDOW);
            // One of them looks more often.
            for _ in 0..3 {
                ends[0] = take(&convoy, &mut tickets[0], now, &mut taken[0]);
            }
            assert!(tickets[0].piece() <= tickets[1].piece() + WINDOW);
            ends[1] = take(&convoy, &mut tickets[1], now, &mut taken[1]);
        }
        assert!(taken[0] == taken[1] && taken[0].iter().enumerate().all(|(at, byte)| *byte == at as u8));
        assert!(convoy.join(now).is_none(), "the first piece is gone");
        assert!(!convoy.is_over(0, now) && convoy.is_over(0, now + PAUSE) && !convoy.is_over(1, now + PAUSE));
    }

    #[test]
    fn whoever_takes_nothing_is_slow_after_its_time_and_others_need_not_wait() {
        let now = Instant::now();
        let mut convoy = Convoy::new(1, now);
        let ticket = convoy.join(now).expect("early");
        let mut ticket = Ticket { begun: true, ..ticket };
        assert!(!convoy.is_slow(&ticket, now + GRACE + PAUSE), "it is not frozen yet");
        convoy.begin(Place::default(), frozen(3 * MOST));
        while !convoy.is_whole {
            convoy.pump(Some(0), now);
        }
        let late = now + GRACE + PAUSE;
        assert!(!convoy.is_slow(&ticket, now + GRACE) && convoy.is_slow(&ticket, late));
        assert!(convoy.next(&ticket, late).is_none());
        ticket.bytes = BYTES_PER_SECOND;
        assert!(!convoy.is_slow(&ticket, late), "as fast as it has to be");
        assert!(convoy.join(late).is_none());
    }

    #[test]
    fn a_state_that_cannot_be_frozen_fails() {
        let now = Instant::now();
        let mut convoy = Convoy::new(3, now);
        let ticket = convoy.join(now).expect("early");
        convoy.begin(Place::default(), None);
        assert!(matches!(convoy.next(&ticket, now), Some(Next::Failed)));
        assert!(convoy.join(now).is_none());
    }
}
