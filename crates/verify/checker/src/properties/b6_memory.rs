//! B6 bounded memory: rings are used again and again, and no process uses more than it announced.
//!
//! Says "ok" only for a history in which some stream is longer than its window: before that, nothing was used again.

use super::m8_memory::MemoryBounds;
use crate::broadcasts::Broadcasts;
use crate::report::Verdict;
use crate::view::View;

pub(super) fn check(view: &View<'_>, broadcasts: &Broadcasts, memory: &MemoryBounds) -> Verdict {
    let verdict = memory.check(view);
    if verdict != Verdict::Ok {
        return verdict;
    }
    let Some(window) = view.cluster.window() else {
        return Verdict::NotChecked("the cluster line does not say how long the window is");
    };
    if broadcasts.deliveries().any(|(broadcast, _)| broadcast.index >= window) {
        Verdict::Ok
    } else {
        Verdict::NotChecked("no stream is longer than its window")
    }
}
