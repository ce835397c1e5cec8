//! All queue pairs of a node. Each may break and come back any number of times, also with another process at the other
//! end; a broken one is reset at once.
//!
//! # Invariants
//! - What is received, resolved or greeted belongs to one life of a link; nothing of it is used in the next one.
//! - Every life of a main link has `RECEIVES` receives posted before it can connect, and each that is consumed is posted
//!   again; a peer keeps to that budget, so none is missing.

use std::ops::{Deref, DerefMut};

use stentor_fabric::memory::WORD;
use stentor_fabric::{
    Completion, Event, Fabric, Opcode, ProcessId, QpId, QpState, RegionId, RegionSpec, Service, Source, Span, Status,
    Verb,
};
use zerocopy::IntoBytes;

use super::greeting::{GREETING_BYTES, GREETING_WORDS, Greeting, Seals};
use super::posting::Link;
use super::{INBOX, MAIN, NodeError};

/// Receives posted on every main queue pair: two greetings, the rest for writes with an immediate.
pub(super) const RECEIVES: u32 = 16;
/// Writes with an immediate that a peer may have posted without knowing that their receives were posted again.
pub(super) const IMMEDIATES: u64 = RECEIVES as u64 - 4;
/// Bytes of receives for every client or other member.
pub const INBOX_BYTES: u64 = RECEIVES as u64 * GREETING_BYTES as u64;

/// What happened to a link; the number is its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// Connected.
    Up(usize),
    /// Broken, and reset.
    Down(usize),
    /// The peer greeted.
    Greeted(usize, Greeting),
    /// The peer said something else.
    Refused,
}

/// The queue pairs of a node.
#[derive(Debug)]
pub(super) struct Links {
    list: Vec<Link>,
    /// Index by queue pair.
    by_qp: Vec<Option<usize>>,
    /// By link: the first word of its receives.
    receives: Vec<Option<usize>>,
    inbox: RegionId,
    next_receives: usize,
    /// Greetings that found no place in their send queues.
    unsaid: Vec<(usize, Greeting)>,
    seals: Seals,
    pub(super) incarnation: u64,
}

impl Deref for Links {
    type Target = [Link];

    fn deref(&self) -> &[Link] {
        &self.list
    }
}

impl DerefMut for Links {
    fn deref_mut(&mut self) -> &mut [Link] {
        &mut self.list
    }
}

impl Links {
    /// With receives for `mains` main queue pairs. Registers `mains *` [`INBOX_BYTES`].
    pub(super) fn new<F: Fabric>(
        fabric: &mut F,
        mains: usize,
        seals: Seals,
        incarnation: u64,
    ) -> Result<Self, NodeError> {
        let bytes = (mains as u64 * INBOX_BYTES).max(INBOX_BYTES);
        let inbox = fabric.register(RegionSpec { purpose: INBOX, writer: fabric.me(), bytes })?;
        Ok(Links {
            list: Vec::new(),
            by_qp: Vec::new(),
            receives: Vec::new(),
            inbox,
            next_receives: 0,
            unsaid: Vec::new(),
            seals,
            incarnation,
        })
    }

    pub(super) fn open<F: Fabric>(
        &mut self,
        fabric: &mut F,
        peer: ProcessId,
        service: Service,
    ) -> Result<usize, NodeError> {
        let is_main = service == MAIN;
        let link = Link::open(fabric, peer, service, if is_main { RECEIVES } else { 0 })?;
        let index = self.list.len();
        self.by_qp.resize(self.by_qp.len().max(link.qp.index() + 1), None);
        self.by_qp[link.qp.index()] = Some(index);
        self.list.push(link);
        self.receives.push(is_main.then_some(self.next_receives));
        if is_main {
            self.next_receives += RECEIVES as usize * GREETING_WORDS;
        }
        self.post_receives(fabric, index);
        Ok(index)
    }

    fn post_receives<F: Fabric>(&self, fabric: &mut F, link: usize) {
        for receive in 0..RECEIVES as usize {
            self.post_receive(fabric, link, receive);
        }
    }

