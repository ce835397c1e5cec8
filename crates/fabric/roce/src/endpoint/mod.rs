//! The InfiniBand transport of RoCEv2 as a state machine.
//!
//! An [`Endpoint`] has queue pairs, registered memory and one completion queue. What goes in: packets
//! ([`Endpoint::receive`]), work ([`Endpoint::post_send`], [`Endpoint::post_receive`]) and the time, in nanoseconds since
//! whenever. What comes out: packets ([`Endpoint::transmit`]), completions ([`Endpoint::poll`]), queue pairs that broke
//! ([`Endpoint::next_broken`]) and the next deadline ([`Endpoint::next_deadline`]).
//!
//! # How it does what the specification leaves open
//! - **Acknowledgements** are asked for by signalled requests, by every fourth part of the window and by the packet that
//!   fills it. They are coalesced: those that were not sent yet become one.
//! - **Loss**: go-back-N. Besides the transport timeout there is a probe: when nothing was heard for four round trips the
//!   last packet is sent again with AckReq, which finds out about a lost tail long before the timeout. Later probes send the
//!   oldest packet, too: a responder reports a gap once, and that report may be lost. Probes cost no retry.
//! - **Congestion**: a window of packets per queue pair. A notification (CNP) halves it, to one packet at least. So does a
//!   loss while packets wait in a queue, which the round trip shows; other losses reduce it less (`window.rs`). Each window
//!   that is acknowledged adds one packet. A packet marked "congestion experienced" is answered with a CNP, one per queue
//!   pair and 50 µs.
//! - **READs** longer than 32 packets are asked for in pieces of 32, each a READ of its own to the responder.
//! - **Credits** are not counted: 31, "unlimited", is sent, and what the peer says is not looked at.
//! - **Errors of the responder's own** (the memory of the receive that a SEND should fill is not registered any more) are
//!   answered with "remote operational error" and break the queue pair, class A of the specification's table of responder
//!   errors; on an unreliable connection nobody is told. A completion queue cannot overflow, and memory is never found
//!   damaged, so there is no other such error. More READs and atomics at once than `max_dest_rd_atomic` are refused as
//!   an invalid request.
//! - **SEND with invalidate** is refused as an invalid request: no key of this endpoint may be invalidated by a peer.

mod answers;
mod attributes;
mod completions;
mod counters;
mod input;
mod memory;
mod outbox;
mod places;
mod post;
mod qp;
mod requester;
mod responder;
mod retransmission;
mod search;
mod states;
mod transmit;
mod window;
mod work;

use std::collections::VecDeque;

use stentor_fabric::{Completion, QpId, Status};

pub use attributes::{Path, Sending, State, TransitionError, Unanswered};
pub use counters::Counters;
pub use input::{Arrival, Check};
pub use memory::{Memory, ProtectionDomain};
pub use outbox::Outbox;
pub use work::{Data, Remote, Request, Work};

use completions::{CompletionQueue, Frees};
use places::Places;
use qp::Qp;
use responder::Broken;
use transmit::Making;

/// One side of any number of connections.
#[derive(Clone, Debug, Default)]
pub struct Endpoint {
    qps: Vec<Qp>,
    /// Queue pair numbers and indices, sorted.
    numbers: Vec<(u32, u32)>,
    memory: Memory,
    completions: CompletionQueue,
    counters: Counters,
    /// Queue pairs that may have something to send.
    listed: VecDeque<u32>,
    broken: VecDeque<QpId>,
    /// Congestion notifications that are due.
    notices: VecDeque<u32>,
    /// Whether anything changed memory or completed since this was last cleared.
    landed: bool,
    places: Places,
}

impl Endpoint {
    /// Nothing is registered and nobody connected.
    #[must_use]
    pub fn new() -> Endpoint {
        Endpoint::default()
    }

