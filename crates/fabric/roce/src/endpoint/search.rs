//! An endpoint as a state of a search: it is copied, compared, hashed, and forgets how late it is.

use std::hash::{Hash, Hasher};

use stentor_fabric::QpId;
use stentor_wire::Psn;

use super::Endpoint;

/// All that matters for what comes: what was counted does not.
impl Hash for Endpoint {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.qps, &self.numbers, &self.memory, &self.completions).hash(state);
        (&self.listed, &self.broken, &self.notices, self.landed, &self.places).hash(state);
    }
}

impl PartialEq for Endpoint {
    fn eq(&self, other: &Endpoint) -> bool {
        let key = |end: &Endpoint| (end.landed, end.qps.len());
        key(self) == key(other)
            && (&self.qps, &self.numbers, &self.memory) == (&other.qps, &other.numbers, &other.memory)
            && (&self.completions, &self.listed, &self.broken) == (&other.completions, &other.listed, &other.broken)
            && (&self.notices, &self.places) == (&other.notices, &other.places)
    }
}

impl Eq for Endpoint {}

impl Endpoint {
    /// Time is counted from so many nanoseconds later on: every deadline comes that much earlier. What happens at the same
    /// distances in time is the same then, whenever it happens.
    pub fn rewind(&mut self, by: u64) {
        for qp in &mut self.qps {
            qp.requester.timers.rewind(by);
            qp.notified_at = qp.notified_at.map(|at| at.saturating_sub(by));
        }
    }

    /// The PSN that a queue pair's peer is to send next: everything before it was carried out.
    #[must_use]
    pub fn expected(&self, id: QpId) -> Option<Psn> {
        Some(self.qps.get(id.index())?.responder.expected)
    }

    /// The PSN that the next request posted to a queue pair begins with.
    #[must_use]
    pub fn next_psn(&self, id: QpId) -> Option<Psn> {
        Some(self.qps.get(id.index())?.requester.next_psn)
    }
}
