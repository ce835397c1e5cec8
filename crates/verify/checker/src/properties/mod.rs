//! The properties, each in a file of its own.

use std::collections::BTreeMap;

use crate::broadcasts::Broadcasts;
use crate::channels::Channels;
use crate::report::Verdict;
use crate::view::View;

mod b1_agreement;
mod b2_validity;
mod b3_integrity;
mod b4_fifo;
mod b5_partition_safety;
mod b6_memory;
mod b7_evidence;
mod c1_delivery;
mod c2_callback_order;
mod c3_credits;
mod c4_closing;
mod c5_errors;
mod completeness;
mod m10_fencing;
mod m11_rejoin;
mod m12_session_order;
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
const NO_BROADCASTS: &str = "nothing was broadcast";
const NO_CHANNELS: &str = "nothing was sent on a channel";

/// Returns the reason why the properties of multicasts cannot be judged, or `None` if they can. Deliveries without any
/// multicast do not prove that nothing was multicast: the clients' files are missing in that case.
fn no_messages(view: &View<'_>) -> Option<&'static str> {
    match (view.log.sent_order.is_empty(), view.log.deliveries.is_empty()) {
        (false, _) => None,
        (true, true) => Some("nothing was multicast"),
        (true, false) => Some("no file says what clients multicast: name the histories of all clients"),
    }
}

/// Returns the reason why no message of a correct client must be delivered.
fn no_correct_client(view: &View<'_>) -> &'static str {
    no_messages(view).unwrap_or("no message of a correct client has a majority of each group up")
}

/// Checks the properties that apply to the events of the history.
pub(crate) fn check(
    view: &View<'_>,
    broadcasts: &Broadcasts,
    channels: &Channels,
    genuineness: &m7_genuineness::Genuineness,
    memory: &m8_memory::MemoryBounds,
) -> BTreeMap<&'static str, Verdict> {
    let mut verdicts = BTreeMap::new();
    let multicasts = !view.log.sent_order.is_empty() || !view.log.deliveries.is_empty();
    if multicasts || broadcasts.is_empty() && channels.is_empty() {
        verdicts.extend([
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
        ]);
        verdicts.extend(m12_session_order::check(view).map(|verdict| ("M12", verdict)));
    }
    if !broadcasts.is_empty() {
        verdicts.extend([
            ("B1", b1_agreement::check(view, broadcasts)),
            ("B2", b2_validity::check(view, broadcasts)),
            ("B3", b3_integrity::check(view, broadcasts)),
            ("B4", b4_fifo::check(view, broadcasts)),
            ("B5", b5_partition_safety::check(view, broadcasts)),
            ("B6", b6_memory::check(view, broadcasts, memory)),
            ("B7", b7_evidence::check(view, broadcasts)),
        ]);
    }
    if !channels.is_empty() {
        verdicts.extend([
            ("C1", c1_delivery::check(view, channels)),
            ("C2", c2_callback_order::check(view, channels)),
            ("C3", c3_credits::check(view, channels)),
            ("C4", c4_closing::check(view, channels)),
            ("C5", c5_errors::check(view, channels)),
        ]);
    }
    verdicts
}
