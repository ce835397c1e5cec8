//! The transfer of a state to observers: all observers that wait for a state receive it together, as a *convoy*.
//!
//! The value is frozen once for all of them, at most once per [`PAUSE`], and its pieces are written as they are
//! consumed. So the transfer takes the memory of [`WINDOW`] pieces and of the writer's chunks, independent of the
//! state's size and of the number of observers, and only one frozen value exists. All participants proceed at the pace
//! of the slowest one, so a participant that is too slow is removed.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use stentor_multicast::{Frozen, Readiness};

use crate::node::state_writer::StateWriter;
use crate::observer::frame::MOST;
use crate::observer::place::Place;

/// Maximum number of pieces in memory.
const WINDOW: usize = 16;
/// Shortest time between two freezes. An observer that arrives before the freeze, or less than this time after the
/// freeze was requested, joins the convoy, as long as the first piece is still in memory.
const PAUSE: Duration = Duration::from_secs(1);
/// Initial time allowance of an observer. It grows by 1 s per `BYTES_PER_SECOND` that the observer has received.
const GRACE: Duration = Duration::from_secs(10);
const BYTES_PER_SECOND: u64 = 1 << 20;

/// The next part of a state for an observer.
pub(super) enum Next<'a> {
    /// The next part is not available yet.
    Waits,
    Begins(Place),
    Piece(&'a [u8]),
    /// All pieces were sent. The number is the state's size in bytes.
    End(Place, u64),
    /// The state cannot be written.
    Failed,
}

/// An observer's progress in a convoy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket {
    /// The number of the convoy.
    convoy: u64,
    begun: bool,
    piece: usize,
    bytes: u64,
    since: Instant,
}

/// A state in transfer, with its participants' common window.
pub(super) struct Convoy {
    number: u64,
    asked: Instant,
    /// The place of the value, and its writer if there is one. `None` before the freeze.
    frozen: Option<(Place, Option<StateWriter>)>,
    pieces: VecDeque<Vec<u8>>,
    /// Number of pieces that were dropped, because all participants have received them.
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

    /// Records that the value was frozen. `writer` is `None` if it cannot be frozen or written.
    pub(super) fn begin(&mut self, place: Place, writer: Option<StateWriter>) {
        self.failed |= writer.is_none();
        self.frozen = Some((place, writer));
    }

    /// Returns the place of the value, once it is frozen.
    pub(super) fn place(&self) -> Option<Place> {
        self.frozen.as_ref().map(|(place, _)| *place)
    }

    /// Returns the ticket of a new participant, or `None` if it is too late to join or the state has failed.
    pub(super) fn join(&self, now: Instant) -> Option<Ticket> {
        let is_early = now.saturating_duration_since(self.asked) < PAUSE || self.frozen.is_none();
        let ticket = Ticket { convoy: self.number, begun: false, piece: 0, bytes: 0, since: now };
        (is_early && self.taken == 0 && !self.failed).then_some(ticket)
    }

    /// Returns whether the writer may have produced the next piece. The writer does not signal this, so the thread must
    /// poll.
    pub(super) fn is_being_written(&self) -> bool {
        self.frozen.is_some() && !self.is_whole && !self.failed && self.pieces.len() < WINDOW
    }

    /// Returns whether the convoy has no participant left and another freeze is permitted.
    pub(super) fn is_over(&self, tickets: usize, now: Instant) -> bool {
        tickets == 0 && now.saturating_duration_since(self.asked) >= PAUSE
    }

    /// Reads pieces from the writer while there is room, and drops the pieces that all participants have received.
    /// `least` is the next piece of the slowest participant.
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
        // A state that fits into the window is kept for observers that arrive a little later.
        let may_drop = self.pieces.len() == WINDOW || now.saturating_duration_since(self.asked) >= PAUSE;
        while may_drop && least.is_some_and(|least| self.taken < least) && self.pieces.pop_front().is_some() {
            self.taken += 1;
        }
    }

    /// Returns the next part for a participant. Returns `None` if the ticket does not belong to this convoy, or if its
    /// participant is too slow.
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

    /// Returns whether a participant has used up its time without receiving enough. The caller must check this even
    /// while the participant receives nothing.
    pub(super) fn is_slow(&self, ticket: &Ticket, now: Instant) -> bool {
        self.frozen.is_some()
            && ticket.piece - self.taken.min(ticket.piece) < self.pieces.len()
            && self.next(ticket, now).is_none()
    }
}