    /// Registered memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Registered memory, to register and grant.
    #[must_use]
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// What happened so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The next completion. Its place in the send or receive queue is free from now on.
    #[inline]
    pub fn poll(&mut self) -> Option<Completion> {
        let finished = self.completions.take()?;
        if let Some(qp) = self.qps.get_mut(finished.completion.qp.index()) {
            match finished.frees {
                Frees::Send(number) => qp.requester.freed = qp.requester.freed.max(number),
                Frees::Receive => qp.responder.held = qp.responder.held.saturating_sub(1),
            }
        }
        Some(finished.completion)
    }

    /// Whether completions wait to be polled.
    #[must_use]
    pub fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Whether a peer changed memory or something completed since this was last asked.
    pub fn take_landed(&mut self) -> bool {
        std::mem::take(&mut self.landed)
    }

    /// Whether a solicited receive completed, or anything with an error, since this was last asked.
    pub fn take_solicited(&mut self) -> bool {
        std::mem::take(&mut self.completions.solicited)
    }

    /// The next queue pair that went to the error state by itself.
    pub fn next_broken(&mut self) -> Option<QpId> {
        self.broken.pop_front()
    }

    fn list(&mut self, index: usize) {
        let qp = &mut self.qps[index];
        if !std::mem::replace(&mut qp.listed, true) {
            self.listed.push_back(index as u32);
        }
    }

    /// Makes packets until there are none or `out` is full. Returns whether there may be more.
    pub fn transmit(&mut self, now: u64, out: &mut Outbox) -> bool {
        self.notify(out);
        let mut rounds = self.listed.len();
        while rounds > 0 && out.room() > 0 {
            let Some(index) = self.listed.pop_front() else { break };
            rounds -= 1;
            let more = self.transmit_one(now, index as usize, out);
            if more {
                self.listed.push_back(index);
            } else {
                self.qps[index as usize].listed = false;
            }
        }
        self.has_more()
    }

    /// Whether there may be packets to make now.
    #[inline]
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.listed.is_empty() || !self.notices.is_empty()
    }

    /// Packets of one queue pair; whether it has more.
    fn transmit_one(&mut self, now: u64, index: usize, out: &mut Outbox) -> bool {
        let Endpoint { qps, memory, completions, counters, .. } = self;
        let qp = &mut qps[index];
        let Some(path) = qp.path else { return false };
        let reliable = qp.is_reliable();
        let before = completions.is_empty();
        let mut making = Making { now, reliable, path: &path, memory, out, counters, completions };
        let made = loop {
            if making.out.room() == 0 {
                break Ok(true);
            }
            match qp.responder.answer(qp.domain, &mut making) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(Broken) => break Err(Status::Flushed),
            }
            if qp.state != State::ReadyToSend {
                break Ok(false);
            }
            match qp.requester.transmit(&mut making) {
                Ok(true) => {}
                end => break end,
            }
        };
        self.landed |= before && !self.completions.is_empty();
        made.unwrap_or_else(|status| {
            self.fail(index, status);
            false
        })
    }

    /// Time passes: timeouts and probes. Call it when [`next_deadline`](Endpoint::next_deadline) has come.
    pub fn tick(&mut self, now: u64) {
        for index in 0..self.qps.len() {
            let qp = &mut self.qps[index];
            if qp.requester.deadline().is_none_or(|deadline| deadline > now) {
                continue;
            }
            match qp.requester.tick(now, &mut self.counters) {
                Ok(()) => self.list(index),
                Err(status) => self.fail(index, status),
            }
        }
    }

    /// When [`tick`](Endpoint::tick) has something to do.
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.qps.iter().filter_map(|qp| qp.requester.deadline()).min()
    }

    /// A queue pair breaks: the oldest request gets the status, everything else is flushed.
    fn fail(&mut self, index: usize, status: Status) {
        let qp = &mut self.qps[index];
        if qp.state == State::Error {
            return;
        }
        qp.state = State::Error;
        qp.requester.fail(status, &mut self.completions);
        qp.responder.fail(&mut self.completions);
        self.broken.push_back(qp.id);
        self.landed = true;
    }
}
