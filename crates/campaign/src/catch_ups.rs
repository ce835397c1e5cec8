//! How members caught up with their leaders in rare ways, as reports name it.

use stentor_multicast::CatchUps;

/// What campaigns claim of it.
pub(crate) const CLAIMS: [&str; 1] = ["states_overtaken"];

/// Adds those of another member.
pub(crate) fn add(to: &mut CatchUps, more: CatchUps) {
    to.overtaken += more.overtaken;
    to.starved += more.starved;
}

/// Names and values, in a fixed order.
pub(crate) fn named(catch_ups: CatchUps) -> Vec<(&'static str, u64)> {
    vec![("states_overtaken", catch_ups.overtaken), ("streams_starved", catch_ups.starved)]
}
