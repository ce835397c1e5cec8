//! Deferred work requests. On a reliable connection, a request waits if the peer has posted no receive for it or the
//! peer's queue is full. All later requests on the queue pair then wait, too. This is the only place of the data plane
//! that allocates, which does not matter because waiting is slow anyway.

use std::time::Instant;

use stentor_fabric::{QpState, Status, Verb};

use crate::data::Data;
use crate::execute::Outcome;
use crate::qp::{Deferred, SendEntry};

impl Data {
    #[cold]
    pub(crate) fn defer(&mut self, index: usize, entry: SendEntry, verb: Verb<'_>) {
        // Copy inline data, because the caller may reuse its buffer.
        let inline = verb.inline().into();
        self.qps[index].deferred.push_back(Deferred { entry, verb: verb.with_inline(&[]), inline });
        self.count_deferring();
    }

    /// Retries the deferred work requests. A queue pair breaks if its first one has waited too long.
    #[cold]
    pub(crate) fn retry_deferred(&mut self) {
        for index in 0..self.qps.len() {
            self.retry(index);
        }
        self.count_deferring();
    }

    fn retry(&mut self, index: usize) {
        while let Some(work) = self.qps[index].deferred.pop_front() {
            let outcome = self.execute(index, work.entry, work.verb.with_inline(&work.inline));
            let qp = &mut self.qps[index];
            if outcome == Outcome::Done {
                qp.waits_since = None;
                continue;
            }
            qp.deferred.push_front(work);
            let since = *qp.waits_since.get_or_insert_with(Instant::now);
            if since.elapsed() > self.rnr_timeout {
                self.fail(index, Status::RnrRetryExceeded);
            }
            return;
        }
    }

    fn count_deferring(&mut self) {
        let waits = |qp: &&crate::qp::Qp| qp.state == QpState::Ready && !qp.deferred.is_empty();
        self.deferring = self.qps.iter().filter(waits).count() as u32;
    }
}
