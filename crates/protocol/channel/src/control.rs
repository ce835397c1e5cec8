//! Control messages, by which the two ends exchange credits and closing notices.
//!
//! A control message holds the complete state of its sender, and each word is cumulative. Control messages may
//! therefore arrive in any order, and a later one replaces all earlier ones.

use std::collections::VecDeque;

use crate::command::{Op, Way};
use crate::config::{CONTROL_BYTES, CONTROLS};
use crate::error::{Reason, Violation};
use crate::window::{Window, number_of};
use crate::{Cause, Config, Kind};

/// Version of the protocol.
pub const VERSION: u8 = 3;

const FINISHED: u64 = 1;
const LAST: u64 = 2;

/// Content of one control message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Snapshot {
    /// Cumulative credits for lengths and for pieces.
    pub(crate) granted: [u64; 2],
    /// Number of lengths and pieces ever sent, once the sender has finished.
    pub(crate) finished: Option<[u64; 2]>,
    /// Total number of the sender's control messages, if this is the last one.
    pub(crate) last: Option<u32>,
    /// Number below which all of the peer's control messages have arrived, modulo 2³².
    pub(crate) seen: u32,
    /// Reason why the sender aborts the connection, if it aborts.
    pub(crate) gave_up: Option<Reason>,
}

impl Snapshot {
    pub(crate) fn words(&self, config: &Config) -> [u64; 8] {
        let flags = (u64::from(self.finished.is_some()) * FINISHED) | (u64::from(self.last.is_some()) * LAST);
        let reason = self.gave_up.map_or(0, |reason| reason as u64);
        let scheme = config.scheme.number();
        let finished = self.finished.unwrap_or_default();
        [
            u64::from(VERSION) | scheme << 8 | flags << 16 | reason << 24 | u64::from(config.eager_bytes) << 32,
            u64::from(config.piece_bytes) | u64::from(config.lengths) << 32 | u64::from(config.pieces) << 48,
            config.message_bytes | u64::from(config.first_sequence) << 32,
            self.granted[0],
            self.granted[1],
            finished[0],
            finished[1],
            u64::from(self.last.unwrap_or(0)) << 32 | u64::from(self.seen),
        ]
    }

    /// Parses a control message. Returns an error if the version or the parameters of its sender differ from this
    /// end's, or if it has unknown flags.
    pub(crate) fn read(words: &[u64; 8], config: &Config) -> Result<Snapshot, Violation> {
        let theirs = words[0] as u8;
        if theirs != VERSION {
            return Err(Cause::Version { ours: VERSION, theirs });
        }
        let ours = Snapshot::default().words(config);
        let field = |words: &[u64; 8], word: usize, shift: u32, bits: u32| words[word] >> shift & ((1 << bits) - 1);
        let parameters = [
            ("the scheme", 0, 8, 8),
            ("the longest eager message (bytes)", 0, 32, 32),
            ("the longest piece (bytes)", 1, 0, 32),
            ("the number of lengths in flight", 1, 32, 16),
            ("the number of pieces in flight", 1, 48, 16),
            ("the longest message (bytes)", 2, 0, 32),
            ("the first sequence", 2, 32, 32),
        ];
        for (what, word, shift, bits) in parameters {
            let (ours, theirs) = (field(&ours, word, shift, bits), field(words, word, shift, bits));
            if ours != theirs {
                return Err(Cause::Disagree { what, ours, theirs });
            }
        }
        let flags = field(words, 0, 16, 8);
        let reason = field(words, 0, 24, 8) as u8;
        let gave_up = Reason::of(reason);
        if flags & !(FINISHED | LAST) != 0 || reason != 0 && gave_up.is_none() {
            return Err(Cause::Nonsense("a control message with unknown flags"));
        }
        Ok(Snapshot {
            granted: [words[3], words[4]],
            finished: (flags & FINISHED != 0).then_some([words[5], words[6]]),
            last: (flags & LAST != 0).then_some((words[7] >> 32) as u32),
            seen: words[7] as u32,
            gave_up,
        })
    }
}

/// Checks the size of a control message or a hello.
pub(crate) fn check_size(size: u32) -> Result<(), Violation> {
    let expected = u64::from(CONTROL_BYTES);
    if size == CONTROL_BYTES { Ok(()) } else { Err(Cause::Size { kind: "control", bytes: u64::from(size), expected }) }
}

fn sequence_of(config: &Config, number: u64) -> u32 {
    config.first_sequence.wrapping_add(number as u32)
}

/// Control messages that were sent and received.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Controls {
    sent: u64,
    /// This end's control messages whose sends have completed.
    flight: Window,
    /// Number below which the peer has acknowledged all of this end's control messages.
    peer_seen: u64,
    arrived: Window,
    count: u64,
    /// Number below which this end has acknowledged all of the peer's control messages.
    acknowledged: u64,
    /// Slots without a posted receive. Used only with [`Scheme::Counted`](crate::Scheme::Counted), because otherwise
    /// control messages use the receives for lengths.
    free: VecDeque<u16>,
}

impl Controls {
    pub(crate) fn new(config: &Config) -> Self {
        Controls {
            sent: 0,
            flight: Window::new(CONTROLS),
            peer_seen: 0,
            arrived: Window::new(CONTROLS),
            count: 0,
            acknowledged: 0,
            free: (0..(CONTROLS - config.spare()) as u16).collect(),
        }
    }

