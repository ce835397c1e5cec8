//! Reassembly of the frames from a member into the events that an observer sees.

use std::collections::VecDeque;

use super::error::Fault;
use super::frame::{Frame, Refusal};
use super::observed::{Observed, ObservedCommand, ObservedReset, ObservedState};
use super::place::Place;
use super::position::ObservedPosition;
use super::record::{self, COMMAND_BYTES, CommandRecord, Record, Step};
use crate::config::limits::MAX_GROUPS;
use crate::runtime::ClusterRuntime;
use crate::{Group, SessionId};
use stentor_multicast::ClientId;

/// The reason why following a member ends.
#[derive(Debug)]
pub(super) enum Stop {
    /// Another member may be able to serve the observer.
    Fault(Fault),
    /// The state is larger than the observer accepts.
    TooLarge,
}

/// Reassembles the frames of one connection.
///
/// # Invariants
/// The resulting events have no gap: the index of each record is one more than that of the place before it, or a state
/// precedes it.
#[derive(Debug)]
pub(super) struct Following {
    group: Group,
    longest_state: u64,
    /// The last place that was observed before this connection. `None` if there is none.
    before: Option<Place>,
    /// The place of the last record or state on this connection. `None` before the member has named its starting place.
    place: Option<Place>,
    /// Received bytes of records. The first `read` bytes were processed.
    stream: Vec<u8>,
    read: usize,
    /// The place of the state that is being received, and its bytes so far.
    state: Option<(Place, Vec<u8>)>,
    made: VecDeque<Observed>,
}

impl Following {
    pub(super) fn new(group: Group, longest_state: u64, before: Option<Place>) -> Self {
        let (stream, made) = (Vec::new(), VecDeque::new());
        Following { group, longest_state, before, place: None, stream, read: 0, state: None, made }
    }

    /// Returns whether the member serves the observer: it has sent a first frame with a place or a state.
    pub(super) fn has_begun(&self) -> bool {
        self.place.is_some() || self.state.is_some()
    }

    /// Returns the place after which the member continues, once it is known.
    pub(super) fn place(&self) -> Option<Place> {
        self.place
    }

    /// Returns the next event, if one is complete.
    pub(super) fn next(&mut self, runtime: &ClusterRuntime) -> Result<Option<Observed>, Stop> {
        if let Some(made) = self.made.pop_front() {
            return Ok(Some(made));
        }
        let Some(place) = &mut self.place else { return Ok(None) };
        let longest = runtime.limits().message_bytes + COMMAND_BYTES + 2 * MAX_GROUPS;
        let stream = &self.stream[self.read..];
        let Some((record, bytes)) = record::read(stream, longest).map_err(|_| broken("an invalid record"))? else {
            self.stream.drain(..self.read);
            self.read = 0;
            return Ok(None);
        };
        let observed = match record {
            Record::Origin { origin, kept } => {
                if kept != place.index || origin == place.origin {
                    return Err(broken("another history that does not begin at the present place"));
                }
                let last = ObservedPosition { group: self.group, place: *place };
                let begins = place.origin.is_none();
                place.origin = origin;
                (!begins).then_some(Observed::Reset(ObservedReset { last, goes_on: true }))
            }
            Record::Step(step) => {
                advance(place, step)?;
                Some(Observed::Step(ObservedPosition { group: self.group, place: *place }))
            }
            Record::Command(step, command) => {
                advance(place, step)?;
                let position = ObservedPosition { group: self.group, place: *place };
                Some(Observed::Command(command_of(position, &command, runtime)))
            }
        };
        self.read += bytes;
        observed.map_or_else(|| self.next(runtime), |observed| Ok(Some(observed)))
    }

    /// Processes a frame. [`next`](Following::next) must have returned all earlier events.
    pub(super) fn take(&mut self, frame: &Frame<'_>) -> Result<(), Stop> {
        match *frame {
            Frame::Refused(refusal) => Err(Stop::Fault(Fault::Refused(refusal))),
            Frame::Alive(_) => Ok(()),
            Frame::Begin(_) => Err(broken("a question")),
            Frame::Welcome(place) if self.has_begun() => Err(broken(&format!("a second welcome, at {}", place.index))),
            Frame::Welcome(place) => {
                let is_same = |before: Place| (before.origin, before.index) == (place.origin, place.index);
                if !self.before.is_none_or(is_same) {
                    return Err(broken("it continues from another place than was requested"));
                }
                self.place = Some(self.before.unwrap_or(place));
                Ok(())
            }
            Frame::Records(bytes) if self.place.is_some() && self.state.is_none() => {
                self.stream.extend_from_slice(bytes);
                Ok(())
            }
            Frame::State(place) if self.state.is_none() => {
                // The beginning of an incomplete record is dropped, because the member no longer keeps the rest.
                self.stream.clear();
                self.read = 0;
                self.state = Some((place, Vec::new()));
                Ok(())
            }
            Frame::Piece(bytes) => self.take_piece(bytes),
            Frame::StateEnd(bytes) => self.end_state(bytes),
            Frame::Records(_) | Frame::State(_) => Err(broken("a frame out of turn")),
        }
    }

