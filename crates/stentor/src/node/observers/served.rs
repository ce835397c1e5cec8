//! An observer that is connected to a member.

use std::time::{Duration, Instant};

use stentor_multicast::GroupId;

use super::Stands;
use super::convoy::{Convoy, Next, Ticket};
use super::kept::{Found, Kept};
use crate::observer::frame::{Begin, Frame, MOST, Refusal, VERSION};
use crate::observer::line::Line;
use crate::observer::place::Place;

/// Longest wait for an observer's request.
const BEGINS: Duration = Duration::from_secs(5);
/// Longest time for which an observer waits until the member has applied the observer's position.
const AHEAD: Duration = Duration::from_secs(1);
/// Longest time for which an observer waits until the member can serve it at all.
const READY: Duration = Duration::from_secs(5);
/// Longest time for the transmission of a refusal.
const ENDS: Duration = Duration::from_secs(1);
/// Longest silence towards an observer. After that a keep-alive frame is sent.
const ALIVE: Duration = Duration::from_secs(1);
/// Maximum number of frames for one observer before other observers have their turn.
const BURST: usize = 8;

/// The state of an observer's connection.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// The observer has not sent its request.
    Begins(Instant),
    Waits(Instant),
    /// The observer receives a state.
    Takes(Ticket),
    /// The observer receives records, beginning at this offset in the stream.
    Follows(u64),
    /// The observer was refused.
    Ends(Instant),
}

/// An observer and its connection.
pub(super) struct Served {
    line: Line,
    /// The member's condition when the connection was accepted.
    stands: Stands,
    /// The observer's request.
    begin: Option<Begin>,
    phase: Phase,
    /// Time at which the last frame was queued for the observer.
    said: Instant,
    /// The readiness of the observer's socket for reading and writing.
    ready: Ready,
}

/// The readiness of a socket, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) reads: bool,
    pub(super) writes: bool,
}

/// The data and limits that a member shares among its observers.
pub(super) struct Stock {
    pub(super) fingerprint: u64,
    pub(super) group: GroupId,
    /// `true` if `observed_mib` is not 0.
    pub(super) is_on: bool,
    pub(super) poisoned: bool,
    pub(super) kept: Kept,
    pub(super) convoy: Option<Convoy>,
    /// `true` if an observer waits for a state, and there is no convoy.
    pub(super) wants_state: bool,
    /// Size of the records that may still be sent in this round, in bytes. Negative if the last frame exceeded it.
    pub(super) budget: i64,
}

/// The result of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// The observer made progress, and there may be more to do.
    Worked,
    /// The observer needs no further turn before the next event.
    Rests,
    /// The connection has ended.
    Ended,
}

impl Served {
    pub(super) fn new(line: Line, stands: Stands, now: Instant) -> Self {
        let ready = Ready { reads: true, writes: true };
        Served { line, stands, begin: None, phase: Phase::Begins(now), said: now, ready }
    }

    pub(super) fn line(&self) -> &Line {
        &self.line
    }

    /// Records the readiness of the observer's socket.
    pub(super) fn note_ready(&mut self, ready: Ready) {
        self.ready = ready;
    }

    /// Returns the ticket of the state that the observer receives, if it receives one.
    pub(super) fn ticket(&self) -> Option<&Ticket> {
        match &self.phase {
            Phase::Takes(ticket) => Some(ticket),
            _ => None,
        }
    }

