//! Judges a run of a service by the records of its processes.
//!
//! - V1: all members of a group apply the same commands at the same places. Each command is applied once in each of its
//!   groups, or in none. A command that was answered is applied; one that was reported as not applied is in no order.
//! - V2: the calls of all clients have one serial order. Groups are linearizable, sessions are respected, `Leader`
//!   reads miss nothing, and `After` and `Local` reads show a prefix.
//! - V3: the ordered time rises along the order. A command's ordered time lies between its call and its answer, within
//!   the bound of clocks. Timers fire by the ordered time.
//! - V4: no notification is lost unless it is reported as missed.
//!
//! The members' records contain the place of every command that was applied, even if its client does not know the
//! outcome. The judge therefore tries that order first for V2, and lets `stentor_checker` search only if it fails.

mod agreement;
mod calls;
mod evidence;
mod notes;
#[cfg(test)]
mod tests;
mod time;

use std::collections::BTreeMap;

use serde::Serialize;
use stentor_support::{Failure, Verdicts};

use super::Callers;
use super::machine::Registers;
use super::records::{CallKind, ClientRecord, How, MemberRecord, Told};
use crate::args::ChaosPlant;
use crate::commands::chaos::scene::Scene;
use agreement::Agreed;
pub(super) use evidence::Evidence;

/// Counts of what was judged.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(in crate::commands::chaos) struct ServiceCounts {
    /// Number of applied commands, each counted once for all its groups.
    commands: u64,
    /// Number of applied commands that went to several groups.
    wide: u64,
    /// Number of answered reads, by consistency level.
    reads: BTreeMap<&'static str, u64>,
    /// Number of calls that were not applied.
    not_applied: u64,
    /// Number of calls with an unknown outcome.
    unknown: u64,
    /// Number of calls with an unknown outcome that were applied.
    unknown_applied: u64,
    /// Number of calls whose outcome a later process of the client has learned.
    resolved_later: u64,
    timers: u64,
    /// Largest delay of a timer at the member at which it fires first, in milliseconds.
    latest_timer_ms: u64,
    notified: u64,
    missed: u64,
    /// Largest time by which the ordered time of a call precedes the beginning of the call, in microseconds.
    time_behind_us: u64,
    /// Largest time by which the ordered time of a call exceeds the end of the call, in microseconds.
    time_ahead_us: u64,
}

impl ServiceCounts {
    /// Returns the counts as text.
    pub(in crate::commands::chaos) fn text(&self) -> String {
        let reads: Vec<_> = self.reads.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        format!(
            "commands    {} applied, {} of them in several groups; {} not applied, {} unknown of which {} are applied, {} resolved by a later process\n\
             reads       {}\n\
             timers      {}, up to {} ms late; times up to {} µs behind and {} µs ahead\n\
             notified    {}, {} reported as missed\n",
            self.commands,
            self.wide,
            self.not_applied,
            self.unknown,
            self.unknown_applied,
            self.resolved_later,
            reads.join(", "),
            self.timers,
            self.latest_timer_ms,
            self.time_behind_us,
            self.time_ahead_us,
            self.notified,
            self.missed
        )
    }
}

/// The verdicts on a run, with the counter-example and the counts.
pub(in crate::commands::chaos) struct Judged {
    pub(in crate::commands::chaos) verdicts: Verdicts,
    pub(in crate::commands::chaos) example: Option<String>,
    pub(in crate::commands::chaos) counts: ServiceCounts,
}

/// Judges the records of a run. `complete` is `true` if the cluster has come to rest.
///
/// # Errors
/// Returns an error if the records cannot be read.
pub(in crate::commands::chaos) fn judge(
    scene: &Scene,
    callers: &Callers<'_>,
    complete: bool,
    plant: Option<ChaosPlant>,
) -> Result<Judged, Failure> {
    let mut evidence = Evidence::read(scene, &callers.lives(), complete)?;
    if let Some(plant) = plant {
        evidence.spoil(plant);
    }
    Ok(decided(&evidence))
}

fn decided(evidence: &Evidence) -> Judged {
    let mut counts = ServiceCounts::default();
    let agreed = agreement::agreed(evidence);
    let mut verdicts = Verdicts::new();
    let mut example = None;
    let mut note = |property: &'static str, found: Result<bool, String>| {
        let verdict = match found {
            Ok(true) => "ok",
            Ok(false) => "not_checked",
            Err(why) => {
                example.get_or_insert(format!("{property}: {why}"));
                "violated"
            }
        };
        verdicts.insert(property, verdict);
    };
    match agreed {
        Ok(agreed) => {
            note("V1", agreement::once(evidence, &agreed, &mut counts).map(|()| true));
            note("V2", calls::serial(evidence, &agreed, &mut counts));
            note("V3", time::real(evidence, &agreed, &mut counts).map(|()| true));
            note("V4", notes::told(evidence, &agreed, &mut counts).map(|()| evidence.complete));
        }
        Err(why) => {
            note("V1", Err(why));
            // Without a common order of the members, only V2 can be judged, by the clients' replies.
            note("V2", calls::serial(evidence, &Agreed::default(), &mut counts));
            note("V3", Ok(false));
            note("V4", Ok(false));
        }
    }
    Judged { verdicts, example, counts }
}
