//! V3: the ordered time follows the real time. Module `agreement`, which replays the order, checks that the ordered
//! time rises and that timers fire by it.

use super::agreement::Agreed;
use super::{CallKind, Evidence, How, ServiceCounts, Told};

/// Allowance in nanoseconds, in addition to the bound of clocks, because a member reads its clocks between rounds of
/// its loop.
const SLACK: i128 = 50_000_000;

/// Checks that a command is ordered between its call and its answer, and that no member applies a command of the
/// future. The reference is the wall clock of this host, which no fault touches; errors within the bound are allowed.
pub(super) fn real(evidence: &Evidence, agreed: &Agreed, counts: &mut ServiceCounts) -> Result<(), String> {
    let wall = |at: u64| i128::from(at) + evidence.wall;
    let most = i128::from(evidence.bound) + SLACK;
    for called in evidence.calls.iter().filter(|called| called.kind == CallKind::Command) {
        let Some((at, How::Answered { place, .. })) = &called.end else { continue };
        let time = i128::from(place.time);
        let (behind, ahead) = (wall(called.at) - time, time - wall(*at));
        counts.time_behind_us = counts.time_behind_us.max((behind.max(0) / 1000) as u64);
        counts.time_ahead_us = counts.time_ahead_us.max((ahead.max(0) / 1000) as u64);
        if behind.max(ahead) > most {
            return Err(format!(
                "`{}` was ordered at a time {} ms after its call and {} ms after its answer; the bound is {} ms",
                called.operation,
                -behind / 1_000_000,
                ahead / 1_000_000,
                evidence.bound / 1_000_000
            ));
        }
    }
    for (member, record) in
        evidence.members.iter().flat_map(|life| life.records.iter().map(move |record| (life, record)))
    {
        let Some(place) = record.place else { continue };
        let ahead = i128::from(place.time) - wall(record.at);
        if ahead > most {
            return Err(format!(
                "`{}` applied {:?} {} ms before its time",
                member.name,
                record.told,
                ahead / 1_000_000
            ));
        }
    }
    timers(evidence, agreed, counts);
    Ok(())
}

/// Counts the places at which timers fired, and finds the largest delay. The allowed delay depends on the faults, so it
/// is not judged.
fn timers(evidence: &Evidence, agreed: &Agreed, counts: &mut ServiceCounts) {
    for (group, order) in (0_u16..).zip(&agreed.groups) {
        for (index, (place, events)) in &order.places {
            if !events.iter().any(|(told, _)| matches!(told, Told::Timer(_))) {
                continue;
            }
            counts.timers += 1;
            let members = evidence.members.iter().filter(|life| life.group == group);
            let records = members.flat_map(|life| &life.records);
            let told = records.filter(|record| record.place.is_some_and(|place| place.index == *index));
            if let Some(first) = told.map(|record| i128::from(record.at) + evidence.wall).min() {
                let late = (first - i128::from(place.time)).max(0) / 1_000_000;
                counts.latest_timer_ms = counts.latest_timer_ms.max(late as u64);
            }
        }
    }
}
