//! M8 bounded memory: regions and queues never exceed the sizes printed at start.
//!
//! In `memory` events, `bytes` in use must be at most `limit` (or the cluster's `memory_limit`), and the limit of a
//! part must not change during a life of the process. M2 and M3 check that back-pressure loses no message.

use std::collections::HashMap;

use crate::cluster::Cluster;
use crate::event::{Event, EventKind};
use crate::ids::{Label, Process};
use crate::log::{Kept, Origin};
use crate::report::Verdict;
use crate::view::View;

/// Checks `memory` events as they are recorded.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryBounds {
    limits: HashMap<(Process, u64, Label), (u64, Kept)>,
    without_limit: bool,
    fault: Option<Fault>,
}

#[derive(Clone, Debug)]
enum Fault {
    Exceeded(Kept),
    LimitChanged(Kept, Kept),
}

impl MemoryBounds {
    pub(crate) fn observe(&mut self, event: &Event, origin: Origin, cluster: &Cluster) {
        let EventKind::Memory { bytes, limit, what } = event.kind else { return };
        let kept = Kept { event: *event, origin };
        let Some(limit) = limit.or(cluster.memory_limit()) else {
            self.without_limit = true;
            return;
        };
        let (first_limit, first) = self.limits.entry((event.process, event.incarnation, what)).or_insert((limit, kept));
        let fault = if bytes > limit {
            Some(Fault::Exceeded(kept))
        } else if limit != *first_limit {
            Some(Fault::LimitChanged(*first, kept))
        } else {
            None
        };
        self.fault = self.fault.take().or(fault);
    }

    pub(crate) fn check(&self, view: &View<'_>) -> Verdict {
        match &self.fault {
            Some(Fault::Exceeded(kept)) => {
                let summary = format!("{} uses more memory than its limit", view.name(kept.event.process));
                view.violated(summary, [kept])
            }
            Some(Fault::LimitChanged(first, kept)) => {
                let summary = format!("the memory limit of {} changed while it ran", view.name(kept.event.process));
                view.violated(summary, [first, kept])
            }
            None if self.without_limit => Verdict::NotChecked("memory was recorded without a limit"),
            None if self.limits.is_empty() => Verdict::NotChecked("no memory events were recorded"),
            None => Verdict::Ok,
        }
    }
}
