//! The sending direction of a connection: splits messages into lengths and pieces, within credits and free slots.

use std::collections::VecDeque;

use crate::command::{Op, Way, What};
use crate::sequence::{alone_sequence, length_sequence, piece_sequence};
use crate::window::Window;
use crate::{Config, Kind, Scheme, WriteError, mutant};

/// A message that is being handed over.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Current {
    bytes: u64,
    /// Number of bytes that were sent.
    offset: u64,
    /// Number of pieces that are not sent yet. `None` until the length is sent.
    pieces: Option<u64>,
    /// Number of lengths and pieces that were sent before the message.
    from: [u64; 2],
}

/// A message that was handed over completely but is not reported as written yet.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Unfinished {
    number: u64,
    /// Number of lengths and pieces that were sent before the message.
    from: [u64; 2],
    /// Number of lengths and pieces that were sent up to the end of the message.
    to: [u64; 2],
}

/// The sending half of a connection.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Outbound {
    config: Config,
    /// Number of lengths and pieces that the peer has granted since the connection opened.
    granted: [u64; 2],
    /// Number of lengths and pieces that were sent. A message of one piece without a length counts as both.
    sent: [u64; 2],
    /// Lengths and pieces whose sends have completed.
    flights: [Window; 2],
    /// Number of the length or piece that is being sent from each slot.
    places: [Box<[Option<u64>]>; 2],
    /// Free slots, with the most recently used one at the end. Not used with [`Scheme::Counted`], in which each number
    /// has a fixed slot.
    free: [Vec<u16>; 2],
    current: Option<Current>,
    accepted: u64,
    unfinished: VecDeque<Unfinished>,
}

/// A length or a piece to send, with its sequence.
pub(crate) type Staged = (Op, u32, What);

impl Outbound {
    pub(crate) fn new(config: &Config) -> Self {
        let windows = [config.lengths, config.pieces];
        Outbound {
            config: *config,
            granted: [0; 2],
            sent: [0; 2],
            flights: windows.map(Window::new),
            places: windows.map(|places| vec![None; places as usize].into()),
            free: windows.map(|places| (0..places as u16).rev().collect()),
            current: None,
            accepted: 0,
            unfinished: VecDeque::with_capacity((config.lengths + config.pieces) as usize + 1),
        }
    }

    /// Applies the peer's cumulative credits for lengths and pieces. An older value has no effect. Returns false if the
    /// credits exceed the windows.
    pub(crate) fn grant(&mut self, granted: [u64; 2]) -> bool {
        let windows = [self.config.lengths, self.config.pieces].map(u64::from);
        for which in 0..2 {
            if granted[which] > self.sent[which] + windows[which] {
                return false;
            }
            self.granted[which] = self.granted[which].max(granted[which]);
        }
        true
    }

    /// Begins a message. Returns its number.
    #[inline]
    pub(crate) fn begin(&mut self, bytes: u64) -> Result<u64, WriteError> {
        if let Some(current) = &self.current {
            return Err(WriteError::Busy { left: current.bytes - current.offset });
        }
        let limit = self.config.message_bytes;
        if bytes > limit {
            return Err(WriteError::TooLong { bytes, limit });
        }
        self.current = Some(Current { bytes, offset: 0, pieces: None, from: self.sent });
        self.accepted += 1;
        Ok(self.accepted - 1)
    }

    /// Withdraws the message that is being handed over, as if it had never been begun. Returns false if there is no
    /// such message, or if a part of it was sent.
    pub(crate) fn take_back(&mut self) -> bool {
        let is_whole = self.current.as_ref().is_some_and(|current| current.pieces.is_none());
        if is_whole {
            self.current = None;
            self.accepted -= 1;
        }
        is_whole
    }

    /// Returns the number of the message that was begun last.
    pub(crate) fn last(&self) -> u64 {
        self.accepted.saturating_sub(1)
    }

    /// Returns the number of bytes of the current message that were not sent yet, or `None` if there is no message.
    #[inline]
    pub(crate) fn left(&self) -> Option<u64> {
        self.current.as_ref().map(|current| current.bytes - current.offset)
    }

    /// Returns the length of the message that is being handed over, or `None` if there is none.
    #[inline]
    pub(crate) fn writing(&self) -> Option<u64> {
        self.current.as_ref().map(|current| current.bytes)
    }

    /// Returns the number of lengths and pieces that were sent.
    pub(crate) fn sent(&self) -> [u64; 2] {
        self.sent
    }

    #[inline]
    fn has_room(&self, kind: Kind) -> bool {
        let which = kind.index();
        let credit = self.sent[which] < self.granted[which] || mutant!(self.config.mutant, NoCredits);
        credit && self.sent[which] < self.flights[which].done() + self.flights[which].size()
    }

    /// Returns the next length or piece to send, if credits and slots allow it.
    #[inline]
    pub(crate) fn next(&mut self) -> Option<Staged> {
        let current = self.current.as_ref()?;
        let kind = if current.pieces.is_none() { Kind::Length } else { Kind::Payload };
        if !self.has_room(kind) {
            return None;
        }
        if kind == Kind::Length && self.config.is_alone(current.bytes) && self.has_room(Kind::Payload) {
            return Some(self.alone(current.bytes as u32));
        }
        let config = self.config;
        let current = self.current.as_mut()?;
        let (sequence, what) = match &mut current.pieces {
            None => {
                let inline = if config.is_inline(current.bytes) { current.bytes as u32 } else { 0 };
                current.offset += u64::from(inline);
                current.pieces = Some(config.pieces_of(current.bytes));
                // With `LengthPayload`, a length and its payload have the same id.
                let by_pieces = config.scheme == Scheme::LengthPayload;
                let number = self.sent[if by_pieces { Kind::Payload } else { Kind::Length }.index()];
                let sequence = length_sequence(&config, number, config.is_whole(current.bytes));
                (sequence, What::Length { bytes: current.bytes, inline })
            }
            Some(pieces) => {
                let offset = current.offset;
                let bytes = (current.bytes - offset).min(u64::from(config.piece_bytes)) as u32;
                current.offset += u64::from(bytes);
                *pieces -= 1;
                (piece_sequence(&config, self.sent[Kind::Payload.index()]), What::Payload { offset, bytes })
            }
        };
        let which = kind.index();
        let place = self.take_place(kind);
        self.sent[which] += 1;
        self.finish();
        Some((Op { way: Way::Send, kind, place }, sequence, what))
    }

