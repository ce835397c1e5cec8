//! Judges the entries of groups: time entries and version entries.
//!
//! Entries are messages of the scenario, so all other properties hold for them, too: their order, their timestamps, and
//! their message in each slot. No client multicasts them, so a group need not deliver an entry that a crashed leader
//! alone has ordered.

use stentor_multicast::Replica;

use super::member::{Context, Member};
use crate::scenario::Request;
use crate::verdict::{Entry, Flaws, REQUESTED, VERSION};

/// Judges the deliveries so far: a time entry has a later time than the requested one, and all members of a group
/// deliver a version entry at the same place. At that place the version is in force.
pub(super) fn judge(context: &Context, members: &[&Member]) -> Flaws {
    let mut flaws = 0;
    let mut places = [None; 32];
    for log in members.iter().flat_map(|member| [&member.log, &member.before]) {
        for (place, (message, at)) in log.iter().enumerate() {
            match context.scenario.messages[usize::from(*message)].entry {
                Some(Request::Time(after)) if at.time <= after => flaws |= REQUESTED.0,
                Some(Request::Version(_)) if *places[usize::from(*message)].get_or_insert(place) != place => {
                    flaws |= VERSION.0;
                }
                _ => {}
            }
        }
    }
    flaws
}

/// Returns whether each member that is up has delivered every entry that it knows to be ordered and every entry that a
/// member of its group has ever delivered, and has the version that its group was told to reach.
pub(super) fn are_complete(context: &Context, members: &[Member]) -> bool {
    let group = |member: &Member| context.group(member.process);
    let of = |member: &Member| -> Vec<Entry> { member.log.iter().chain(&member.before).copied().collect() };
    let is_complete = |member: &Member, replica: &Replica| {
        let others = members.iter().filter(|other| group(other) == group(member));
        let has = |message: u8| member.log.iter().any(|(known, _)| *known == message);
        let goals = context.scenario.messages.iter().filter_map(|message| match message.entry {
            Some(Request::Version(goal)) if message.to.contains(&group(member)) => Some(goal),
            _ => None,
        });
        let versions = member.log.iter().filter(|(message, _)| {
            matches!(context.scenario.messages[usize::from(*message)].entry, Some(Request::Version(_)))
        });
        let version = 1 + versions.count() as u32;
        others.flat_map(of).all(|(message, _)| has(message))
            && replica.time_entry_under_way().is_none()
            && replica.ordered_version() == version
            && goals.max().is_none_or(|goal| goal == version)
    };
    members.iter().all(|member| member.replica.as_ref().is_none_or(|replica| is_complete(member, replica)))
}
