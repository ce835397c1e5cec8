//! The judge of the times of a group's order, and of the versions in force.
//!
//! A session ends at the first position whose time is later than its end. A timer fires once, at the first position
//! whose time is not before its own. At each position, sessions end first, in the order of (end, id), then timers fire,
//! and the message takes effect last. The timers that are due when a position begins fire in the order of (time, id).
//! If there are any, those that are set meanwhile for a time that has been reached fire after them, in the same order.
//!
//! The judge has a model of its own. It learns of timers from the machine that sets them, and of the ends of sessions
//! from the answers to their clients. The first member that passes a position is compared with the model, and every
//! other member with the first.
//!
//! The version in force is 1, plus one for each version entry up to the position. No member passes a position in a
//! version that its program does not have.

use std::collections::{BTreeMap, BTreeSet};

use stentor_fabric::ProcessId;
use stentor_multicast::GroupId;
use stentor_session::SessionId;

use super::machine::TimeEvent;

/// A position in one group's order: the number of a delivery.
type Place = (GroupId, u64);

/// The effects of a delivery at one member.
#[derive(Debug)]
pub(super) struct Timed {
    /// The time of the position.
    pub(super) time: u64,
    pub(super) events: Vec<TimeEvent>,
    /// `true` if the message ended its session.
    pub(super) ends: bool,
    /// The session whose end the message sets, and the end.
    pub(super) end: Option<(SessionId, u64)>,
    /// `true` if the delivery is a version entry.
    pub(super) raises_version: bool,
    /// The version in which the member passed the position.
    pub(super) version: u32,
    /// The version of the member's program.
    pub(super) program: u32,
}

/// The first member at a position, and what it did there.
#[derive(Debug)]
struct First {
    me: ProcessId,
    events: Vec<TimeEvent>,
    /// The version in force at the position.
    version: u32,
}

/// The state of the judge of times and versions.
#[derive(Debug, Default)]
pub(super) struct TimeLedger {
    groups: BTreeMap<GroupId, Group>,
    places: BTreeMap<Place, First>,
}

impl TimeLedger {
    /// Judges a position that a member has passed. Returns whether it is the first member there, and the property that
    /// it violates, if any.
    pub(super) fn passed(&mut self, place: Place, me: ProcessId, at: &Timed) -> (bool, Option<(&'static str, String)>) {
        let (id, number) = place;
        let group = self.groups.entry(id).or_default();
        let is_first = number > group.number;
        let mut wrong = None;
        if is_first {
            (group.number, group.version) = (number, group.version + u32::from(at.raises_version));
            let version = 1 + group.version;
            self.places.insert(place, First { me, events: at.events.clone(), version });
            wrong = group.judge(at).err();
        } else if let Some(first) = self.places.get(&place).filter(|first| first.events != at.events) {
            wrong = Some(format!("{me} makes the calls {:?}, and {} made {:?}", at.events, first.me, first.events));
        }
        let wrong = wrong.map(|what| ("X12", format!("{me} of group {} at {number}: {what}", id.0)));
        let in_force = self.places.get(&place).map_or(at.version, |first| first.version);
        let (version, program) = (at.version, at.program);
        let of_version = (version != in_force || version > program).then(|| {
            let what = format!("passes {number} in version {version}, with a program of version {program}");
            ("X13", format!("{me} of group {} {what}, and version {in_force} is in force there", id.0))
        });
        (is_first, of_version.or(wrong))
    }
}

/// The model of one group.
#[derive(Debug, Default)]
struct Group {
    /// Number of the last position that a member has passed.
    number: u64,
    /// Number of version entries up to that position.
    version: u32,
    /// The end of each open session.
    ends: BTreeMap<SessionId, u64>,
    /// The time of each timer that is set.
    timers: BTreeMap<u64, u64>,
}

impl Group {
    fn due(&self, time: u64) -> BTreeSet<(u64, u64)> {
        let due = self.timers.iter().filter(|(_, at)| **at <= time);
        due.map(|(timer, at)| (*at, *timer)).collect()
    }