    /// Allocates a slot for the next length or piece, for which there must be room. Prefers the most recently used
    /// slot, because it is in the processor's cache.
    #[inline]
    fn take_place(&mut self, kind: Kind) -> u16 {
        let which = kind.index();
        let number = self.sent[which];
        let own = self.flights[which].place(number) as u16;
        let free = if self.config.scheme == Scheme::Counted { None } else { self.free[which].pop() };
        let place = free.unwrap_or(own);
        self.places[which][usize::from(place)] = Some(number);
        place
    }

    /// Stages the whole message as one piece without a length in front. The message consumes the number and the credit
    /// of a length, but no receive for a length.
    fn alone(&mut self, bytes: u32) -> Staged {
        let [length, piece] = self.sent;
        let op = Op { way: Way::Send, kind: Kind::Payload, place: self.take_place(Kind::Payload) };
        self.flights[0].mark(length);
        self.sent = [length + 1, piece + 1];
        if let Some(current) = &mut self.current {
            (current.offset, current.pieces) = (bytes.into(), Some(0));
        }
        self.finish();
        (op, alone_sequence(&self.config, length, piece), What::Payload { offset: 0, bytes })
    }

    /// Moves the current message to `unfinished` if all of it was handed over.
    #[inline]
    fn finish(&mut self) {
        if let Some(Current { pieces: Some(0), from, .. }) = self.current {
            self.unfinished.push_back(Unfinished { number: self.accepted - 1, from, to: self.sent });
            self.current = None;
        }
    }

    /// Records the completion of the send from slot `place`. Returns false if no send from it was outstanding.
    #[inline]
    pub(crate) fn done(&mut self, kind: Kind, place: u16) -> bool {
        let which = kind.index();
        let Some(number) = self.places[which].get_mut(usize::from(place)).and_then(Option::take) else { return false };
        if self.config.scheme != Scheme::Counted {
            self.free[which].push(place);
        }
        self.flights[which].mark(number)
    }

    /// Returns the number of the message to which the send from slot `place` belongs.
    pub(crate) fn message_at(&self, kind: Kind, place: u16) -> u64 {
        let which = kind.index();
        let number = self.places[which].get(usize::from(place)).copied().flatten().unwrap_or(self.sent[which]);
        let whose = self.unfinished.iter().find(|message| (message.from[which]..message.to[which]).contains(&number));
        whose.map_or(self.last(), |message| message.number)
    }

    /// Returns the next message that is completely written, in the order of messages.
    pub(crate) fn next_written(&mut self) -> Option<u64> {
        let flights = &self.flights;
        let whole = |message: &Unfinished| {
            (0..2).all(|which| (message.from[which]..message.to[which]).all(|number| flights[which].is_done(number)))
        };
        if mutant!(self.config.mutant, CallbacksAsTheyCome) {
            let place = self.unfinished.iter().position(whole)?;
            return self.unfinished.remove(place).map(|message| message.number);
        }
        let first = self.unfinished.front()?;
        let done = (0..2).all(|which| flights[which].done() >= first.to[which]);
        debug_assert!(!done || whole(first));
        if done { self.unfinished.pop_front().map(|message| message.number) } else { None }
    }

    /// Returns whether every message that was begun has been handed over.
    pub(crate) fn is_staged(&self) -> bool {
        self.current.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Covers messages with a length in front, messages that are one piece, and [`Scheme::Counted`], in which each
    /// number has a fixed slot.
    #[test]
    fn last_used_slot_is_reused_first() {
        for (scheme, expected) in [
            (Scheme::Eager, [0, 1, 0, 2, 1]),
            (Scheme::LengthPayload, [0, 1, 0, 2, 1]),
            (Scheme::Counted, [0, 1, 2, 3, 0]),
        ] {
            let config = Config { lengths: 4, pieces: 4, piece_bytes: 64, eager_bytes: 8, ..Config::with(scheme) };
            let mut outbound = Outbound::new(&config.normal());
            assert!(outbound.grant([4, 4]));
            let mut send = |done: &[u16]| {
                for place in done {
                    assert!(outbound.done(Kind::Payload, *place) && !outbound.done(Kind::Payload, *place));
                }
                if outbound.sent[1] == 4 {
                    assert!(outbound.grant([8, 8]));
                }
                outbound.begin(64).unwrap();
                loop {
                    let (op, ..) = outbound.next().expect("there is room");
                    if op.kind == Kind::Payload {
                        return op.place;
                    }
                    assert!(outbound.done(Kind::Length, op.place));
                }
            };
            let [first, second] = [send(&[]), send(&[])];
            let third = send(&[0]);
            let fourth = send(&[]);
            let places = [first, second, third, fourth, send(if scheme == Scheme::Counted { &[1, 2] } else { &[1] })];
            assert_eq!(places, expected, "{scheme:?}");
            assert!(!outbound.done(Kind::Payload, 4));
        }
    }
}
