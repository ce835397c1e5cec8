//! V1: the members of a group agree about its order, and each command is in it once.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashMap};

use super::evidence::{Called, MemberLife};
use super::{CallKind, Evidence, How, MemberRecord, Registers, ServiceCounts, Told};
use crate::commands::chaos::service::records::Place;

/// The inputs of a machine at one place, in order, each with the notified sessions.
pub(super) type Events = Vec<(Told, Vec<String>)>;

/// The order of a group on which its members agree.
#[derive(Clone, Debug, Default)]
pub(super) struct GroupOrder {
    /// Place and inputs, by index.
    pub(super) places: BTreeMap<u64, (Place, Events)>,
    /// Place of each command, by the token of the command.
    pub(super) commands: HashMap<u64, Place>,
}

/// The orders of all groups.
#[derive(Clone, Debug, Default)]
pub(super) struct Agreed {
    pub(super) groups: Vec<GroupOrder>,
}

/// Returns the token of a command: the last word.
pub(super) fn token(operation: &str) -> Option<u64> {
    operation.rsplit(' ').next()?.parse().ok()
}

/// Merges the inputs of the members of each group.
///
/// # Errors
/// Returns an error if two members differ, if one has skipped an input, if places do not rise, if a command occurs
/// twice, or if a replay of the inputs has other replies, timers or notifications.
pub(super) fn agreed(evidence: &Evidence) -> Result<Agreed, String> {
    let mut agreed = Agreed { groups: vec![GroupOrder::default(); usize::from(evidence.groups)] };
    let lives: Vec<_> = evidence.members.iter().map(|life| (life, runs(&life.records))).collect();
    for (life, runs) in &lives {
        let order = &mut agreed.groups[usize::from(life.group)].places;
        for run in runs {
            // A process that is killed may have recorded only a part of the inputs at its last place.
            let last = run.keys().next_back();
            for (index, told) in run.iter().filter(|(index, _)| Some(*index) != last) {
                merge(order, *index, told, life)?;
            }
        }
    }
    for (life, runs) in &lives {
        let order = &mut agreed.groups[usize::from(life.group)].places;
        for (index, (place, events)) in runs.iter().filter_map(|run| run.last_key_value()) {
            let known = order.entry(*index).or_insert_with(|| (*place, events.clone()));
            if known.0 != *place || !(known.1.starts_with(events) || events.starts_with(&known.1)) {
                return Err(differs(*index, &(*place, events.clone()), known, life));
            }
            if events.len() > known.1.len() {
                known.1.clone_from(events);
            }
        }
    }
    for (life, runs) in &lives {
        let order = &agreed.groups[usize::from(life.group)].places;
        runs.iter().try_for_each(|run| has_no_gap(run, order, life))?;
    }
    for (group, order) in agreed.groups.iter_mut().enumerate() {
        index(group, order)?;
    }
    Ok(agreed)
}

type Run = BTreeMap<u64, (Place, Events)>;

/// Returns the inputs of a member in one life, by place. A new run begins wherever the member restored a value.
fn runs(records: &[MemberRecord]) -> Vec<Run> {
    let mut runs = vec![Run::new()];
    for record in records {
        let (Some(place), Some(run)) = (record.place, runs.last_mut()) else {
            runs.push(Run::new());
            continue;
        };
        run.entry(place.index).or_insert((place, Vec::new())).1.push((record.told.clone(), record.notified.clone()));
    }
    runs
}

fn merge(order: &mut Run, index: u64, told: &(Place, Events), life: &MemberLife) -> Result<(), String> {
    match order.entry(index) {
        Entry::Vacant(entry) => drop(entry.insert(told.clone())),
        Entry::Occupied(entry) if entry.get() == told => {}
        Entry::Occupied(entry) => return Err(differs(index, told, entry.get(), life)),
    }
    Ok(())
}

fn differs(index: u64, told: &(Place, Events), other: &(Place, Events), life: &MemberLife) -> String {
    format!("place {index} of group {}: `{}` has {told:?}, and another member has {other:?}", life.group, life.name)
}

fn has_no_gap(run: &Run, order: &Run, life: &MemberLife) -> Result<(), String> {
    let (Some((first, _)), Some((last, _))) = (run.first_key_value(), run.last_key_value()) else { return Ok(()) };
    let missing = order.range(first..=last).find(|(index, _)| !run.contains_key(index));
    missing.map_or(Ok(()), |(index, told)| {
        Err(format!("`{}` has left out place {index} of group {}: {told:?}", life.name, life.group))
    })
}

