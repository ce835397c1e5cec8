//! One life of a queue pair: the time from connecting to breaking.
//!
//! Each life has an endpoint of its own, which is closed when the queue pair breaks. A new life therefore receives no
//! messages of an old one, and no operation of an old life lands after the end of that life.

use std::collections::VecDeque;
use std::ffi::c_void;
use std::sync::Arc;

use stentor_fabric::memory::{Ordering, WORD, Word};
use stentor_fabric_net::InlineRing;

use super::frame::{self, FRAME, FrameKind, HEADER};
use crate::PageMemory;
use crate::cq::{BATCH, Batch, Polled, Success};
use crate::domain::{Domain, MakeError};
use crate::endpoint::{Endpoint, PeerAddress, remove_segment};
use crate::endpoint::{Local, Scratch};
use crate::errno::Errno;
use crate::memory::Registration;

/// Maximum length of an inline source, in bytes.
pub(super) const INLINE: usize = 1024;
/// Size of the memory that one send has for a frame header, in bytes.
const SLOT: usize = 64;
/// Number of receives for frames that are posted in advance.
const FRAMES: usize = 32;
/// Maximum number of control frames of this end that are in flight.
const SPEECHES: usize = 8;
/// Maximum number of receives that one credit frame reports.
const CREDITS: usize = (FRAME - HEADER) / 4;

/// Resource to which an operation belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Owner {
    /// A slot of the send queue.
    Send(usize),
    /// A posted receive for frames.
    Frame(usize),
    /// A control frame that this end sends. It is not a piece of a SEND.
    Speech(usize),
    /// A tagged receive.
    Tagged(usize),
}

/// An event that a poll of the completion queue has returned.
#[derive(Clone, Copy, Debug)]
pub(super) enum Came {
    /// An operation succeeded.
    Done(Owner, Success),
    /// An operation failed.
    Failed(Option<Owner>, Errno),
    /// A peer's write with an immediate landed.
    Immediate(u64, usize),
}

/// Queue sizes of one queue pair.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    pub(super) sends: usize,
    pub(super) tagged: usize,
    pub(super) receives: usize,
}

/// Scratch memory that providers write. Its addresses do not change.
struct Scratches(Box<[Scratch]>);

// SAFETY: the pointers belong to the provider, whose objects may be used from any thread.
unsafe impl Send for Scratches {}

pub(super) struct Life {
    // Fields are dropped in this order: first the endpoint, then the memory that it may use.
    endpoint: Endpoint,
    peer: Option<PeerAddress>,
    scratch: Scratches,
    sizes: Sizes,
    /// Memory for the frame headers of SENDs, one per slot of the send queue, followed by the ring of inline data.
    sending: Registration,
    inline: InlineRing,
    frames: Registration,
    speeches: Registration,
    /// Frame receives that must be posted again.
    unposted: Vec<usize>,
    /// Free buffers for control frames.
    free: Vec<usize>,
    speech: Vec<u8>,
    /// Control frames that have yet to be sent.
    unsaid: VecDeque<FrameKind>,
    /// Lengths of receives that are not yet reported to the peer.
    untold: VecDeque<u32>,
    /// Token in frames from the peer.
    pub(super) token: u64,
    /// Token in frames to the peer.
    pub(super) their_token: u64,
    their_address: Vec<u8>,
    /// Number of requests of the send queue that are posted to the provider.
    pub(super) under_way: usize,
    landed: u64,
}

impl Drop for Life {
    /// Removes the name of the peer's shared memory. The peer's endpoint has only this connection, so no process needs
    /// the name any more. If the peer was killed, it could not remove the name itself.
    fn drop(&mut self) {
        remove_segment(&self.their_address);
    }
}

