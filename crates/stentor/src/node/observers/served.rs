//! An observer that a member serves, or is about to.

use std::time::{Duration, Instant};

use stentor_multicast::GroupId;

use super::Stands;
use super::convoy::{Convoy, Next, Ticket};
use super::kept::{Found, Kept};
use crate::observer::frame::{Begin, Frame, MOST, Refusal, VERSION};
use crate::observer::line::Line;
use crate::observer::place::Place;

/// How long an observer has to say what it wants.
const BEGINS: Duration = Duration::from_secs(5);
/// How long it may wait until the member has applied what it has observed already.
const AHEAD: Duration = Duration::from_secs(1);
/// How long it may wait until the member can serve it at all.
const READY: Duration = Duration::from_secs(5);
/// How long a refusal may take to be sent.
const ENDS: Duration = Duration::from_secs(1);
/// An observer hears something so often.
const ALIVE: Duration = Duration::from_secs(1);
/// Frames for one observer before it is the turn of others.
const BURST: usize = 8;

/// What an observer waits for, or gets.
#[derive(Clone, Copy, Debug)]
enum Phase {
    /// It has not said what it wants.
    Begins(Instant),
    Waits(Instant),
    /// It takes a state.
    Takes(Ticket),
    /// It gets records, from this place in the stream on.
    Follows(u64),
    /// It was refused.
    Ends(Instant),
}

/// An observer and its line.
pub(super) struct Served {
    line: Line,
    /// How the member stood when the line came.
    stands: Stands,
    /// What it wants.
    begin: Option<Begin>,
    phase: Phase,
    /// When something was said to it last.
    said: Instant,
    /// What is known of its socket: whether something came, and whether it takes bytes.
    ready: Ready,
}

/// What is known of a socket.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ready {
    pub(super) reads: bool,
    pub(super) writes: bool,
}

/// What a member has for its observers.
pub(super) struct Stock {
    pub(super) fingerprint: u64,
    pub(super) group: GroupId,
    /// Whether `observed_mib` is not 0.
    pub(super) is_on: bool,
    pub(super) poisoned: bool,
    pub(super) kept: Kept,
    pub(super) convoy: Option<Convoy>,
    /// Somebody waits for a state, and there is no convoy that it can take part in.
    pub(super) wants_state: bool,
    /// Bytes of records that may be sent in this round; below 0 if the last frame had more.
    pub(super) budget: i64,
}

/// What became of a turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Turn {
    /// It did something: there may be more.
    Worked,
    /// There is nothing to do before something comes.
    Rests,
    /// The line is over.
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

    /// Tells what the system knows of its socket.
    pub(super) fn note_ready(&mut self, ready: Ready) {
        self.ready = ready;
    }

    /// The state that it takes, if it does.
    pub(super) fn ticket(&self) -> Option<&Ticket> {
        match &self.phase {
            Phase::Takes(ticket) => Some(ticket),
            _ => None,
        }
    }

    /// Whether it has not said what it wants yet.
    pub(super) fn is_silent(&self) -> bool {
        matches!(self.phase, Phase::Begins(_))
    }

    /// Whether it gets records or a state.
    pub(super) fn is_served(&self) -> bool {
        matches!(self.phase, Phase::Takes(_) | Phase::Follows(_))
    }

    /// Tells it why it is not served, or not any more. What waits to be sent is sent before.
    pub(super) fn refuse(&mut self, refusal: Refusal, now: Instant) {
        if !matches!(self.phase, Phase::Ends(_)) {
            self.line.send(&Frame::Refused(refusal));
            let _ = self.line.flush();
            self.phase = Phase::Ends(now);
        }
    }

    /// Hears it, and sends what there is.
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

    /// Hears what it wants. Afterwards it has nothing to say.
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

    /// Queues the next frame, if there is one. Nothing waits to be sent.
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

    /// Finds where it goes on.
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

    /// Takes part in the convoy, or waits for the next one.
    fn join(&mut self, stock: &mut Stock, now: Instant) {
        // A state from before what is kept is of no use: the next one is waited for.
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
                // Behind it come the commands, as far as they are kept. If not, another state does.
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
                // It has fallen behind what is kept.
                match self.begin {
                    Some(begin) if begin.states => self.join(stock, now),
                    _ => self.refuse(Refusal::Gone(stock.kept.first()), now),
                }
                false
            }
        }
    }
}
