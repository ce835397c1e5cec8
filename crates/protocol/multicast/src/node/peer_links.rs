//! The links of a node, their receives, and the hellos that are exchanged over them.
//!
//! # Invariants
//! - Every connection of a main link has `RECEIVES` receives posted before it is established, and each that is consumed
//!   is posted again. A peer keeps to [`IMMEDIATES`], so the other four receives are left for hellos.
//! - A hello is sent on the connection for which it was made, or never.

use std::ops::{Deref, DerefMut};

use stentor_fabric::memory::{Ordering, WORD};
use stentor_fabric::{
    Completion, Event, Fabric, Opcode, ProcessId, QpConfig, RegionId, RegionSpec, Service, Source, Span, Status, Verb,
};
use stentor_link::purpose::MULTICAST_INBOX;
use stentor_link::service::MULTICAST_MAIN;
use stentor_link::{Link, LinkEvent, Links};
use zerocopy::IntoBytes;

use super::hello::{HELLO_BYTES, HELLO_WORDS, Hello};
use super::peer_link::PeerLink;
use super::seals::Seals;
use super::{NodeError, SEND_DEPTH};

/// Receives posted on every main queue pair. Four are left for hellos, the rest is for writes with an immediate.
pub(super) const RECEIVES: u32 = 16;
/// Maximum number of writes with an immediate that a peer may have posted before it knows that their receives were
/// posted again.
pub(super) const IMMEDIATES: u64 = RECEIVES as u64 - 4;
/// Cells in the inbox for each main link: its receives, and the last hello sent over it.
const CELLS: usize = RECEIVES as usize + 1;
/// Bytes of the receives and of the last hello sent, for each main link.
pub const INBOX_BYTES: u64 = CELLS as u64 * HELLO_BYTES as u64;

/// An event of a link, which is identified by its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PeerEvent {
    /// The link is connected.
    Up(usize),
    /// The link broke.
    Down(usize),
    /// The peer's hello arrived.
    Greeted(usize, Hello),
    /// The peer sent a message that is not a valid hello.
    Refused,
}

/// The links of a node.
#[derive(Debug)]
pub(super) struct PeerLinks {
    links: Links<PeerLink>,
    inbox: RegionId,
    next_receives: usize,
    /// Hellos that could not be sent yet.
    unsent: Vec<(usize, Hello)>,
    seals: Seals,
    pub(super) life: u64,
}

impl Deref for PeerLinks {
    type Target = [PeerLink];

    #[inline]
    fn deref(&self) -> &[PeerLink] {
        &self.links
    }
}

impl DerefMut for PeerLinks {
    #[inline]
    fn deref_mut(&mut self) -> &mut [PeerLink] {
        &mut self.links
    }
}

impl PeerLinks {
    /// Registers receives for `mains` main queue pairs: [`INBOX_BYTES`] bytes for each, and for at least one.
    pub(super) fn new<F: Fabric>(fabric: &mut F, mains: usize, seals: Seals, life: u64) -> Result<Self, NodeError> {
        let bytes = (mains as u64 * INBOX_BYTES).max(INBOX_BYTES);
        let inbox = fabric.register(RegionSpec { purpose: MULTICAST_INBOX, writer: fabric.me(), bytes })?;
        let (links, unsent) = (Links::default(), Vec::new());
        Ok(PeerLinks { links, inbox, next_receives: 0, unsent, seals, life })
    }

    pub(super) fn open<F: Fabric>(
        &mut self,
        fabric: &mut F,
        peer: ProcessId,
        service: Service,
    ) -> Result<usize, NodeError> {
        let receives = if service == MULTICAST_MAIN { RECEIVES } else { 0 };
        // Records and credits are sealed individually, so the order in which the bytes of several land does not matter.
        let config = QpConfig::reliable(SEND_DEPTH, receives).merging();
        let link = Link::open(fabric, peer, service, config)?;
        let first = (receives > 0).then_some(self.next_receives);
        self.next_receives += if receives > 0 { CELLS * HELLO_WORDS } else { 0 };
        let index = self.links.push(PeerLink::new(link, first));
        self.post_receives(fabric, index);
        Ok(index)
    }

    fn post_receives<F: Fabric>(&self, fabric: &mut F, link: usize) {
        for receive in 0..u64::from(RECEIVES) {
            self.post_receive(fabric, link, receive);
        }
    }

    /// Posts one receive of a link. An error means that the link is broken; all receives are posted again when the link
    /// is reset.
    fn post_receive<F: Fabric>(&self, fabric: &mut F, link: usize, receive: u64) {
        let link = &self.links[link];
        let Some(first) = link.receives else { return };
        let offset = ((first + receive as usize * HELLO_WORDS) * WORD) as u64;
        let span = Span { region: self.inbox, offset, bytes: HELLO_BYTES as u32 };
        let _ = fabric.post_recv(link.qp(), span, link.id(receive));
    }

