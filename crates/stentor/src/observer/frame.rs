//! The frames that a member and an observer exchange. `docs/observers.md` specifies them.

use stentor_multicast::Incarnation;

use super::fields::Fields;
use super::place::Place;

/// Version of the protocol.
pub(crate) const VERSION: u16 = stentor_fabric_net::observe::VERSION;
/// Maximum number of bytes of a stream or of a state in one frame.
pub(crate) const MOST: usize = 60 << 10;
/// Size of a member's longest frame, in bytes.
pub(crate) const LONGEST: usize = MOST + 64;
/// Size of an observer's longest frame, in bytes.
pub(crate) const LONGEST_ASKED: usize = 64;

/// The request of an observer, sent once on each connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Begin {
    pub(crate) version: u16,
    /// The fingerprint of the configuration, which is the same at all processes of a cluster.
    pub(crate) fingerprint: u64,
    pub(crate) group: u16,
    /// `true` if the observer accepts a state when the member's journal does not contain the position.
    pub(crate) states: bool,
    /// `true` if the member may serve the observer while it leads.
    pub(crate) of_leader: bool,
    /// The origin and the index after which the observer continues. `None` if it has no position yet.
    pub(crate) from: Option<(Incarnation, u64)>,
}

/// The reason why a member does not serve an observer, or stops serving it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Refusal {
    /// The member uses another version of this protocol.
    Version,
    /// The member has another configuration.
    Configuration,
    /// The member belongs to another group.
    Group,
    /// `observed_mib` is 0 at the member.
    Off,
    /// The member leads, and a follower was requested.
    Leads,
    /// The member has reached its maximum number of observers.
    Full,
    /// The member has no state of its group yet, or has just restored one.
    NotReady,
    /// The member has not applied the observer's position yet.
    Behind,
    /// The member's state machine has panicked or was outvoted.
    Poisoned,
    /// The member ends.
    Ends,
    /// The member does not keep the records after the observer's position. It keeps the records after this index.
    Gone(u64),
    /// The observer's position belongs to a history that the group has left, or the member does not keep enough records
    /// to know.
    OtherHistory,
    /// The observer received a state too slowly.
    Slow,
    /// The member's state cannot be written.
    NoState,
}