impl std::fmt::Debug for Life {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Life").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Life {
    pub(super) fn new(domain: &Arc<Domain>, sizes: Sizes, waits: bool, token: u64) -> Result<Life, MakeError> {
        let operations = sizes.sends + FRAMES + SPEECHES + sizes.tagged;
        let endpoint = Endpoint::new(domain, operations + sizes.receives + 64, waits)?;
        let own = |what: &str, bytes: usize| {
            let memory = PageMemory::zeroed(bytes.next_multiple_of(WORD).max(WORD));
            let failed =
                || MakeError::new(domain.info(), format!("{bytes} bytes of memory for {what}"), Errno::NO_MEMORY);
            Registration::new(domain, &memory.ok_or_else(failed)?, None, super::fresh_key(), None)
        };
        let inline_bytes = InlineRing::bytes_for(sizes.sends as u64, INLINE as u64);
        let mut life = Life {
            peer: None,
            scratch: Scratches((0..operations).map(|_| Scratch::default()).collect()),
            sizes,
            sending: own("frame headers and inline data", sizes.sends * SLOT + inline_bytes as usize)?,
            inline: InlineRing::new(inline_bytes),
            frames: own("received frames", FRAMES * FRAME)?,
            speeches: own("frames to send", SPEECHES * FRAME)?,
            unposted: (0..FRAMES).rev().collect(),
            free: (0..SPEECHES).collect(),
            speech: Vec::with_capacity(FRAME),
            unsaid: VecDeque::new(),
            untold: VecDeque::new(),
            token,
            their_token: 0,
            their_address: Vec::new(),
            under_way: 0,
            landed: 0,
            endpoint,
        };
        life.post_frames();
        Ok(life)
    }

    pub(super) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(super) fn know(&mut self, address: &[u8]) -> Result<(), Errno> {
        self.peer = Some(self.endpoint.know(address)?);
        self.their_address = address.to_vec();
        Ok(())
    }

    pub(super) fn knows(&self) -> bool {
        self.peer.is_some()
    }

    fn index(&self, owner: Owner) -> usize {
        match owner {
            Owner::Send(n) => n,
            Owner::Frame(n) => self.sizes.sends + n,
            Owner::Speech(n) => self.sizes.sends + FRAMES + n,
            Owner::Tagged(n) => self.sizes.sends + FRAMES + SPEECHES + n,
        }
    }

    fn owner(&self, context: *mut c_void) -> Option<Owner> {
        let offset = context.addr().checked_sub(self.scratch.0.as_ptr().addr())?;
        let n = offset / size_of::<Scratch>();
        let (frames, speeches) = (self.sizes.sends, self.sizes.sends + FRAMES);
        let tagged = speeches + SPEECHES;
        Some(match n {
            _ if n < frames => Owner::Send(n),
            _ if n < speeches => Owner::Frame(n - frames),
            _ if n < tagged => Owner::Speech(n - speeches),
            _ if n < self.scratch.0.len() => Owner::Tagged(n - tagged),
            _ => return None,
        })
    }

    fn context(&mut self, owner: Owner) -> *mut c_void {
        let n = self.index(owner);
        (&raw mut self.scratch.0[n]).cast()
    }

    /// Polls the completion queue. Stores successes in the batch and returns a failure. The second value is `true` if
    /// the queue is known to be empty, so that the caller can avoid a poll that would only cost a system call.
    #[inline]
    pub(super) fn poll(&mut self, batch: &mut Batch) -> (Option<Came>, bool) {
        match self.endpoint.queue().take(batch) {
            Polled::Nothing => (None, true),
            Polled::Entries(count) => (None, count < BATCH),
            Polled::Failed(failure) => {
                let came = Came::Failed(self.owner(failure.context), failure.errno);
                self.ended(&came);
                (Some(came), false)
            }
        }
    }

    /// Classifies one entry of a batch.
    #[inline]
    pub(super) fn came(&mut self, entry: Success) -> Came {
        let came = match (self.owner(entry.context), entry.immediate) {
            (Some(owner), _) if !entry.context.is_null() => Came::Done(owner, entry),
            (_, Some(immediate)) => Came::Immediate(immediate, entry.bytes),
            _ => Came::Failed(None, Errno::INVALID),
        };
        self.ended(&came);
        came
    }

    /// Returns whether a write of the peer has landed since the last call. Always `false` if the provider does not
    /// count writes.
    pub(super) fn has_landed(&mut self) -> bool {
        let landed = self.endpoint.writes_landed().unwrap_or(0);
        std::mem::replace(&mut self.landed, landed) != landed
    }

