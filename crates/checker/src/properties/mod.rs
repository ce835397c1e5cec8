//! The properties, one per file.

use std::collections::BTreeMap;

use crate::report::Verdict;
use crate::view::View;

mod completeness;
mod m10_fencing;
mod m11_rejoin;
mod m1_integrity;
mod m2_agreement;
mod m3_validity;
mod m4_acyclic_order;
mod m5_prefix_order;
mod m6_fifo;
pub(crate) mod m7_genuineness;
pub(crate) mod m8_memory;
mod m9_liveness;
mod r1_real_time;
mod sequence;

const INCOMPLETE: &str = "the history is not marked complete: what is missing may still come";
const NO_DELIVERIES: &str = "nothing was delivered";
const NO_MESSAGES: &str = "nothing was multicast";

/// Checks everything.
pub(crate) fn check(
    view: &View<'_>,
    genuineness: &m7_genuineness::Genuineness,
    memory: &m8_memory::MemoryBounds,
) -> BTreeMap<&'static str, Verdict> {
    BTreeMap::from([
        ("M1", m1_integrity::check(view)),
        ("M2", m2_agreement::check(view)),
        ("M3", m3_validity::check(view)),
        ("M4", m4_acyclic_order::check(view)),
        ("M5", m5_prefix_order::check(view)),
        ("M6", m6_fifo::check(view)),
        ("M7", genuineness.check(view)),
        ("M8", memory.check(view)),
        ("M9", m9_liveness::check(view)),
        ("M10", m10_fencing::check(view)),
        ("M11", m11_rejoin::check(view)),
        ("R1", r1_real_time::check(view)),
    ])
}
