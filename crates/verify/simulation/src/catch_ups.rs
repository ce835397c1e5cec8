//! Counts of the rare ways in which members caught up with their leaders, for reports.

use stentor_multicast::CatchUps;

/// Names of the counts that must not be 0 after a simulation run of enough seeds.
pub(crate) const CLAIMS: [&str; 1] = ["states_overtaken"];

/// Adds the counts of another member.
pub(crate) fn add(to: &mut CatchUps, more: CatchUps) {
    to.overtaken += more.overtaken;
    to.starved += more.starved;
}

/// Returns names and values in a fixed order.
pub(crate) fn named(catch_ups: CatchUps) -> Vec<(&'static str, u64)> {
    vec![("states_overtaken", catch_ups.overtaken), ("streams_starved", catch_ups.starved)]
}