    fn ended(&mut self, came: &Came) {
        match came {
            Came::Done(Owner::Send(_), _) | Came::Failed(Some(Owner::Send(_)), _) => self.under_way -= 1,
            Came::Done(Owner::Speech(n), _) => self.free.push(*n),
            _ => {}
        }
    }

    /// Copies inline data into registered memory, directly after the previous copy if there is room. The data of
    /// adjoining WRITEs then adjoins there, too. The memory suffices for as many requests as the send queue holds.
    pub(super) fn copy_inline(&mut self, data: &[u8]) -> Local {
        let bytes = data.len().next_multiple_of(WORD) as u64;
        let offset = self.inline.take(bytes).expect("the ring holds inline data for the whole send queue");
        let offset = self.sizes.sends * SLOT + offset as usize;
        store(self.sending.memory().words(), offset, data);
        let (start, descriptor) = (self.sending.memory().at(offset as u64), self.sending.descriptor());
        Local { start, bytes: data.len(), descriptor }
    }

    /// Returns the position in the inline ring up to which the data can be freed once all requests posted so far are
    /// finished.
    #[inline]
    pub(super) fn inline_taken(&self) -> u64 {
        self.inline.taken()
    }

    /// Frees the inline data of finished requests, up to a value of [`inline_taken`](Life::inline_taken).
    #[inline]
    pub(super) fn free_inline(&mut self, taken: u64) {
        self.inline.free_up_to(taken);
    }

    /// Sends one piece of a SEND, with the data in `local`.
    pub(super) fn send_piece(&mut self, slot: usize, kind: FrameKind, local: Local) -> Result<(), Errno> {
        let peer = self.peer.ok_or(Errno::AGAIN)?;
        let header = frame::encode(self.their_token, kind);
        store(self.sending.memory().words(), slot * SLOT, &header);
        let start = self.sending.memory().at((slot * SLOT) as u64);
        let header = Local { start, bytes: HEADER, descriptor: self.sending.descriptor() };
        let context = self.context(Owner::Send(slot));
        // SAFETY: this life keeps the header and the scratch. The data is either inline data or memory of a region,
        // which is not freed while there are lives. The slot is free, or its last piece has completed.
        unsafe { self.endpoint.send_two([header, local], peer, context) }?;
        self.has_one_more();
        Ok(())
    }

    /// Sends a short tagged message that the provider copies during the call, if it supports that.
    #[inline]
    pub(super) fn inject_tagged(&self, data: &[u8], tag: u64) -> Result<(), Errno> {
        self.endpoint.inject_tagged(data, self.peer.ok_or(Errno::AGAIN)?, tag)
    }

    /// Posts an operation that needs no frame header.
    pub(super) fn post(
        &mut self,
        slot: usize,
        post: impl FnOnce(&Endpoint, PeerAddress, *mut c_void) -> Result<(), Errno>,
    ) -> Result<(), Errno> {
        let peer = self.peer.ok_or(Errno::AGAIN)?;
        let context = self.context(Owner::Send(slot));
        post(&self.endpoint, peer, context)?;
        self.has_one_more();
        Ok(())
    }

    /// Counts a request of the send queue that was posted to the provider. If more operations were posted than the
    /// provider's queue holds, the provider might lose completions.
    #[inline]
    fn has_one_more(&mut self) {
        self.under_way += 1;
        let depth = self.endpoint.domain().info().send_depth() as usize;
        debug_assert!(self.under_way <= depth, "{} operations are posted to a queue of {depth}", self.under_way);
    }

    pub(super) fn receive_tagged(&mut self, n: usize, local: Local, tag: u64, ignore: u64) -> Result<(), Errno> {
        let context = self.context(Owner::Tagged(n));
        // SAFETY: this life keeps the scratch, whose slot is free. The memory belongs to a region, which is not freed
        // while there are lives.
        unsafe { self.endpoint.receive_tagged(local, tag, ignore, context) }
    }

    pub(super) fn cancel_tagged(&mut self, n: usize) {
        let context = self.context(Owner::Tagged(n));
        // SAFETY: a receive was posted with this context, whose scratch still exists. If the receive has completed, the
        // provider does not find it.
        let _ = unsafe { self.endpoint.cancel(context) };
    }