    fn take_piece(&mut self, bytes: &[u8]) -> Result<(), Stop> {
        let Some((_, state)) = &mut self.state else { return Err(broken("a piece without a state")) };
        if (state.len() + bytes.len()) as u64 > self.longest_state {
            return Err(Stop::TooLarge);
        }
        state.extend_from_slice(bytes);
        Ok(())
    }

    fn end_state(&mut self, bytes: u64) -> Result<(), Stop> {
        let Some((place, state)) = self.state.take() else { return Err(broken("an end without a state")) };
        if state.len() as u64 != bytes {
            return Err(broken("an incomplete state"));
        }
        if let Some(last) = self.place.or(self.before).filter(|last| !last.is_beginning()) {
            if last.origin != place.origin {
                let last = ObservedPosition { group: self.group, place: last };
                self.made.push_back(Observed::Reset(ObservedReset { last, goes_on: false }));
            } else if place.index < last.index {
                return Err(Stop::Fault(Fault::Refused(Refusal::Behind)));
            }
        }
        self.place = Some(place);
        let position = ObservedPosition { group: self.group, place };
        self.made.push_back(Observed::State(ObservedState { position, bytes: state }));
        Ok(())
    }
}

fn broken(what: &str) -> Stop {
    Stop::Fault(Fault::Broken(what.to_owned()))
}

/// Advances a place by one index.
fn advance(place: &mut Place, step: Step) -> Result<(), Stop> {
    if step.index != place.index + 1 {
        return Err(broken(&format!("index {} follows index {}", step.index, place.index)));
    }
    (place.index, place.timestamp) = (step.index, step.timestamp);
    Ok(())
}