impl Ticket {
    /// Returns the number of the next piece.
    pub(super) fn piece(&self) -> usize {
        self.piece
    }

    /// Records that a piece of this many bytes was sent or, with `None`, the frame that precedes the pieces.
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

    /// Receives everything that is available.
    fn take(convoy: &Convoy, ticket: &mut Ticket, now: Instant, into: &mut Vec<u8>) -> Option<u64> {
        loop {
            match convoy.next(ticket, now).expect("the ticket belongs to the convoy") {
                Next::Waits => return None,
                Next::Begins(_) => ticket.advance(None),
                Next::Piece(piece) => {
                    into.extend_from_slice(piece);
                    ticket.advance(Some(piece.len()));
                }
                Next::End(_, bytes) => return Some(bytes),
                Next::Failed => panic!("the state can be written"),
            }
        }
    }

    #[test]
    fn all_participants_get_the_whole_state_at_the_pace_of_the_slowest() {
        let (now, long) = (Instant::now(), 40 * MOST + 7);
        let mut convoy = Convoy::new(1, now);
        let mut tickets = [
            convoy.join(now).expect("the convoy accepts participants"),
            convoy.join(now).expect("the convoy accepts participants"),
        ];
        let mut taken = [Vec::new(), Vec::new()];
        convoy.begin(Place::default(), frozen(long));
        let mut ends = [None, None];
        while ends != [Some(long as u64); 2] {
            assert!(now.elapsed() < Duration::from_secs(20), "it hangs");
            convoy.pump(tickets.iter().map(Ticket::piece).min(), now);
            assert!(convoy.pieces.len() <= WINDOW);
            // The first participant receives more often.
            for _ in 0..3 {
                ends[0] = take(&convoy, &mut tickets[0], now, &mut taken[0]);
            }
            assert!(tickets[0].piece() <= tickets[1].piece() + WINDOW);
            ends[1] = take(&convoy, &mut tickets[1], now, &mut taken[1]);
        }
        assert!(taken[0] == taken[1] && taken[0].iter().enumerate().all(|(at, byte)| *byte == at as u8));
        assert!(convoy.join(now).is_none(), "the first piece was dropped");
        assert!(!convoy.is_over(0, now) && convoy.is_over(0, now + PAUSE) && !convoy.is_over(1, now + PAUSE));
    }

    #[test]
    fn a_participant_that_takes_nothing_is_slow_after_its_grace() {
        let now = Instant::now();
        let mut convoy = Convoy::new(1, now);
        let ticket = convoy.join(now).expect("the convoy accepts participants");
        let mut ticket = Ticket { begun: true, ..ticket };
        assert!(!convoy.is_slow(&ticket, now + GRACE + PAUSE), "the value is not frozen yet");
        convoy.begin(Place::default(), frozen(3 * MOST));
        while !convoy.is_whole {
            convoy.pump(Some(0), now);
        }
        let late = now + GRACE + PAUSE;
        assert!(!convoy.is_slow(&ticket, now + GRACE) && convoy.is_slow(&ticket, late));
        assert!(convoy.next(&ticket, late).is_none());
        ticket.bytes = BYTES_PER_SECOND;
        assert!(!convoy.is_slow(&ticket, late), "the participant is fast enough");
        assert!(convoy.join(late).is_none());
    }

    #[test]
    fn a_state_that_cannot_be_frozen_fails() {
        let now = Instant::now();
        let mut convoy = Convoy::new(3, now);
        let ticket = convoy.join(now).expect("the convoy accepts participants");
        convoy.begin(Place::default(), None);
        assert!(matches!(convoy.next(&ticket, now), Some(Next::Failed)));
        assert!(convoy.join(now).is_none());
    }
}
