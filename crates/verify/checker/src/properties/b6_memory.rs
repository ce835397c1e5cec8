//! B6 bounded memory: rings are reused, and no process uses more memory than it announced.
//!
//! The verdict is "ok" only if some stream of the history is longer than its window. Shorter streams do not reuse a
//! ring.

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