fn command_of(position: ObservedPosition, command: &CommandRecord<'_>, runtime: &ClusterRuntime) -> ObservedCommand {
    let topology = runtime.topology();
    let is_client = usize::from(command.client) < topology.clients();
    let sender = if is_client { runtime.name(topology.client_process(ClientId(command.client))) } else { "?" };
    ObservedCommand {
        position,
        sender: sender.to_owned(),
        session: (command.session != 0).then_some(SessionId(stentor_session::SessionId(command.session))),
        groups: command.groups.iter().map(Group).collect(),
        bytes: command.bytes.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use stentor_multicast::{GroupId, Incarnation, Timestamp};

    use super::super::record::GroupList;
    use super::*;
    use crate::Cluster;

    const GROUP: Group = Group(GroupId(0));

    fn cluster() -> Cluster {
        Cluster::builder("c").group("g", [("a", "a:1")]).build().expect("a sound cluster")
    }

    fn origin(number: u32) -> Incarnation {
        Incarnation { number, tag: number }
    }

    fn place(number: u32, index: u64) -> Place {
        Place { origin: origin(number), index, timestamp: Timestamp { time: index, group: 0 } }
    }

    fn records(indexes: std::ops::RangeInclusive<u64>) -> Vec<u8> {
        let mut out = Vec::new();
        for index in indexes {
            let step = Step { index, timestamp: Timestamp { time: index, group: 0 } };
            let command = CommandRecord { client: 1, session: 5, groups: GroupList::Ids(&[GroupId(0)]), bytes: b"it" };
            if index % 3 == 0 { Record::Step(step) } else { Record::Command(step, command) }.write(&mut out);
        }
        out
    }

    /// Returns the events that these frames produce, as text, or the reason why they end.
    fn seen(before: Option<Place>, frames: &[Frame<'_>]) -> Result<Vec<String>, String> {
        let cluster = cluster();
        let mut following = Following::new(GROUP, 20, before);
        let (mut all, mut last) = (Vec::new(), before);
        for frame in frames {
            following.take(frame).map_err(|stop| format!("{stop:?}"))?;
            while let Some(observed) = following.next(cluster.runtime()).map_err(|stop| format!("{stop:?}"))? {
                let place = observed.position().place;
                let text = match &observed {
                    Observed::Command(_) | Observed::Step(_) => {
                        assert!(last.is_none_or(|last| last.index + 1 == place.index), "{last:?}, then {observed:?}");
                        place.index.to_string()
                    }
                    Observed::State(state) => format!("state {} of {}", state.bytes.len(), place.index),
                    Observed::Reset(reset) => format!("reset {} {}", reset.last.index(), reset.goes_on),
                };
                last = Some(place);
                all.push(text);
            }
        }
        Ok(all)
    }

    #[test]
    fn records_follow_the_place_and_a_state_replaces_omitted_ones() {
        let all = records(8..=12);
        // The split is in the middle of a record.
        let (one, two) = all.split_at(all.len() / 2 + 3);
        let void = records(13..=13);
        let frames = [
            Frame::Welcome(place(1, 7)),
            Frame::Records(one),
            Frame::Alive(12),
            Frame::Records(two),
            Frame::Records(&void[..9]),
            Frame::State(place(1, 40)),
            Frame::Piece(b"abc"),
            Frame::Piece(b"d"),
            Frame::StateEnd(4),
        ];
        let expected = ["8", "9", "10", "11", "12", "state 4 of 40"];
        assert_eq!(seen(Some(place(1, 7)), &frames).expect("the frames are valid"), expected);
        let mut other = Vec::new();
        Record::Origin { origin: origin(2), kept: 7 }.write(&mut other);
        let frames = [Frame::Welcome(place(1, 7)), Frame::Records(&other), Frame::Records(&all)];
        let expected = ["reset 7 true", "8", "9", "10", "11", "12"];
        assert_eq!(seen(Some(place(1, 7)), &frames).expect("the frames are valid"), expected);
        let state = [Frame::State(place(2, 3)), Frame::StateEnd(0)];
        assert_eq!(seen(Some(place(1, 7)), &state).expect("the frames are valid"), ["reset 7 false", "state 0 of 3"]);
        assert_eq!(seen(Some(place(0, 0)), &state).expect("the frames are valid"), ["state 0 of 3"]);
        assert_eq!(seen(None, &state).expect("the frames are valid"), ["state 0 of 3"]);
    }

    #[test]
    fn gaps_repetitions_and_frames_out_of_turn_are_refused() {
        let welcome = Frame::Welcome(place(1, 7));
        let (gap, again, mut late) = (records(9..=9), records(7..=7), Vec::new());
        Record::Origin { origin: origin(2), kept: 6 }.write(&mut late);
        let cases: [&[Frame<'_>]; 11] = [
            &[welcome, Frame::Records(&gap)],
            &[welcome, Frame::Records(&again)],
            &[welcome, Frame::Records(&late)],
            &[welcome, Frame::Records(&[0, 0, 0, 1, 9])],
            &[welcome, welcome],
            &[Frame::Welcome(place(1, 8))],
            &[Frame::Welcome(place(2, 7))],
            &[Frame::Records(&gap)],
            &[Frame::Piece(b"x")],
            &[Frame::State(place(1, 9)), Frame::Piece(b"x"), Frame::StateEnd(2)],
            &[Frame::State(place(1, 9)), Frame::State(place(1, 9))],
        ];
        for frames in cases {
            let why = seen(Some(place(1, 7)), frames).expect_err("the frames are invalid");
            assert!(why.contains("Broken"), "{frames:?}: {why}");
        }
        let why = |frames: &[Frame<'_>]| seen(Some(place(1, 7)), frames).expect_err("the frames are invalid");
        assert!(why(&[Frame::State(place(1, 9)), Frame::Piece(&[0; 21])]).contains("TooLarge"));
        assert!(why(&[Frame::State(place(1, 6)), Frame::StateEnd(0)]).contains("Behind"), "an older state");
        assert!(why(&[Frame::Refused(Refusal::Ends)]).contains("Ends"));
    }

    proptest! {
        #[test]
        fn arbitrary_frames_leave_no_gap_in_the_order(
            frames in proptest::collection::vec((0_u8..8, 0_u64..6, proptest::collection::vec(any::<u8>(), 0..30)), 0..12),
            known in any::<bool>(),
        ) {
            let good: Vec<_> = frames.iter().map(|(_, index, _)| records(*index + 1..=*index + 2)).collect();
            let frames: Vec<_> = frames.iter().zip(&good).map(|((kind, index, bytes), good)| match kind {
                0 => Frame::Welcome(place(1, *index)),
                1 => Frame::State(place(1 + (*index as u32) / 4, *index)),
                2 => Frame::Piece(&bytes[..bytes.len() % 5]),
                3 => Frame::StateEnd(*index),
                4 => Frame::Records(bytes),
                5 | 6 => Frame::Records(good),
                _ => Frame::Alive(*index),
            }).collect();
            // `seen` asserts that indexes are consecutive.
            let _ = seen(known.then(|| place(1, 2)), &frames);
        }
    }
}
