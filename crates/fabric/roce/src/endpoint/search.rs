//! Makes an endpoint usable as a state of an exhaustive search: it can be copied, compared and hashed, independently of
//! the absolute time.

use std::hash::{Hash, Hasher};

use stentor_fabric::QpId;
use stentor_wire::Psn;

use super::Endpoint;

/// Hashes all state that affects future behaviour. Counters do not affect it.
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
    /// Shifts the origin of time by `by` nanoseconds, so that every deadline is earlier by this amount. States that
    /// differ only in the absolute time then become equal.
    pub fn rewind(&mut self, by: u64) {
        for qp in &mut self.qps {
            qp.requester.timers.rewind(by);
            qp.notified_at = qp.notified_at.map(|at| at.saturating_sub(by));
        }
    }

    /// Returns the next PSN that a queue pair expects from its peer. On a reliable connection, all requests before it
    /// were executed.
    #[must_use]
    pub fn expected(&self, id: QpId) -> Option<Psn> {
        Some(self.qps.get(id.index())?.responder.expected)
    }

    /// Returns the first PSN of the next request that is posted to a queue pair.
    #[must_use]
    pub fn next_psn(&self, id: QpId) -> Option<Psn> {
        Some(self.qps.get(id.index())?.requester.next_psn)
    }
}
