//! V4: the notifications of a session arrive in order, or are reported as missed in their place.

use super::agreement::Agreed;
use super::evidence::ClientLife;
use super::{CallKind, ClientRecord, Evidence, How, ServiceCounts};

/// Checks the notifications of each group to each process of each client.
///
/// Only notifications from places after the process's `watch` count. A process that resumes a session may receive
/// earlier ones, which were meant for the previous process.
pub(super) fn told(evidence: &Evidence, agreed: &Agreed, counts: &mut ServiceCounts) -> Result<(), String> {
    let last =
        |life: &ClientLife| !evidence.clients.iter().any(|other| other.client == life.client && other.life > life.life);
    for life in &evidence.clients {
        let closed = life.records.iter().any(|record| matches!(record, ClientRecord::Closed { .. }));
        if last(life) && !closed && evidence.complete {
            return Err(format!("client {} ended without closing its records", life.client));
        }
        for group in 0..evidence.groups {
            let Some(from) = watched(evidence, life, group) else { continue };
            let order = &agreed.groups[usize::from(group)];
            let sent = order.places.iter().filter(|(index, _)| **index > from).flat_map(|(index, (_, events))| {
                let notes = events.iter().flat_map(|(_, notified)| notified).filter(|to| **to == life.session);
                notes.map(|_| *index)
            });
            let sent: Vec<u64> = sent.collect();
            follow(life, group, (from, &sent), closed, counts)
                .map_err(|why| format!("client {} in its life {}, group {group}: {why}", life.client, life.life))?;
        }
    }
    Ok(())
}

/// Returns the index of the answered `watch` of this process in a group.
fn watched(evidence: &Evidence, life: &ClientLife, group: u16) -> Option<u64> {
    let is_own = |call: u64| call >> 48 == life.client && call >> 32 & 0xffff == u64::from(life.life);
    evidence.calls.iter().find_map(|called| {
        let is_it = is_own(called.call) && called.kind == CallKind::Command && called.to == [group];
        match &called.end {
            Some((_, How::Answered { place, .. }))
                if is_it && called.operation.starts_with("watch ") && !called.later =>
            {
                Some(place.index)
            }
            _ => None,
        }
    })
}

fn follow(
    life: &ClientLife,
    group: u16,
    (from, sent): (u64, &[u64]),
    closed: bool,
    counts: &mut ServiceCounts,
) -> Result<(), String> {
    // Number of sent notifications up to the last received one; number of notifications that were reported as missed
    // since then; and whether none was received yet.
    let (mut passed, mut missed, mut is_first) = (0, 0, true);
    for record in &life.records {
        match record {
            ClientRecord::Missed { group: of, count, .. } if *of == group => {
                missed += count;
                counts.missed += count;
            }
            ClientRecord::Note { group: of, place, .. } if *of == group => {
                if place.index <= from {
                    missed = 0;
                    continue;
                }
                let at = sent[passed..].iter().position(|index| *index == place.index);
                let lost =
                    at.ok_or_else(|| format!("{place:?} was received, but it was sent earlier, twice or not at all"))?;
                check(lost as u64, missed, is_first).map_err(|why| format!("before {place:?} {why}"))?;
                passed += lost + 1;
                (missed, is_first) = (0, false);
                counts.notified += 1;
            }
            _ => {}
        }
    }
    if closed {
        let lost = (sent.len() - passed) as u64;
        check(lost, missed, is_first).map_err(|why| format!("at the end {why}"))?;
    }
    Ok(())
}

/// Compares the number of notifications that did not arrive with the number reported as missed. Before the first
/// received notification, more may be reported, because some may have been sent before the `watch`.
fn check(lost: u64, missed: u64, is_first: bool) -> Result<(), String> {
    if lost == missed || (is_first && lost < missed) {
        return Ok(());
    }
    Err(format!("{lost} notifications did not arrive, and {missed} were reported as missed"))
}
