//! Records that members send to this client.
//!
//! # States of a ring
//! *quiet* → *due* (its next record seems to be there) → *quiet* again, when that is not so any more. Rings are taken in turn,
//! one record each.
//!
//! # Invariants
//! - Nothing is read on a connection before the member's greeting said where its ring begins there.
//! - A quarter of a ring that is not credited keeps no member waiting (`inbound.rs`), so smaller credits are not sent. A
//!   credit that is due and cannot go yet is `owed`, and no round is skipped until it has gone.

use std::collections::VecDeque;

use stentor_fabric::seal::{HEADER_WORDS, Seal};
use stentor_fabric::{Fabric, ProcessId};
use zerocopy::IntoBytes;

use super::Client;
use crate::GroupId;
use crate::node::counts::Step;
use crate::node::hello::Start;
use crate::node::inbound::Inbound;
use crate::node::outbound::scratch;
use crate::node::peer_link::PeerLink;
use crate::node::poll_gate::PollGate;

/// A record that a member sent to this client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reply<'a> {
    /// The member's group.
    pub group: GroupId,
    /// The member.
    pub member: ProcessId,
    /// What it sent.
    pub bytes: &'a [u8],
}

/// A record that was taken.
#[derive(Clone, Copy, Debug)]
struct Taken {
    link: usize,
    bytes: usize,
    /// Credits that were written.
    credits: u64,
}

/// The rings of members' replies.
#[derive(Debug)]
pub(super) struct Replies {
    /// By link; empty if there are no replies.
    rings: Vec<Inbound>,
    /// Links whose rings seem to have a record, in the order in which they are taken.
    due: VecDeque<usize>,
    /// By link: whether it is in `due`.
    is_due: Vec<bool>,
    /// Whether some credit that is due has not gone.
    owed: bool,
    /// The last record that was taken.
    record: Vec<u64>,
}

impl Replies {
    pub(super) fn new(rings: Vec<Inbound>) -> Self {
        Replies {
            due: VecDeque::with_capacity(rings.len()),
            is_due: vec![false; rings.len()],
            owed: false,
            record: rings.first().map(|ring| scratch(ring.reader.geometry())).unwrap_or_default(),
            rings,
        }
    }

    /// A member says where its ring begins.
    pub(super) fn restart(&mut self, link: usize, life: u64, start: Start, seal: Seal) {
        let Some(ring) = self.rings.get_mut(link) else { return };
        ring.restart(life, start, seal);
        // Records may have come before the greeting, whose writer is not announced again.
        self.put_due(link);
    }

    fn put_due(&mut self, link: usize) {
        if !std::mem::replace(&mut self.is_due[link], true) {
            self.due.push_back(link);
        }
    }

    /// Looks which rings have something now. Returns whether any was found that had nothing before.
    #[inline]
    pub(super) fn look<F: Fabric>(&mut self, fabric: &F, links: &[PeerLink], gate: &PollGate) -> bool {
        let Replies { rings, due, is_due, .. } = self;
        let before = due.len();
        for (at, (ring, link)) in rings.iter().zip(links).enumerate() {
            if !is_due[at]
                && gate.looks_at(link.peer())
                && ring.reader.looks_ready(fabric.memory(ring.region))
                && link.is_met()
            {
                is_due[at] = true;
                due.push_back(at);
            }
        }
        due.len() > before
    }

    /// Takes the next record, of the member whose turn it is, to the beginning of `record`.
    fn take<F: Fabric>(&mut self, fabric: &mut F, links: &mut [PeerLink]) -> Option<Taken> {
        for _ in 0..self.due.len() {
            let link = self.due.pop_front()?;
            self.is_due[link] = false;
            if !links[link].is_met() {
                continue;
            }
            let ring = &mut self.rings[link];
            let memory = fabric.memory(ring.region);
            let record = ring.reader.peek(memory, &mut self.record);
            if let Some(record) = &record {
                ring.reader.advance(record);
            }
            // One that is not whole yet is looked at again, too.
            let more = ring.reader.looks_ready(memory);
            let credits = ring.send_credit(fabric, links);
            self.owed |= ring.owes_credit();
            if more {
                self.put_due(link);
            }
            if let Some(record) = record {
                return Some(Taken { link, bytes: record.bytes, credits });
            }
        }
        None
    }

    /// Sends credits that could not go before. Returns the number of writes.
    #[cold]
    fn send_owed<F: Fabric>(&mut self, fabric: &mut F, links: &mut [PeerLink]) -> u64 {
        let mut writes = 0;
        self.owed = false;
        for (link, ring) in self.rings.iter_mut().enumerate() {
            writes += ring.send_credit(fabric, links);
            // What is lost with a connection is not owed on the next one.
            self.owed |= ring.owes_credit() && links[link].is_met();
        }
        writes
    }
}

impl<F: Fabric> Client<F> {
    /// Takes the next record that a member sent to this client, of the members in turn. Each member's come in order, and each
    /// once. What was under way when a connection ended is lost. [`step`](Client::step) finds records, and this takes them: call
    /// it after every step until it returns `None`, also before a wait. A member whose ring is full sends nothing more until its
    /// records are taken. Copies, and allocates nothing.
    pub fn next_reply(&mut self) -> Option<Reply<'_>> {
        let taken = self.replies.take(&mut self.fabric, &mut self.links);
        if self.replies.owed || taken.is_some_and(|taken| taken.credits > 0) {
            // The credit is to go out with the next step.
            self.gate.resume();
        }
        let Taken { link, bytes, credits } = taken?;
        self.counts.write(Step::Credit, credits);
        let bytes = &self.replies.record[HEADER_WORDS..].as_bytes()[..bytes];
        Some(Reply { group: GroupId(self.places[link].0 as u16), member: self.links[link].peer(), bytes })
    }

    /// Looks for replies. Returns whether there are any that were not there before.
    #[inline]
    pub(super) fn look_for_replies(&mut self) -> bool {
        if self.replies.owed {
            let writes = self.replies.send_owed(&mut self.fabric, &mut self.links);
            self.counts.write(Step::Credit, writes);
        }
        self.replies.look(&self.fabric, &self.links, &self.gate)
    }

    /// Whether a credit for replies has still to go.
    #[inline]
    pub(super) fn owes_replies(&self) -> bool {
        self.replies.owed
    }
}
