//! V2: the calls of all clients have one serial order.

use std::collections::HashMap;

use stentor_checker::Group;
use stentor_checker::calls::{Call, History, Kind, Model, Outcome, Position, Verdict, decide, verify};

use super::agreement::Agreed;
use super::evidence::Called;
use super::{CallKind, Evidence, How, Registers, ServiceCounts};
use crate::commands::chaos::service::records::Place;

/// The sequential service. The text of an operation is followed by `@` and the time of its place.
struct Sequential;

fn timed(operation: &[u8]) -> (String, u64) {
    let text = String::from_utf8_lossy(operation);
    let (operation, time) = text.rsplit_once('@').unwrap_or((&text, "0"));
    (operation.to_owned(), time.parse().unwrap_or(0))
}

impl Model for Sequential {
    type State = Registers;

    fn initial(&self, _: Group) -> Registers {
        Registers::default()
    }

    fn apply(&self, state: &mut Registers, _: Group, operation: &[u8]) -> Vec<u8> {
        let (operation, time) = timed(operation);
        state.expire(time);
        state.apply(time, "", &operation).reply.into_bytes()
    }

    fn read(&self, state: &Registers, _: Group, query: &[u8]) -> Vec<u8> {
        let (query, time) = timed(query);
        let mut state = state.clone();
        state.expire(time);
        state.read(&query).into_bytes()
    }
}

/// Searches for one serial order of all calls. Returns `true` if there is one, or `false` if the search was too
/// expensive and was stopped.
///
/// # Errors
/// Returns a description of the error if there is no such order, or if a recorded call is invalid.
pub(super) fn serial(evidence: &Evidence, agreed: &Agreed, counts: &mut ServiceCounts) -> Result<bool, String> {
    let mut history = History::new();
    let mut sessions = HashMap::new();
    let mut order = Vec::new();
    let seen = Seen::of(&evidence.calls);
    for called in &evidence.calls {
        let next = sessions.len() as u64;
        let session = *sessions.entry(called.session.as_str()).or_insert(next);
        let shown = place(called, agreed);
        let place = shown.map(|shown| seen.place(called, shown, agreed));
        let call = call(called, session, (shown, place), evidence.complete);
        count(called, counts);
        let number = history.push(call).map_err(|error| format!("call {}: {error}", called.call))?;
        let takes_part = match &history.calls()[number].outcome {
            Outcome::Answered { .. } => true,
            Outcome::Unknown => called.kind == CallKind::Command && place.is_some(),
            Outcome::NotApplied => false,
        };
        if let Some(place) = place.filter(|_| takes_part) {
            let call = &history.calls()[number];
            // Reads that are not in the order follow the last command that they have seen.
            order.push((place.time, place.of, !call.kind.is_multicast(), call.submitted, number));
        }
    }
    order.sort_unstable();
    let order: Vec<usize> = order.into_iter().map(|(.., number)| number).collect();
    let Err(why) = verify(&history, &Sequential, &order) else { return Ok(true) };
    match decide(&history, &Sequential) {
        Verdict::Kept(_) => Ok(true),
        Verdict::Violated(example) => Err(format!("{example}\n  in the order that members have, {why}")),
        Verdict::TooHard => Ok(false),
    }
}

/// Returns the place of a call: that of its answer, or the one where members applied it.
fn place(called: &Called, agreed: &Agreed) -> Option<Place> {
    match &called.end {
        Some((_, How::Answered { place, .. })) => Some(*place),
        _ => called
            .to
            .iter()
            .find_map(|group| agreed.groups.get(usize::from(*group))?.commands.get(&called.call).copied()),
    }
}

/// The latest times that sessions have seen.
struct Seen<'a>(HashMap<&'a str, Vec<(u64, u64)>>);

impl<'a> Seen<'a> {
    fn of(calls: &'a [Called]) -> Self {
        let mut sessions: HashMap<&str, Vec<(u64, u64)>> = HashMap::new();
        for called in calls {
            if let Some((at, How::Answered { place, .. })) = &called.end {
                sessions.entry(&called.session).or_default().push((*at, place.time));
            }
        }
        for answers in sessions.values_mut() {
            answers.sort_unstable();
            let mut latest = 0;
            answers.iter_mut().for_each(|(_, time)| {
                latest = latest.max(*time);
                *time = latest;
            });
        }
        Seen(sessions)
    }

    /// Returns the place of a call in the serial order. `shown` is the last place in its answer.
    ///
    /// A read at a leader follows the latest time that its session had seen. A new leader may have reached this time
    /// without a command, because its clock begins at the recovered time. The read then has this time, provided that
    /// the next command of the group is later.
    fn place(&self, called: &Called, shown: Place, agreed: &Agreed) -> Place {
        if called.kind != CallKind::Leader {
            return shown;
        }
        let answers = self.0.get(called.session.as_str()).map_or(&[][..], Vec::as_slice);
        let known = answers.partition_point(|(at, _)| *at <= called.at);
        let seen = known.checked_sub(1).map_or(0, |last| answers[last].1);
        let group = called.to.first().and_then(|group| agreed.groups.get(usize::from(*group)));
        let next = group.and_then(|group| group.places.range(shown.index + 1..).next());
        let is_missing = next.is_some_and(|(_, (next, _))| next.time <= seen);
        if seen > shown.time && !is_missing { Place { time: seen, of: u16::MAX, ..shown } } else { shown }
    }
}

/// Returns the call as the checker judges it. `shown` is the last place in its answer, and `place` its place in the
/// serial order.
fn call(called: &Called, session: u64, (shown, place): (Option<Place>, Option<Place>), complete: bool) -> Call {
    let position = |place: Place| Position { time: place.time, group: Group(place.of) };
    let kind = match called.kind {
        CallKind::Command => Kind::Command,
        CallKind::Ordered => Kind::Ordered,
        CallKind::Leader => Kind::Leader,
        CallKind::After => called.after.map_or(Kind::Local, |after| Kind::After(position(after))),
        CallKind::Local => Kind::Local,
    };
    let outcome = match &called.end {
        Some((at, How::Answered { replies, .. })) => Outcome::Answered {
            at: *at,
            replies: replies.iter().map(|(group, reply)| (Group(*group), reply.clone().into_bytes())).collect(),
            position: place.map(position),
        },
        Some((_, How::NotApplied(_))) => Outcome::NotApplied,
        // No call is in flight any more.
        _ if place.is_none() && complete => Outcome::NotApplied,
        _ => Outcome::Unknown,
    };
    Call {
        session,
        generation: called.life.into(),
        submitted: called.at,
        groups: called.to.iter().map(|group| Group(*group)).collect(),
        operation: format!("{}@{}", called.operation, shown.map_or(0, |shown| shown.time)).into_bytes(),
        kind,
        outcome,
        observed: Vec::new(),
    }
}

fn count(called: &Called, counts: &mut ServiceCounts) {
    let name = match called.kind {
        CallKind::Command => return,
        CallKind::Ordered => "ordered",
        CallKind::Leader => "leader",
        CallKind::After => "after",
        CallKind::Local => "local",
    };
    match called.end {
        Some((_, How::Answered { .. })) => *counts.reads.entry(name).or_default() += 1,
        Some((_, How::NotApplied(_))) => counts.not_applied += 1,
        _ => counts.unknown += 1,
    }
}