/// Checks that places rise, replays the order, and records the place of each command.
fn index(group: usize, order: &mut GroupOrder) -> Result<(), String> {
    let mut before: Option<Place> = None;
    let mut value = Registers::default();
    for (index, (place, events)) in &order.places {
        if before.is_some_and(|before| (before.time, before.of) >= (place.time, place.of)) {
            return Err(format!("group {group}: place {index} is {place:?}, behind {before:?}"));
        }
        before = Some(*place);
        for (told, notified) in events {
            let replayed = replay(&mut value, place.time, told);
            let replayed = replayed.map_err(|why| format!("group {group}, place {index}: {told:?}: {why}"))?;
            if replayed != *notified {
                return Err(format!("group {group}, place {index}: {notified:?} were notified, and not {replayed:?}"));
            }
            let Told::Applied { operation, .. } = told else { continue };
            let Some(token) = token(operation) else { continue };
            if let Some(earlier) = order.commands.insert(token, *place) {
                return Err(format!("group {group} has applied `{operation}` twice: at {earlier:?} and {place:?}"));
            }
        }
    }
    Ok(())
}

/// Replays an input on the sequential value. Returns the notified sessions.
fn replay(value: &mut Registers, time: u64, told: &Told) -> Result<Vec<String>, String> {
    match told {
        Told::Applied { session, operation, reply } => {
            let mut on_time = value.clone();
            on_time.expire(time);
            if on_time != *value {
                return Err("a timer that is due has not fired before it".to_owned());
            }
            let effects = value.apply(time, session, operation);
            if effects.reply != *reply {
                return Err(format!("the sequential service replies {}", effects.reply));
            }
            Ok(effects.notified)
        }
        Told::Timer(lease) => {
            // The copy fires all timers that are due at `time`. If this timer was due, firing it again changes nothing.
            let mut on_time = value.clone();
            on_time.expire(time);
            let mut again = on_time.clone();
            again.timer(*lease);
            if again != on_time {
                return Err("the timer was not due".to_owned());
            }
            Ok(value.timer(*lease))
        }
        Told::Ended(session) => {
            value.session_ended(session);
            Ok(Vec::new())
        }
        Told::Restored => Ok(Vec::new()),
    }
}

/// Checks that each command is in all its groups at one place, or in none, and that the outcome that its client knows
/// agrees with this.
pub(super) fn once(evidence: &Evidence, agreed: &Agreed, counts: &mut ServiceCounts) -> Result<(), String> {
    let mut known = HashMap::new();
    for called in evidence.calls.iter().filter(|called| called.kind == CallKind::Command) {
        known.insert(called.call, called);
        let places: Vec<_> =
            called.to.iter().map(|group| agreed.groups[usize::from(*group)].commands.get(&called.call)).collect();
        let applied = places.iter().flatten().count();
        let what = || format!("`{}` to groups {:?} (call {})", called.operation, called.to, called.call);
        if applied > 0 && applied < places.len() && evidence.complete {
            return Err(format!("{} is applied in some of its groups only: {places:?}", what()));
        }
        let mut places = places.into_iter().flatten().map(|place| (place.time, place.of));
        let place = places.next();
        if places.any(|other| Some(other) != place) {
            return Err(format!("{} has not one place in all its groups", what()));
        }
        counts.commands += u64::from(applied > 0);
        counts.wide += u64::from(applied > 0 && called.to.len() > 1);
        tell(called, place, counts).map_err(|why| format!("{} {why}", what()))?;
    }
    let strays = agreed.groups.iter().flat_map(|group| group.commands.keys());
    let stray = strays.into_iter().find(|token| !known.contains_key(token));
    stray.map_or(Ok(()), |token| Err(format!("a command was applied that no client called: {token}")))
}

fn tell(called: &Called, place: Option<(u64, u16)>, counts: &mut ServiceCounts) -> Result<(), String> {
    let how = called.end.as_ref().map(|(_, how)| how);
    counts.resolved_later += u64::from(called.later);
    match (how, place) {
        (Some(How::Answered { place: told, .. }), Some(place)) if (told.time, told.of) == place => Ok(()),
        (Some(How::Answered { place: told, .. }), place) => {
            Err(format!("was answered as applied at {told:?}, and members have it at {place:?}"))
        }
        (Some(How::NotApplied(why)), Some(place)) => {
            Err(format!("was not applied ({why}), and members have it at {place:?}"))
        }
        (Some(How::NotApplied(_)), None) => {
            counts.not_applied += 1;
            Ok(())
        }
        (Some(How::Unknown(_)) | None, place) => {
            counts.unknown += 1;
            counts.unknown_applied += u64::from(place.is_some());
            Ok(())
        }
    }
}
