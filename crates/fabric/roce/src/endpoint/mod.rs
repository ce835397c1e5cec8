//! The InfiniBand transport of RoCEv2 as a state machine.
//!
//! An [`Endpoint`] has queue pairs, registered memory and one completion queue. Its inputs are packets
//! ([`Endpoint::receive`]), work ([`Endpoint::post_send`], [`Endpoint::post_receive`]) and the time, in nanoseconds
//! since any origin. Its outputs are packets ([`Endpoint::transmit`]), completions ([`Endpoint::poll`]), broken queue
//! pairs ([`Endpoint::next_broken`]) and the next deadline ([`Endpoint::next_deadline`]).
//!
//! # Choices that the specification leaves open
//! - **Acknowledgements** are requested by signalled requests, after every quarter of the window, and by the packet
//!   that fills the window. Consecutive acknowledgements that were not sent yet are coalesced into one.
//! - **Loss**: go-back-N. Besides the transport timeout there are probes. If no response arrives for four round trips
//!   (at least 0.5 ms), the last packet is sent again with AckReq, which detects lost packets at the end long before
//!   the timeout. Later probes also send the oldest packet, because a responder reports a gap only once and that report
//!   may be lost. Probes do not count as retries.
//! - **Congestion**: each queue pair has a window of packets. A notification (CNP) halves the window, but leaves at
//!   least one packet. A loss while packets wait in a queue, which the round-trip time reveals, also halves it. Other
//!   losses reduce it by at most half (`window.rs`). Each acknowledged window adds one packet. A packet marked
//!   "congestion experienced" is answered with a CNP, at most one per queue pair and 50 µs.
//! - **READs** longer than 32 packets are requested in pieces of 32 packets. Each piece is a separate READ for the
//!   responder. A READ or atomic is refused with "invalid request" if the responses to `max_dest_rd_atomic` others are
//!   still to be sent.
//! - **Credits** are not counted: the endpoint sends 31, "unlimited", and ignores the peer's credits.
//! - **Local errors of the responder**: there is one such error, because completion queues cannot overflow and memory
//!   faults are not detected. It occurs if the memory of the receive for a SEND is no longer registered. The responder
//!   answers with "remote operational error" and breaks the queue pair (class A of the specification's table of
//!   responder errors). On an unreliable connection it sends no answer.
//! - **SEND with invalidate** is refused as an invalid request: no peer may invalidate a key of this endpoint.

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

/// An endpoint: one side of any number of connections.
#[derive(Clone, Debug, Default)]
pub struct Endpoint {
    qps: Vec<Qp>,
    /// Pairs of queue pair number and index, sorted.
    numbers: Vec<(u32, u32)>,
    memory: Memory,
    completions: CompletionQueue,
    counters: Counters,
    /// Queue pairs that may have packets to send.
    listed: VecDeque<u32>,
    broken: VecDeque<QpId>,
    /// Queue pairs for which a congestion notification is due.
    notices: VecDeque<u32>,
    /// `true` if memory may have changed or a request may have completed since the flag was last cleared.
    landed: bool,
    places: Places,
}

impl Endpoint {
    /// Creates an endpoint without regions and queue pairs.
    #[must_use]
    pub fn new() -> Endpoint {
        Endpoint::default()
    }

    /// Returns the registered memory.
    #[must_use]
    pub fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Returns the registered memory, to register regions and grant access.
    #[must_use]
    pub fn memory_mut(&mut self) -> &mut Memory {
        &mut self.memory
    }

    /// Returns the counters.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the next completion, and frees its slot in the receive queue, or in the send queue its slot and those of
    /// all earlier requests.
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

    /// Returns whether completions are waiting to be polled.
    #[must_use]
    pub fn has_completions(&self) -> bool {
        !self.completions.is_empty()
    }

    /// Returns whether a peer may have changed memory, or a request may have completed, since the last call.
    pub fn take_landed(&mut self) -> bool {
        std::mem::take(&mut self.landed)
    }

    /// Returns whether, since the last call, a solicited receive completed, or any request or receive completed with an
    /// error.
    pub fn take_solicited(&mut self) -> bool {
        std::mem::take(&mut self.completions.solicited)
    }

    /// Returns the next queue pair that entered the error state because of an error, and not by
    /// [`break_qp`](Endpoint::break_qp).
    pub fn next_broken(&mut self) -> Option<QpId> {
        self.broken.pop_front()
    }

    fn list(&mut self, index: usize) {
        let qp = &mut self.qps[index];
        if !std::mem::replace(&mut qp.listed, true) {
            self.listed.push_back(index as u32);
        }
    }

    /// Emits packets into `out` until none is left or `out` is full. Returns whether there may be more packets.
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

    /// Returns whether there may be packets to emit now.
    #[inline]
    #[must_use]
    pub fn has_more(&self) -> bool {
        !self.listed.is_empty() || !self.notices.is_empty()
    }

    /// Emits packets of one queue pair. Returns whether it may have more.
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

    /// Processes expired timers: timeouts, probes, and waits after "receiver not ready". The caller must call this at
    /// [`next_deadline`](Endpoint::next_deadline).
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

    /// Returns the time of the next [`tick`](Endpoint::tick).
    #[must_use]
    pub fn next_deadline(&self) -> Option<u64> {
        self.qps.iter().filter_map(|qp| qp.requester.deadline()).min()
    }

    /// Breaks a queue pair: the oldest request completes with `status`, and all others are flushed.
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