    /// Compares the calls of a machine at the next position with the model. Returns the first difference.
    fn judge(&mut self, at: &Timed) -> Result<(), String> {
        let over = self.ends.iter().filter(|(_, end)| **end < at.time);
        let over: BTreeSet<(u64, SessionId)> = over.map(|(session, end)| (*end, *session)).collect();
        let due = self.due(at.time);
        let mut turn = Turn { time: at.time, over, is_due: !due.is_empty(), due, is_over: false };
        for event in &at.events {
            match *event {
                TimeEvent::Set(time, timer) => {
                    self.timers.insert(timer, time);
                    turn.due.retain(|(_, due)| *due != timer);
                }
                TimeEvent::Cleared(timer) => {
                    self.timers.remove(&timer);
                    turn.due.retain(|(_, due)| *due != timer);
                }
                TimeEvent::Ended(session) => {
                    let expires = turn.over.first().is_some_and(|(_, first)| *first == session);
                    if expires {
                        turn.over.pop_first();
                    } else {
                        turn.close(self)?;
                    }
                    let is_open = self.ends.remove(&session).is_some();
                    if !(expires || at.ends && is_open) {
                        return Err(format!("session {:08x} ends too early", session.0 >> 96));
                    }
                }
                TimeEvent::Fired(timer) => turn.fire(self, timer)?,
                TimeEvent::Applied => turn.close(self)?,
            }
        }
        turn.close(self)?;
        if let Some((session, end)) = at.end {
            self.ends.insert(session, end);
        }
        Ok(())
    }
}

/// A position that a member passes.
struct Turn {
    time: u64,
    /// Sessions that must end before anything else happens.
    over: BTreeSet<(u64, SessionId)>,
    /// `true` if a timer was due when the position began.
    is_due: bool,
    /// Timers that must fire before others.
    due: BTreeSet<(u64, u64)>,
    /// `true` if all sessions that have expired have ended, and all timers that were due have fired.
    is_over: bool,
}

impl Turn {
    fn end_of_expired(&self) -> Result<(), String> {
        let Some((end, session)) = self.over.first() else { return Ok(()) };
        Err(format!("session {:08x}, whose end is {end}, has not ended at time {}", session.0 >> 96, self.time))
    }

    fn fire(&mut self, group: &mut Group, timer: u64) -> Result<(), String> {
        self.end_of_expired()?;
        if self.due.is_empty() && self.is_due {
            self.due = group.due(self.time);
        }
        let right = self.due.pop_first();
        if self.is_over || right.is_none_or(|(_, right)| right != timer) {
            let set = group.timers.get(&timer);
            return Err(format!(
                "timer {timer} fires at time {}: it is set for {set:?}, and the next one is {right:?}",
                self.time
            ));
        }
        group.timers.remove(&timer);
        Ok(())
    }

