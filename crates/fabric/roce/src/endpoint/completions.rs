//! The completion queue of an endpoint.

use std::collections::VecDeque;

use stentor_fabric::{Completion, Opcode, QpId, Status};

/// A completion, and the queue slot that becomes free when it is polled.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Finished {
    pub(crate) completion: Completion,
    pub(crate) frees: Frees,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Frees {
    /// The slots of all work requests up to this number.
    Send(u64),
    Receive,
}

/// Completions of all queue pairs of an endpoint, in the order of their occurrence.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct CompletionQueue {
    entries: VecDeque<Finished>,
    /// `true` if a solicited receive or an error has occurred since this was last cleared.
    pub(crate) solicited: bool,
}

impl CompletionQueue {
    pub(crate) fn send(&mut self, qp: QpId, id: u64, opcode: Opcode, status: Status, number: u64) {
        self.solicited |= status != Status::Success;
        let completion = Completion { qp, id, opcode, status, bytes: 0, imm: None, tag: 0 };
        self.entries.push_back(Finished { completion, frees: Frees::Send(number) });
    }

    pub(crate) fn receive(&mut self, completion: Completion, solicited: bool) {
        self.solicited |= solicited || completion.status != Status::Success;
        self.entries.push_back(Finished { completion, frees: Frees::Receive });
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<Finished> {
        self.entries.pop_front()
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl CompletionQueue {
    /// Handles the reset of a queue pair. Completions of its earlier life are still reported, but polling them frees no
    /// slot any more.
    pub(crate) fn forget_places(&mut self, qp: QpId) {
        for entry in self.entries.iter_mut().filter(|entry| entry.completion.qp == qp) {
            entry.frees = Frees::Send(0);
        }
    }
}