    /// Returns the type and the data length of the frame in buffer `n`. The data follows the header. Returns `None` if
    /// the frame is invalid.
    pub(super) fn frame(&self, n: usize, bytes: usize) -> Option<(FrameKind, usize)> {
        let mut header = [0; HEADER];
        load(self.frames.memory().words(), n * FRAME, &mut header);
        let kind = frame::decode(self.token, &header).filter(|_| (HEADER..=FRAME).contains(&bytes))?;
        Some((kind, bytes - HEADER))
    }

    /// Copies the data of the frame in buffer `n` to `to`.
    pub(super) fn copy_piece(&self, n: usize, to: &mut [u8]) {
        load(self.frames.memory().words(), n * FRAME + HEADER, to);
    }

    /// Marks frame receive `n` for being posted again.
    pub(super) fn done_with(&mut self, n: usize) {
        self.unposted.push(n);
    }

    fn post_frames(&mut self) {
        while let Some(n) = self.unposted.pop() {
            let start = self.frames.memory().at((n * FRAME) as u64);
            let local = Local { start, bytes: FRAME, descriptor: self.frames.descriptor() };
            let context = self.context(Owner::Frame(n));
            // SAFETY: this life keeps the memory and the scratch, and nothing reads the buffer before the completion.
            if unsafe { self.endpoint.receive(local, context) }.is_err() {
                self.unposted.push(n);
                return;
            }
        }
    }

    pub(super) fn say(&mut self, kind: FrameKind) {
        if kind != FrameKind::Bell || !self.unsaid.contains(&kind) {
            self.unsaid.push_back(kind);
        }
    }

    pub(super) fn tell_receive(&mut self, bytes: u32) {
        self.untold.push_back(bytes);
    }

    /// Posts consumed frame receives again, and sends pending credits and control frames.
    #[inline]
    pub(super) fn talk(&mut self) {
        if !(self.unposted.is_empty() && self.unsaid.is_empty() && self.untold.is_empty()) {
            self.say_all();
        }
    }

    fn say_all(&mut self) {
        if !self.unposted.is_empty() {
            self.post_frames();
        }
        let Some(peer) = self.peer else { return };
        while !(self.free.is_empty() || self.unsaid.is_empty() && self.untold.is_empty()) {
            let credits = !self.untold.is_empty();
            let kind =
                if credits { FrameKind::Credits } else { self.unsaid.front().copied().unwrap_or(FrameKind::Bell) };
            let count = if credits { self.untold.len().min(CREDITS) } else { 0 };
            let Some(n) = self.free.pop() else { return };
            self.speech.clear();
            self.speech.extend(frame::encode(self.their_token, kind));
            self.speech.extend(self.untold.iter().take(count).flat_map(|bytes| bytes.to_be_bytes()));
            store(self.speeches.memory().words(), n * FRAME, &self.speech);
            let start = self.speeches.memory().at((n * FRAME) as u64);
            let local = Local { start, bytes: self.speech.len(), descriptor: self.speeches.descriptor() };
            let context = self.context(Owner::Speech(n));
            // SAFETY: this life keeps the memory and the scratch, and does not change them before the completion.
            if unsafe { self.endpoint.send(local, peer, context) }.is_err() {
                self.free.push(n);
                return;
            }
            if credits {
                self.untold.drain(..count);
            } else {
                self.unsaid.pop_front();
            }
        }
    }
}

/// Stores bytes in words. `offset` is a multiple of 8.
pub(super) fn store(words: &[Word], offset: usize, data: &[u8]) {
    let first = offset / WORD;
    for (word, bytes) in words[first..].iter().zip(data.chunks(WORD)) {
        let mut value = word.load(Ordering::Relaxed).to_ne_bytes();
        value[..bytes.len()].copy_from_slice(bytes);
        word.store(u64::from_ne_bytes(value), Ordering::Relaxed);
    }
}

/// Loads bytes from words. `offset` is a multiple of 8.
pub(super) fn load(words: &[Word], offset: usize, data: &mut [u8]) {
    let first = offset / WORD;
    for (word, bytes) in words[first..].iter().zip(data.chunks_mut(WORD)) {
        let value = word.load(Ordering::Relaxed).to_ne_bytes();
        bytes.copy_from_slice(&value[..bytes.len()]);
    }
}
