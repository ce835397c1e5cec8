//! Work requests for which the peer has no receive posted: they, and what is posted behind them, wait. The only place
//! of the data plane that allocates; waiting is slow anyway.

use std::time::Instant;

use stentor_fabric::{QpState, Source, Status, Verb};

use crate::data::Data;
use crate::execute::Outcome;
use crate::qp::{Deferred, SendEntry};

impl Data {
    #[cold]
    pub(crate) fn defer(&mut self, index: usize, entry: SendEntry, verb: Verb<'_>) {
        let (verb, inline) = own(verb);
        self.qps[index].deferred.push_back(Deferred { entry, verb, inline });
        self.count_deferring();
    }

    /// Tries the waiting work requests again; gives up on those that waited too long.
    #[cold]
    pub(crate) fn retry_deferred(&mut self) {
        for index in 0..self.qps.len() {
            self.retry(index);
        }
        self.count_deferring();
    }

    fn retry(&mut self, index: usize) {
        while let Some(work) = self.qps[index].deferred.pop_front() {
            let outcome = self.execute(index, work.entry, restore(&work));
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

/// Takes over inline data, which the caller may reuse.
fn own(verb: Verb<'_>) -> (Verb<'static>, Box<[u8]>) {
    let strip = |source: Source<'_>| match source {
        Source::Inline(data) => (Source::Inline(&[]), data.into()),
        Source::Region(span) => (Source::Region(span), Box::default()),
    };
    match verb {
        Verb::Write { source, target } => {
            let (source, data) = strip(source);
            (Verb::Write { source, target }, data)
        }
        Verb::WriteImm { source, target, imm } => {
            let (source, data) = strip(source);
            (Verb::WriteImm { source, target, imm }, data)
        }
        Verb::Send { source, imm } => {
            let (source, data) = strip(source);
            (Verb::Send { source, imm }, data)
        }
        Verb::TaggedSend { source, tag } => {
            let (source, data) = strip(source);
            (Verb::TaggedSend { source, tag }, data)
        }
        Verb::Read { local, remote } => (Verb::Read { local, remote }, Box::default()),
        Verb::CompareSwap { local, remote, expected, new } => {
            (Verb::CompareSwap { local, remote, expected, new }, Box::default())
        }
        Verb::FetchAdd { local, remote, add } => (Verb::FetchAdd { local, remote, add }, Box::default()),
    }
}

fn restore(work: &Deferred) -> Verb<'_> {
    let mut verb: Verb<'_> = work.verb;
    match &mut verb {
        Verb::Write { source, .. }
        | Verb::WriteImm { source, .. }
        | Verb::Send { source, .. }
        | Verb::TaggedSend { source, .. } => {
            if let Source::Inline(data) = source {
                *data = &work.inline;
            }
        }
        Verb::Read { .. } | Verb::CompareSwap { .. } | Verb::FetchAdd { .. } => {}
    }
    verb
}