    /// Errors mean that the link is broken: then all are posted again when it is reset.
    fn post_receive<F: Fabric>(&self, fabric: &mut F, link: usize, receive: usize) {
        let Some(first) = self.receives[link] else { return };
        let offset = ((first + receive * GREETING_WORDS) * WORD) as u64;
        let span = Span { region: self.inbox, offset, bytes: GREETING_BYTES as u32 };
        let Link { qp, life, .. } = self.list[link];
        let _ = fabric.post_recv(qp, span, u64::from(life) << 8 | receive as u64);
    }

    fn of(&self, qp: QpId) -> Option<usize> {
        self.by_qp.get(qp.index()).copied().flatten()
    }

    /// A completion was polled.
    pub(super) fn completed<F: Fabric>(&mut self, fabric: &mut F, completion: &Completion) -> Option<News> {
        let Completion { qp, id, opcode, status, .. } = *completion;
        let link = self.of(qp)?;
        if status != Status::Success {
            // A suspicion, not a crash. If the queue pair is not broken it was reset already, and this is of before.
            return self.check(fabric, link);
        }
        if !matches!(opcode, Opcode::Recv | Opcode::RecvWriteImm) {
            self.list[link].queue.completed(id);
            return None;
        }
        if id >> 8 != u64::from(self.list[link].life) {
            return None;
        }
        let receive = (id & 0xff) as usize;
        let news = (opcode == Opcode::Recv).then(|| self.greeted(fabric, link, receive, completion.bytes));
        self.list[link].consumed += u64::from(opcode == Opcode::RecvWriteImm);
        self.post_receive(fabric, link, receive);
        news
    }

    fn greeted<F: Fabric>(&mut self, fabric: &F, link: usize, receive: usize, bytes: u32) -> News {
        let first = self.receives[link].unwrap_or(0) + receive * GREETING_WORDS;
        let words = &fabric.memory(self.inbox)[first..first + GREETING_WORDS];
        let whole = bytes as usize == GREETING_BYTES;
        self.seals.decode(words).filter(|_| whole).map_or(News::Refused, |greeting| News::Greeted(link, greeting))
    }

    /// Sends a greeting, or keeps it until there is a place in the send queue. Returns the number of sends.
    pub(super) fn greet<F: Fabric>(&mut self, fabric: &mut F, link: usize, greeting: Greeting) -> u64 {
        self.unsaid.push((link, greeting));
        self.speak(fabric)
    }

    /// Sends what was kept. Returns the number of sends.
    #[inline]
    pub(super) fn speak<F: Fabric>(&mut self, fabric: &mut F) -> u64 {
        if self.unsaid.is_empty() { 0 } else { self.speak_all(fabric) }
    }

    fn speak_all<F: Fabric>(&mut self, fabric: &mut F) -> u64 {
        let (list, seals, before) = (&mut self.list, self.seals, self.unsaid.len());
        // Rings that start anew wait for what was posted before; see `Outbound::start`.
        let awaited = !fabric.capabilities().ordered_writes;
        self.unsaid.retain(|(link, greeting)| {
            let link = &mut list[*link];
            let words = seals.encode(greeting);
            let verb = Verb::Send { source: Source::Inline(words.as_bytes()), imm: None };
            !(link.can_post() && link.post(fabric, verb, awaited).is_some())
        });
        (before - self.unsaid.len()) as u64
    }

    /// An event was taken.
    pub(super) fn happened<F: Fabric>(&mut self, fabric: &mut F, event: &Event) -> Option<News> {
        match *event {
            Event::Connected { qp, .. } => {
                let link = self.of(qp)?;
                // It may have broken since; and the life that this is about may be over.
                let fresh = !self.list[link].ready && fabric.state(qp) == QpState::Ready;
                fresh.then(|| {
                    self.list[link].connected();
                    News::Up(link)
                })
            }
            Event::Disconnected { qp, .. } => self.of(qp).and_then(|link| self.check(fabric, link)),
            Event::Revoked { .. } => None,
        }
    }

    /// Resets the link if it is broken.
    pub(super) fn check<F: Fabric>(&mut self, fabric: &mut F, link: usize) -> Option<News> {
        let qp = self.list[link].qp;
        if fabric.state(qp) != QpState::Error {
            return None;
        }
        // Refused only while something is short; `check` is called again until it works.
        let reset = fabric.reset(qp).is_ok();
        self.list[link].reset();
        self.unsaid.retain(|(unsaid, _)| *unsaid != link);
        if reset {
            self.post_receives(fabric, link);
        }
        Some(News::Down(link))
    }
}