    /// Returns whether the observer has not sent its request yet.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.phase, Phase::Begins(_))
    }

    /// Returns whether the observer receives records or a state.
    pub(super) fn is_served(&self) -> bool {
        matches!(self.phase, Phase::Takes(_) | Phase::Follows(_))
    }

    /// Sends the reason why the observer is not served, or no longer served. Frames that are already queued are sent
    /// first.
    pub(super) fn refuse(&mut self, refusal: Refusal, now: Instant) {
        if !matches!(self.phase, Phase::Ends(_)) {
            self.line.send(&Frame::Refused(refusal));
            let _ = self.line.flush();
            self.phase = Phase::Ends(now);
        }
    }

    /// Receives the observer's request, and sends the frames that are available.
    pub(super) fn turn(&mut self, stock: &mut Stock, now: Instant) -> Turn {
        let mut worked = false;
        if self.ready.reads {
            match self.hear(stock, now) {
                Ok(heard) => worked |= heard,
                Err(()) => return Turn::Ended,
            }
        }
        let bursts = if self.ready.writes || !self.line.is_behind() { BURST } else { 0 };
        for _ in 0..bursts {
            match self.line.flush() {
                Ok(sent) => worked |= sent,
                Err(_) => return Turn::Ended,
            }
            if self.line.is_behind() || !self.feed(stock, now) {
                break;
            }
            (worked, self.said) = (true, now);
        }
        if (bursts > 0 && self.line.flush().is_err()) || self.is_over(now) {
            return Turn::Ended;
        }
        if let Phase::Takes(ticket) = &self.phase
            && stock.convoy.as_ref().is_none_or(|convoy| convoy.is_slow(ticket, now))
        {
            self.refuse(Refusal::Slow, now);
        }
        if worked { Turn::Worked } else { Turn::Rests }
    }

    fn is_over(&self, now: Instant) -> bool {
        match self.phase {
            Phase::Begins(since) => now.saturating_duration_since(since) >= BEGINS,
            Phase::Ends(since) => !self.line.is_behind() || now.saturating_duration_since(since) >= ENDS,
            _ => false,
        }
    }

    /// Receives the observer's request. An observer sends nothing else.
    fn hear(&mut self, stock: &Stock, now: Instant) -> Result<bool, ()> {
        let begin = match self.line.receive() {
            Ok(None) => return Ok(false),
            Ok(Some(Frame::Begin(begin))) if matches!(self.phase, Phase::Begins(_)) => begin,
            Ok(Some(_)) | Err(_) => return Err(()),
        };
        self.phase = Phase::Waits(now);
        let refusals = [
            (begin.version != VERSION, Refusal::Version),
            (begin.fingerprint != stock.fingerprint, Refusal::Configuration),
            (begin.group != stock.group.0, Refusal::Group),
            (!stock.is_on, Refusal::Off),
            (self.stands.joins, Refusal::NotReady),
            (self.stands.leads && !begin.of_leader, Refusal::Leads),
        ];
        self.begin = Some(begin);
        if let Some((_, refusal)) = refusals.into_iter().find(|(is_so, _)| *is_so) {
            self.refuse(refusal, now);
        }
        Ok(true)
    }

    /// Queues the next frame, if there is one. Called only while nothing waits to be sent.
    fn feed(&mut self, stock: &mut Stock, now: Instant) -> bool {
        let fed = match self.phase {
            Phase::Waits(since) => self.find(stock, since, now),
            Phase::Takes(ticket) => self.feed_state(stock, ticket, now),
            Phase::Follows(from) => self.feed_records(stock, from, now),
            Phase::Begins(_) | Phase::Ends(_) => return false,
        };
        if !fed && now.saturating_duration_since(self.said) >= ALIVE && !matches!(self.phase, Phase::Ends(_)) {
            self.line.send(&Frame::Alive(stock.kept.head().map_or(0, |head| head.index)));
            return true;
        }
        fed
    }

    /// Finds the place at which the observer continues.
    fn find(&mut self, stock: &mut Stock, since: Instant, now: Instant) -> bool {
        let (Some(begin), waited) = (self.begin, now.saturating_duration_since(since)) else { return false };
        if stock.poisoned {
            self.refuse(Refusal::Poisoned, now);
            return false;
        }
        let Some(head) = stock.kept.head() else {
            if waited >= READY {
                self.refuse(Refusal::NotReady, now);
            }
            return false;
        };
        let found = match begin.from {
            Some((origin, index)) => stock.kept.find(origin, index),
            None if begin.states => Found::Before,
            None => Found::At(stock.kept.end(), head),
        };
        match found {
            Found::At(from, place) => {
                self.line.send(&Frame::Welcome(place));
                self.phase = Phase::Follows(from);
                true
            }
            Found::Ahead => {
                if waited >= AHEAD {
                    self.refuse(Refusal::Behind, now);
                }
                false
            }
            Found::Before | Found::OtherHistory if begin.states => {
                self.join(stock, now);
                false
            }
            Found::Before => {
                self.refuse(Refusal::Gone(stock.kept.first()), now);
                false
            }
            Found::OtherHistory => {
                self.refuse(Refusal::OtherHistory, now);
                false
            }
        }
    }

    /// Joins the convoy, or waits for the next one.
    fn join(&mut self, stock: &mut Stock, now: Instant) {
        // A state from before the journal's beginning is useless. The observer then waits for the next convoy.
        let kept = &stock.kept;
        let is_useful = |place: Place| matches!(kept.find(place.origin, place.index), Found::At(..));
        match stock.convoy.as_ref().map(|convoy| convoy.join(now).filter(|_| convoy.place().is_none_or(is_useful))) {
            Some(Some(ticket)) => self.phase = Phase::Takes(ticket),
            Some(None) => {}
            None => stock.wants_state = true,
        }
    }

    fn feed_state(&mut self, stock: &mut Stock, mut ticket: Ticket, now: Instant) -> bool {
        let next = stock.convoy.as_ref().and_then(|convoy| convoy.next(&ticket, now));
        match next {
            Some(Next::Waits) => return false,
            Some(Next::Begins(place)) => {
                self.line.send(&Frame::State(place));
                ticket.advance(None);
            }
            Some(Next::Piece(piece)) => {
                self.line.send(&Frame::Piece(piece));
                ticket.advance(Some(piece.len()));
            }
            Some(Next::End(place, bytes)) => {
                self.line.send(&Frame::StateEnd(bytes));
                // The state is followed by the commands after it, as far as they are kept. Otherwise, the observer
                // waits for another state.
                let from = Some((place.origin, place.index));
                self.begin = self.begin.map(|begin| Begin { from, ..begin });
                self.phase = match stock.kept.find(place.origin, place.index) {
                    Found::At(from, _) => Phase::Follows(from),
                    _ => Phase::Waits(now),
                };
                return true;
            }
            Some(Next::Failed) => {
                self.refuse(Refusal::NoState, now);
                return false;
            }
            None => {
                self.refuse(Refusal::Slow, now);
                return false;
            }
        }
        self.phase = Phase::Takes(ticket);
        true
    }

    fn feed_records(&mut self, stock: &mut Stock, from: u64, now: Instant) -> bool {
        match stock.kept.read(from, MOST) {
            Some([]) => false,
            Some(_) if stock.budget <= 0 => false,
            Some(bytes) => {
                stock.budget -= bytes.len() as i64;
                self.line.send(&Frame::Records(bytes));
                self.phase = Phase::Follows(from + bytes.len() as u64);
                true
            }
            None => {
                // The observer has fallen behind the journal's beginning.
                match self.begin {
                    Some(begin) if begin.states => self.join(stock, now),
                    _ => self.refuse(Refusal::Gone(stock.kept.first()), now),
                }
                false
            }
        }
    }
}