/// A frame. All but `Begin` are sent by members.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Frame<'a> {
    Begin(Begin),
    /// Records follow, beginning after this place.
    Welcome(Place),
    /// The next bytes of the stream of records. A record may span several frames.
    Records(&'a [u8]),
    /// The pieces of the state as of this place follow. An incomplete record before this frame is dropped.
    State(Place),
    /// The next bytes of the state.
    Piece(&'a [u8]),
    /// The state is complete and has this many bytes. Records follow, beginning after its place.
    StateEnd(u64),
    Refused(Refusal),
    /// A keep-alive frame with the index up to which the member has applied.
    Alive(u64),
}

impl Refusal {
    /// Returns the code, and the index for the reasons that have one.
    fn to_wire(self) -> (u8, u64) {
        match self {
            Refusal::Version => (1, 0),
            Refusal::Configuration => (2, 0),
            Refusal::Group => (3, 0),
            Refusal::Off => (4, 0),
            Refusal::Leads => (5, 0),
            Refusal::Full => (6, 0),
            Refusal::NotReady => (7, 0),
            Refusal::Behind => (8, 0),
            Refusal::Poisoned => (9, 0),
            Refusal::Ends => (10, 0),
            Refusal::Gone(first) => (11, first),
            Refusal::OtherHistory => (12, 0),
            Refusal::Slow => (13, 0),
            Refusal::NoState => (14, 0),
        }
    }

    fn of_wire(code: u8, index: u64) -> Option<Refusal> {
        let refusal = match code {
            1 => Refusal::Version,
            2 => Refusal::Configuration,
            3 => Refusal::Group,
            4 => Refusal::Off,
            5 => Refusal::Leads,
            6 => Refusal::Full,
            7 => Refusal::NotReady,
            8 => Refusal::Behind,
            9 => Refusal::Poisoned,
            10 => Refusal::Ends,
            11 => Refusal::Gone(index),
            12 => Refusal::OtherHistory,
            13 => Refusal::Slow,
            14 => Refusal::NoState,
            _ => return None,
        };
        (refusal.to_wire() == (code, index)).then_some(refusal)
    }
}

impl Begin {
    fn write(&self, out: &mut Vec<u8>) {
        let bits = [self.states, self.of_leader, self.from.is_some()];
        let flags = bits.iter().zip(0..).fold(0_u8, |flags, (bit, at)| flags | u8::from(*bit) << at);
        let (origin, index) = self.from.unwrap_or((Incarnation::NONE, 0));
        out.extend(self.version.to_be_bytes());
        out.extend(self.fingerprint.to_be_bytes());
        out.extend(self.group.to_be_bytes());
        out.push(flags);
        out.extend(origin.to_word().to_be_bytes());
        out.extend(index.to_be_bytes());
    }

    /// Reads a request. Trailing bytes are ignored, because they belong to a later version.
    fn read(mut from: Fields<'_>) -> Option<Begin> {
        let (version, fingerprint, group) = (from.u16()?, from.u64()?, from.u16()?);
        let (flags, origin, index) = (from.u8()?, Incarnation::from_word(from.u64()?), from.u64()?);
        let bit = |at: u8| flags >> at & 1 == 1;
        let from = bit(2).then_some((origin, index));
        Some(Begin { version, fingerprint, group, states: bit(0), of_leader: bit(1), from })
    }
}

impl Frame<'_> {
    /// Appends the frame, without its length.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Frame::Begin(begin) => {
                out.push(1);
                begin.write(out);
            }
            Frame::Welcome(place) => {
                out.push(2);
                place.write(out);
            }
            Frame::Records(bytes) => {
                out.push(3);
                out.extend_from_slice(bytes);
            }
            Frame::State(place) => {
                out.push(4);
                place.write(out);
            }
            Frame::Piece(bytes) => {
                out.push(5);
                out.extend_from_slice(bytes);
            }
            Frame::StateEnd(bytes) => {
                out.push(6);
                out.extend(bytes.to_be_bytes());
            }
            Frame::Refused(refusal) => {
                let (code, index) = refusal.to_wire();
                out.extend([7, code]);
                out.extend(index.to_be_bytes());
            }
            Frame::Alive(index) => {
                out.push(8);
                out.extend(index.to_be_bytes());
            }
        }
    }

    /// Parses a frame. Returns `None` if the bytes are not a valid frame.
    pub(crate) fn read(bytes: &[u8]) -> Option<Frame<'_>> {
        let mut from = Fields(bytes);
        match from.u8()? {
            1 => Begin::read(from).map(Frame::Begin),
            2 => {
                let place = Place::read(&mut from)?;
                from.end(Frame::Welcome(place))
            }
            3 => Some(Frame::Records(from.rest())),
            4 => {
                let place = Place::read(&mut from)?;
                from.end(Frame::State(place))
            }
            5 => Some(Frame::Piece(from.rest())),
            6 => {
                let bytes = from.u64()?;
                from.end(Frame::StateEnd(bytes))
            }
            7 => {
                let (code, index) = (from.u8()?, from.u64()?);
                from.end(Frame::Refused(Refusal::of_wire(code, index)?))
            }
            8 => {
                let index = from.u64()?;
                from.end(Frame::Alive(index))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stentor_multicast::Timestamp;

    use super::*;

    fn written(frame: &Frame<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        frame.write(&mut out);
        out
    }

    #[test]
    fn frames_survive_a_round_trip_and_truncated_ones_are_rejected() {
        let origin = Incarnation { number: 7, tag: 1 << 31 };
        let place = Place { origin, index: 9, timestamp: Timestamp { time: 1 << 60, group: 3 } };
        let begin =
            Begin { version: 1, fingerprint: 5, group: 2, states: true, of_leader: false, from: Some((origin, 9)) };
        let fresh = Begin { states: false, of_leader: true, from: None, ..begin };
        let refusals = (1..15).filter_map(|code| Refusal::of_wire(code, if code == 11 { 40 } else { 0 }));
        let frames = [
            Frame::Begin(begin),
            Frame::Begin(fresh),
            Frame::Welcome(place),
            Frame::State(place),
            Frame::StateEnd(77),
            Frame::Alive(u64::MAX),
        ];
        for frame in frames.into_iter().chain(refusals.map(Frame::Refused)) {
            let bytes = written(&frame);
            assert_eq!(Frame::read(&bytes), Some(frame));
            assert!(bytes.len() <= LONGEST_ASKED);
            assert!((0..bytes.len()).all(|end| Frame::read(&bytes[..end]).is_none()), "{frame:?}");
        }
        for frame in [Frame::Records(b""), Frame::Records(b"abc"), Frame::Piece(b"x")] {
            assert_eq!(Frame::read(&written(&frame)), Some(frame));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_frame_or_none(mut bytes in proptest::collection::vec(any::<u8>(), 0..40), kind in 0_u8..10) {
            if let Some(first) = bytes.first_mut() {
                *first = kind;
            }
            match Frame::read(&bytes) {
                // The frame may belong to a later version, with other flags and trailing bytes.
                Some(Frame::Begin(begin)) => {
                    let again = written(&Frame::Begin(begin));
                    prop_assert_eq!(Frame::read(&again), Some(Frame::Begin(begin)));
                }
                Some(frame) => prop_assert_eq!(written(&frame), bytes),
                None => {}
            }
        }
    }
}
