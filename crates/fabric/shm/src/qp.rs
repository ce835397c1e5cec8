//! Queue pairs.

use std::collections::VecDeque;
use std::time::Instant;

use stentor_fabric::{Opcode, PostError, ProcessId, QpConfig, QpId, QpState, Service, Span, Verb};

use crate::mapping::Mapping;
use crate::queue::{Consumer, Producer};

/// Slot number that means: no region has unchecked stores.
pub(crate) const NONE: u32 = u32::MAX;

/// A posted work request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SendEntry {
    pub(crate) id: u64,
    /// Sequence number on this queue pair, from 1.
    pub(crate) number: u64,
    pub(crate) opcode: Opcode,
    pub(crate) signalled: bool,
}

/// A work request that waits for a receive of the peer or for room in the peer's queue, or for an earlier request that
/// waits.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) entry: SendEntry,
    /// The request; its inline data is in `inline`.
    pub(crate) verb: Verb<'static>,
    pub(crate) inline: Box<[u8]>,
}

/// A posted receive.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Receive {
    pub(crate) id: u64,
    pub(crate) span: Span,
}

/// A queue pair.
#[derive(Debug)]
pub(crate) struct Qp {
    pub(crate) peer: ProcessId,
    pub(crate) service: Service,
    pub(crate) config: QpConfig,
    pub(crate) state: QpState,
    /// Number of resets. Completions of requests from before a reset free no slots after it.
    pub(crate) epoch: u32,
    /// Number of work requests posted since the last reset.
    pub(crate) posted: u64,
    /// Number of the last work request whose slot is free again.
    pub(crate) freed: u64,
    /// Slot of the peer's region that the requests in `unchecked` touched. There is only one at a time: it is checked
    /// before another region is touched, so that nothing takes effect after a request that failed (rule 1 of the fabric
    /// contract).
    pub(crate) open: u32,
    pub(crate) unchecked: Vec<SendEntry>,
    /// `true` if one of the unchecked requests is signalled.
    pub(crate) reports: bool,
    pub(crate) deferred: VecDeque<Deferred>,
    /// Time at which the first deferred request began to wait.
    pub(crate) waits_since: Option<Instant>,
    /// `true` if the queue pair is in the list for the next flush.
    pub(crate) dirty: bool,
    /// `true` if the next flush must announce the posts to the peer.
    pub(crate) is_loud: bool,
    pub(crate) outbound: Option<(Producer, Mapping)>,
    pub(crate) inbound: Option<(Consumer, Mapping)>,
    pub(crate) receives: VecDeque<Receive>,
    /// Number of receives posted and not yet polled.
    pub(crate) receives_held: u32,
    /// `true` if this end was offered to the peer over the current connection.
    pub(crate) offered: bool,
}

impl Qp {
    pub(crate) fn new(peer: ProcessId, service: Service, config: QpConfig) -> Self {
        Qp {
            peer,
            service,
            config,
            state: QpState::Connecting,
            epoch: 0,
            posted: 0,
            freed: 0,
            open: NONE,
            unchecked: Vec::with_capacity(config.send_depth as usize),
            reports: false,
            deferred: VecDeque::new(),
            waits_since: None,
            dirty: false,
            is_loud: false,
            outbound: None,
            inbound: None,
            receives: VecDeque::with_capacity(config.recv_depth as usize),
            receives_held: 0,
            offered: false,
        }
    }

    /// Checks that another work request may be posted.
    #[inline]
    pub(crate) fn admit(&self, qp: QpId) -> Result<(), PostError> {
        if self.state != QpState::Ready {
            return Err(PostError::NotReady { qp, state: self.state });
        }
        if self.posted - self.freed >= u64::from(self.config.send_depth) {
            return Err(PostError::SendQueueFull { qp, depth: self.config.send_depth });
        }
        Ok(())
    }

    /// Records that the stores of a work request are made. The next flush checks and completes them.
    #[inline]
    pub(crate) fn leave_unchecked(&mut self, entry: SendEntry) {
        self.reports |= entry.signalled;
        self.unchecked.push(entry);
    }

    /// Marks the queue pair for the next flush, which announces the post to the peer.
    #[inline]
    pub(crate) fn mark(&mut self, index: usize, dirty: &mut Vec<(u32, ProcessId)>) {
        self.is_loud = true;
        self.mark_quietly(index, dirty);
    }

    /// Marks the queue pair for the next flush, without an announcement to the peer.
    #[inline]
    pub(crate) fn mark_quietly(&mut self, index: usize, dirty: &mut Vec<(u32, ProcessId)>) {
        if !self.dirty {
            self.dirty = true;
            dirty.push((index as u32, self.peer));
        }
    }

    /// Occupies a slot of the send queue, and returns the number of the request.
    #[inline]
    pub(crate) fn number(&mut self) -> u64 {
        self.posted += 1;
        self.posted
    }

    /// Returns the queue pair to the connecting state, with empty queues.
    pub(crate) fn reset(&mut self) {
        debug_assert!(self.unchecked.is_empty() && self.deferred.is_empty() && self.receives.is_empty());
        self.state = QpState::Connecting;
        self.epoch += 1;
        (self.posted, self.freed, self.receives_held) = (0, 0, 0);
        self.offered = false;
    }
}