    /// Handles a completion that was polled. Returns the event that it causes, if any.
    pub(super) fn completed<F: Fabric>(&mut self, fabric: &mut F, completion: &Completion) -> Option<PeerEvent> {
        let Completion { opcode, status, bytes, .. } = *completion;
        let (link, number) = self.links.find(completion)?;
        if status != Status::Success {
            // A failed completion makes the peer a suspect, but does not prove a crash. If the queue pair is not in
            // error, it was already reset, and the completion is older.
            let event = self.links.check(fabric, link)?;
            return Some(self.changed(fabric, event));
        }
        let number = number?;
        if !matches!(opcode, Opcode::Recv | Opcode::RecvWriteImm) {
            self.links[link].completed(number);
            return None;
        }
        let event = (opcode == Opcode::Recv).then(|| self.greeted(fabric, link, number as usize, bytes));
        self.links[link].consumed += u64::from(opcode == Opcode::RecvWriteImm);
        self.post_receive(fabric, link, number);
        event
    }

    fn greeted<F: Fabric>(&self, fabric: &F, link: usize, receive: usize, bytes: u32) -> PeerEvent {
        let first = self.links[link].receives.unwrap_or(0) + receive * HELLO_WORDS;
        let words = &fabric.memory(self.inbox)[first..first + HELLO_WORDS];
        let whole = bytes as usize == HELLO_BYTES;
        Hello::decode(&self.seals, words)
            .filter(|_| whole)
            .map_or(PeerEvent::Refused, |hello| PeerEvent::Greeted(link, hello))
    }

    /// Sends a hello, or keeps it until it can be sent. Returns the number of hellos sent, including earlier ones.
    pub(super) fn greet<F: Fabric>(&mut self, fabric: &mut F, link: usize, hello: Hello) -> u64 {
        self.unsent.push((link, hello));
        self.send_hellos(fabric)
    }

    /// Sends the hellos that were kept, as far as that is possible now. Returns the number of hellos sent. Owners call
    /// this after they have polled completions, because a kept hello waits for a completion.
    #[inline]
    pub(super) fn send_hellos<F: Fabric>(&mut self, fabric: &mut F) -> u64 {
        if self.unsent.is_empty() { 0 } else { self.send_all(fabric) }
    }

    fn send_all<F: Fabric>(&mut self, fabric: &mut F) -> u64 {
        let (links, seals, before) = (&mut self.links, self.seals, self.unsent.len());
        // Rings that restart wait for everything posted before; see `Outbound::start`.
        let awaited = !fabric.capabilities().ordered_writes;
        let inline = HELLO_BYTES <= fabric.capabilities().inline_bytes as usize;
        let inbox = self.inbox;
        self.unsent.retain(|(link, hello)| {
            let link = &mut links[*link];
            // The NIC may not have read the previous hello yet. On a fabric that does not order writes, that hello
            // could also arrive after this one.
            if !link.can_post() || (awaited || !inline) && link.greeting > link.done() {
                return true;
            }
            let words = hello.encode(&seals);
            if inline {
                let verb = Verb::Send { source: Source::Inline(words.as_bytes()), imm: None };
                let posted = link.post(fabric, verb, awaited);
                link.greeting = posted.unwrap_or(link.greeting);
                return posted.is_none();
            }
            let Some(first) = link.receives.map(|first| first + (CELLS - 1) * HELLO_WORDS) else { return false };
            for (cell, word) in fabric.memory(inbox)[first..].iter().zip(words) {
                cell.store(word, Ordering::Relaxed);
            }
            let span = Span { region: inbox, offset: (first * WORD) as u64, bytes: HELLO_BYTES as u32 };
            let posted = link.post(fabric, Verb::Send { source: Source::Region(span), imm: None }, true);
            link.greeting = posted.unwrap_or(link.greeting);
            posted.is_none()
        });
        (before - self.unsent.len()) as u64
    }

    /// Handles an event of the fabric. Returns the event that it causes, if any.
    pub(super) fn happened<F: Fabric>(&mut self, fabric: &mut F, event: &Event) -> Option<PeerEvent> {
        let event = self.links.happened(fabric, event)?;
        Some(self.changed(fabric, event))
    }

    /// Ends a connection from this end, as if it had broken. If the link was up, the fabric reports the end of the
    /// connection later; see [`happened`](Self::happened). Otherwise the returned event reports it, if a reset was due.
    pub(super) fn disconnect<F: Fabric>(&mut self, fabric: &mut F, link: usize) -> Option<PeerEvent> {
        // The fabric refuses this only for a queue pair that is not this process's.
        let _ = fabric.disconnect(self.links[link].qp());
        self.check_down(fabric, link)
    }

    /// Resets the queue pair of a link that is down, if the queue pair is broken. Returns the event that reports the
    /// reset.
    pub(super) fn check_down<F: Fabric>(&mut self, fabric: &mut F, link: usize) -> Option<PeerEvent> {
        let event = self.links.check_down(fabric, link)?;
        Some(self.changed(fabric, event))
    }

    fn changed<F: Fabric>(&mut self, fabric: &mut F, event: LinkEvent) -> PeerEvent {
        match event {
            LinkEvent::Up(link) => PeerEvent::Up(link),
            LinkEvent::Down(link) => {
                self.links[link].begin_connection();
                self.unsent.retain(|(unsent, _)| *unsent != link);
                self.post_receives(fabric, link);
                PeerEvent::Down(link)
            }
        }
    }
}