    /// Returns the next receive to post.
    pub(crate) fn next_recv(&mut self) -> Option<Op> {
        let place = self.free.pop_front()?;
        Some(Op { way: Way::Recv, kind: Kind::Control, place })
    }

    /// Returns whether a control message may be sent, provided that the peer's hello has arrived: the peer has a
    /// receive for the message, and the message's slot is free.
    pub(crate) fn has_room(&self) -> bool {
        self.sent < self.peer_seen + u64::from(CONTROLS) && self.sent < self.flight.done() + self.flight.size()
    }

    /// Allocates the next control message. Returns its operation and its sequence.
    pub(crate) fn take(&mut self, config: &Config) -> (Op, u32) {
        let place = self.flight.place(self.sent) as u16;
        let sequence = sequence_of(config, self.sent);
        self.sent += 1;
        self.acknowledged = self.arrived.done();
        (Op { way: Way::Send, kind: Kind::Control, place }, sequence)
    }

    /// Returns whether so many of the peer's control messages are unacknowledged that this end must acknowledge them.
    pub(crate) fn owes_an_answer(&self) -> bool {
        self.arrived.done() - self.acknowledged >= u64::from(CONTROLS / 4)
    }

    /// Returns the sequence of the control message that arrives in this slot next.
    pub(crate) fn sequence_at(&self, config: &Config, place: u16) -> u32 {
        sequence_of(config, self.arrived.number_at(u64::from(place)))
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the number below which all of the peer's control messages have arrived, modulo 2³².
    pub(crate) fn seen(&self) -> u32 {
        self.arrived.done() as u32
    }

    /// Returns the number of the peer's control messages that have arrived, modulo 2³².
    pub(crate) fn arrived(&self) -> u32 {
        self.count as u32
    }

    /// Records the completion of this end's send from slot `place`. Returns false if no send from it was outstanding.
    pub(crate) fn done(&mut self, place: u16) -> bool {
        let number = self.flight.number_at(u64::from(place));
        u64::from(place) < self.flight.size() && number < self.sent && self.flight.mark(number)
    }

    /// Records that a slot for control messages is free again.
    pub(crate) fn give_back(&mut self, place: u16) {
        self.free.push_back(place);
    }

    /// Records the arrival of a control message.
    pub(crate) fn came(&mut self, config: &Config, sequence: u32, size: u32) -> Result<(), Violation> {
        check_size(size)?;
        let (expected, window) = (self.arrived.done(), self.arrived.size());
        let number = number_of(sequence, config.first_sequence, expected, window);
        if number.is_some_and(|number| self.arrived.mark(number)) {
            self.count += 1;
            return Ok(());
        }
        let expected = sequence_of(config, expected);
        Err(Cause::Sequence { kind: "control", sequence, expected, window: CONTROLS })
    }

    /// Records that the peer has received all of this end's control messages below `seen`. An older number has no
    /// effect.
    pub(crate) fn peer_saw(&mut self, seen: u32) -> Result<(), Violation> {
        let ahead = seen.wrapping_sub(self.peer_seen as u32);
        if ahead > u32::MAX / 2 {
            return Ok(());
        }
        self.peer_seen += u64::from(ahead);
        if self.peer_seen > self.sent { Err(Cause::Nonsense("it acknowledged more than was sent")) } else { Ok(()) }
    }

    /// Returns whether all sends of control messages have completed.
    pub(crate) fn is_idle(&self) -> bool {
        self.flight.done() == self.sent
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Scheme;

    #[test]
    fn control_messages_survive_encoding() {
        let config = Config::default();
        let snapshot = Snapshot {
            granted: [3, u64::MAX],
            finished: Some([1, 2]),
            last: Some(9),
            seen: 77,
            gave_up: Some(Reason::Error),
        };
        for snapshot in [Snapshot::default(), snapshot] {
            assert_eq!(Snapshot::read(&snapshot.words(&config), &config), Ok(snapshot));
        }
    }

    #[test]
    fn different_parameters_are_refused_by_name() {
        let config = Config::default();
        let there = Config { pieces: 3, ..config };
        let error = Snapshot::read(&Snapshot::default().words(&there), &config).unwrap_err();
        assert_eq!(error, Cause::Disagree { what: "the number of pieces in flight", ours: 16, theirs: 3 });
        let there = Config::with(Scheme::Counted);
        let error = Snapshot::read(&Snapshot::default().words(&there), &config).unwrap_err();
        assert!(error.to_string().contains("the scheme is 2 here and 3 there"), "{error}");
    }

    #[test]
    fn other_versions_and_unknown_flags_are_refused() {
        let config = Config::default();
        let good = Snapshot::default().words(&config);
        let with = |word: u64| Snapshot::read(&[word, good[1], good[2], 0, 0, 0, 0, 0], &config).unwrap_err();
        assert_eq!(with(good[0] + 1), Cause::Version { ours: 3, theirs: 4 });
        assert!(matches!(with(good[0] | 0x80 << 16), Cause::Nonsense(_)));
        assert!(matches!(with(good[0] | 0x77 << 24), Cause::Nonsense(_)));
    }
}