    /// Ends the part of the position before its message.
    fn close(&mut self, group: &Group) -> Result<(), String> {
        if std::mem::replace(&mut self.is_over, true) {
            return Ok(());
        }
        self.end_of_expired()?;
        let left = if self.is_due { group.due(self.time) } else { BTreeSet::new() };
        match left.first() {
            Some((at, timer)) => Err(format!("timer {timer}, set for {at}, has not fired at time {}", self.time)),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::TimeEvent::{Applied, Ended, Fired, Set};
    use super::*;

    fn at(time: u64, events: &[TimeEvent]) -> Timed {
        let events = events.to_vec();
        Timed { time, events, ends: false, end: None, raises_version: false, version: 1, program: 1 }
    }

    /// Judges positions of one group at one member. Returns the first violated property.
    fn judge(all: &[Timed]) -> Option<&'static str> {
        let mut ledger = TimeLedger::default();
        let judged = (1..).zip(all).map(|(number, at)| ledger.passed((GroupId(0), number), ProcessId(0), at));
        judged.filter_map(|(_, wrong)| wrong).map(|(property, _)| property).next()
    }

    #[test]
    fn timers_fire_when_they_are_due_and_in_order() {
        let set = || at(1, &[Applied, Set(10, 2), Set(9, 3), Set(10, 1)]);
        assert_eq!(judge(&[set(), at(9, &[Fired(3), Applied]), at(12, &[Fired(1), Fired(2)])]), None);
        assert_eq!(judge(&[set(), at(10, &[Fired(3), Set(4, 5), Fired(1), Fired(2), Fired(5), Applied])]), None);
        for wrong in [
            at(8, &[Fired(3)]),
            at(9, &[Applied]),
            at(9, &[Applied, Fired(3)]),
            at(10, &[Fired(1), Fired(2), Fired(3)]),
            at(10, &[Fired(3), Fired(1), Fired(2), Fired(2)]),
            at(10, &[Fired(3), Set(4, 5), Fired(1), Fired(2), Applied]),
        ] {
            assert_eq!(judge(&[set(), at(5, &[]), wrong]), Some("X12"));
        }
    }

    #[test]
    fn sessions_end_at_the_first_later_time_before_timers_and_the_message() {
        let [a, b] = [1, 2].map(SessionId);
        let open = |session, end| Timed { end: Some((session, end)), ..at(1, &[]) };
        let opened = || [open(a, 20), open(b, 10), at(1, &[Applied, Set(30, 7)])];
        let after = |last: &[Timed]| {
            let mut ledger = TimeLedger::default();
            let all = opened().into_iter().map(|at| (0, at)).collect::<Vec<_>>();
            let all = all.iter().map(|(_, at)| at).chain(last);
            (1..).zip(all).find_map(|(number, at)| ledger.passed((GroupId(0), number), ProcessId(0), at).1)
        };
        assert_eq!(after(&[at(10, &[Applied]), at(11, &[Ended(b), Applied])]), None);
        assert_eq!(after(&[at(30, &[Ended(b), Ended(a), Fired(7), Applied])]), None);
        assert_eq!(after(&[Timed { ends: true, ..at(5, &[Ended(b)]) }, at(12, &[Applied])]), None);
        for wrong in [
            at(10, &[Ended(b)]),
            at(11, &[Applied]),
            at(11, &[Applied, Ended(b)]),
            at(30, &[Ended(a), Ended(b), Fired(7)]),
            at(30, &[Ended(b), Fired(7), Ended(a)]),
            at(5, &[Ended(b)]),
        ] {
            assert!(after(&[wrong]).is_some_and(|(property, _)| property == "X12"));
        }
    }

    #[test]
    fn members_make_the_same_calls_in_the_version_in_force() {
        let mut ledger = TimeLedger::default();
        let mut second = |number, me, at: &Timed| ledger.passed((GroupId(0), number), ProcessId(me), at);
        let raised = || Timed { raises_version: true, version: 2, program: 2, ..at(4, &[]) };
        assert_eq!(second(1, 0, &at(3, &[Applied])), (true, None));
        assert_eq!(second(1, 1, &at(3, &[Applied])), (false, None));
        assert_eq!(second(2, 1, &raised()), (true, None));
        let property = |(_, wrong): (bool, Option<(&'static str, String)>)| wrong.map(|(property, _)| property);
        assert_eq!(property(second(1, 2, &at(3, &[]))), Some("X12"));
        assert_eq!(property(second(1, 2, &Timed { version: 2, program: 2, ..at(3, &[Applied]) })), Some("X13"));
        assert_eq!(property(second(2, 2, &Timed { version: 1, ..raised() })), Some("X13"));
        assert_eq!(property(second(2, 2, &Timed { program: 1, ..raised() })), Some("X13"));
    }
}
