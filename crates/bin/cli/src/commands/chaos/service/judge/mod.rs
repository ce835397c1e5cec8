//! Judges a run of a service by what its processes recorded.
//!
//! | property | promise |
//! |---|---|
//! | V1 | all members of a group apply the same commands at the same places; each command once in each of its groups, or in none; what was answered is applied, what was not applied is nowhere |
//! | V2 | the calls of all clients have one serial order: groups are linearizable, sessions are respected, `Leader` reads miss nothing, `After` and `Local` reads show a prefix |
//! | V3 | the ordered time rises along the order, is that of the commands within the bound of clocks, and timers fire by it |
//! | V4 | no notification is lost that is not told as missed |
//!
//! The members' records say where each call of unknown outcome has its place. So the order that shows V2 is known, and the search of
//! `stentor_checker` is needed only where that order does not.

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

/// What was judged.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub(in crate::commands::chaos) struct ServiceCounts {
    /// Commands that were applied, each once for all its groups.
    commands: u64,
    /// Of those, to several groups.
    wide: u64,
    /// Reads that were answered, by what they may miss.
    reads: BTreeMap<&'static str, u64>,
    /// Calls that were not applied, and that nobody knows about.
    not_applied: u64,
    unknown: u64,
    /// Of the calls of unknown outcome, those that were applied.
    unknown_applied: u64,
    /// Calls whose outcome a later process of the client was told.
    resolved_later: u64,
    timers: u64,
    /// How long after its time a timer was due at the first member, at most, ms.
    latest_timer_ms: u64,
    notified: u64,
    missed: u64,
    /// How far the ordered time was before the beginning of a call, and after its end, at most, µs.
    time_behind_us: u64,
    time_ahead_us: u64,
}

impl ServiceCounts {
    /// Returns the counts for people.
    pub(in crate::commands::chaos) fn text(&self) -> String {
        let reads: Vec<_> = self.reads.iter().map(|(kind, n)| format!("{n} {kind}")).collect();
        format!(
            "commands    {} applied, {} of them in several groups; {} not applied, {} unknown of which {} are applied, {} resolved by a later process\n\
             reads       {}\n\
             timers      {}, up to {} ms late; times up to {} µs behind and {} µs ahead\n\
             notified    {}, {} told as missed\n",
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

/// The result.
pub(in crate::commands::chaos) struct Judged {
    pub(in crate::commands::chaos) verdicts: Verdicts,
    pub(in crate::commands::chaos) example: Option<String>,
    pub(in crate::commands::chaos) counts: ServiceCounts,
}

/// Judges what the processes of a run recorded. `complete`: the cluster has come to rest.
///
/// # Errors
/// If the records cannot be read.
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
            // Without one order of the members nothing else can be told, but by the clients' replies.
            note("V2", calls::serial(evidence, &Agreed::default(), &mut counts));
            note("V3", Ok(false));
            note("V4", Ok(false));
        }
    }
    Judged { verdicts, example, counts }
}
