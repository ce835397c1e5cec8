//! Implements [`Transport`], by which the connection manager drives the ends of all connections, and defines the state
//! that the ends share.

use std::collections::VecDeque;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno as SystemError;
use stentor_fabric::{Completion, ProcessId, QpId, Status};
use stentor_fabric_net::{End, Transport};

use super::OfiDevice;
use super::fenced::Fenced;
use super::frame::FrameKind;
use super::fresh_key;
use super::life::{Life, Sizes};
use crate::PageMemory;
use crate::endpoint::Endpoint;
use crate::quirks::Quirks;

/// epoll data that identifies completion queues.
pub(super) const QUEUE: u64 = 1;

/// State shared by all queue pairs.
#[derive(Debug)]
pub(super) struct Shared {
    /// Completions that wait to be polled. The completion of a successful request also has the number of its queue
    /// pair's life, and the number below which all requests of that life are finished.
    pub(super) ready: VecDeque<(Completion, Option<(u32, u64)>)>,
    pub(super) broken: VecDeque<QpId>,
    /// Keys of peers' regions that this process must not use any more.
    pub(super) fenced: Fenced,
    /// Confirmations of fences by peers, each as queue pair, life and key.
    pub(super) answered: Vec<(QpId, u32, u64)>,
    /// Memory of the regions, by region.
    pub(super) memories: Vec<Arc<PageMemory>>,
    /// `true` if a write may have landed or a request may have completed since the last call of
    /// [`arm`](stentor_fabric::Fabric::arm).
    pub(super) rung: bool,
    pub(super) armed: bool,
    /// `true` if the provider guarantees order between writes.
    pub(super) ordered: bool,
    /// `true` if completion queues should have descriptors, on providers that support them.
    pub(super) waits: bool,
    /// Maximum number of requests in the send queue of one endpoint that are posted to the provider at a time.
    pub(super) depth: usize,
    /// Maximum length of a merged write, in bytes.
    pub(super) most_merged: usize,
    pub(super) rnr_timeout: Duration,
    /// `true` if immediates have 64 bits.
    pub(super) wide: bool,
    pub(super) epoll: Arc<OwnedFd>,
}

impl Shared {
    /// Returns an immediate in the form that is passed to the provider. It includes the length if the provider's
    /// immediates have 64 bits, because not all providers report the length.
    pub(super) fn immediate(&self, imm: u32, bytes: usize) -> u64 {
        if self.wide { u64::from(imm) | (bytes as u64) << 32 } else { imm.into() }
    }

    /// Returns the 32-bit immediate and the length of a write that has landed.
    pub(super) fn told(&self, data: u64, bytes: usize) -> (u32, u32) {
        (data as u32, if self.wide { (data >> 32) as u32 } else { bytes as u32 })
    }

    /// Removes an endpoint's descriptor from epoll, before the endpoint is closed.
    pub(super) fn forget(&self, endpoint: &Endpoint) {
        if let Some(descriptor) = endpoint.queue().descriptor() {
            // SAFETY: the endpoint is still open, so its descriptor is open, too.
            let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
            let _ = epoll::delete(&self.epoll, descriptor);
        }
    }

    fn watch(&self, endpoint: &Endpoint) -> Result<(), SystemError> {
        let Some(descriptor) = endpoint.queue().descriptor() else { return Ok(()) };
        // SAFETY: the endpoint is open, so its descriptor is open, too.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(QUEUE), epoll::EventFlags::IN)
    }

    /// Sleeps for at most `slice`. Returns `true` if a completion queue has become readable.
    pub(super) fn doze(&self, slice: Duration) -> Result<bool, SystemError> {
        let slice = Timespec { tv_sec: slice.as_secs() as i64, tv_nsec: slice.subsec_nanos().into() };
        let mut events = Vec::with_capacity(8);
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut events), Some(&slice)) {
            Ok(_) => Ok(events.iter().any(|event| event.data.u64() == QUEUE)),
            Err(SystemError::INTR) => Ok(false),
            Err(error) => Err(error),
        }
    }
}

/// The reason why endpoints cannot be created, which is reported to the user.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    why: Option<String>,
    /// `true` if the reason was reported since the last endpoint was created. A lasting error is reported only once.
    told: bool,
}

impl Trouble {
    fn made(&mut self) {
        *self = Trouble::default();
    }

    fn failed(&mut self, why: &str) {
        if !self.told {
            self.why.get_or_insert_with(|| format!("cannot connect: {why}"));
        }
    }

    /// Returns the reason, if it has not been reported yet.
    pub(super) fn next(&mut self) -> Option<String> {
        let why = self.why.take();
        self.told |= why.is_some();
        why
    }
}

impl OfiDevice {
    /// Returns whether all endpoints have a descriptor to wait on.
    pub(super) fn has_queue_descriptors(&self) -> bool {
        let mut lives = self.ends.iter().filter_map(|qp| qp.life.as_ref());
        lives.all(|life| life.endpoint().queue().descriptor().is_some())
    }

    /// Returns whether all descriptors may be waited on.
    pub(super) fn may_wait(&self) -> bool {
        let mut lives = self.ends.iter().filter_map(|qp| qp.life.as_ref());
        lives.all(|life| life.endpoint().queue().may_wait())
    }

    /// Drives the provider. Returns the number of completions that were written directly to `out`; the others are
    /// queued in `ready`.
    #[inline]
    pub(super) fn drive_into(&mut self, out: &mut [Completion]) -> usize {
        if self.shared.armed && !self.shared.rung {
            self.shared.rung = self.shared.doze(Duration::ZERO).unwrap_or(true);
        }
        let mut count = 0;
        for qp in &mut self.ends {
            count += qp.drive(&mut self.shared, &mut out[count..]);
        }
        count
    }

    pub(super) fn advance(&mut self) {
        for qp in &mut self.ends {
            qp.flush(&mut self.shared);
        }
    }
}

/// Splits an end into its token and the provider's address.
fn parts(end: &End) -> Result<(u64, &[u8]), String> {
    let End::Opaque(bytes) = end else { return Err("the peer's end is not an end of libfabric".to_owned()) };
    let (token, address) = bytes.split_first_chunk().ok_or("the peer's end has no address")?;
    Ok((u64::from_be_bytes(*token), address))
}

impl Transport for OfiDevice {
    fn begin(&mut self, qp: QpId) -> Result<End, String> {
        self.shared.fenced.begin(qp);
        let end = &mut self.ends[qp.index()];
        if end.peer == self.me {
            end.begin(None);
            return Ok(End::Opaque(Vec::new()));
        }
        let config = end.config;
        let (sends, receives) = (end.slots() as usize, config.recv_depth as usize);
        let life = Life::new(&self.domain, Sizes { sends, tagged: receives, receives }, self.shared.waits, fresh_key());
        let life = life.map_err(|error| error.to_string()).inspect_err(|why| self.trouble.failed(why))?;
        self.trouble.made();
        let address =
            life.endpoint().address().map_err(|errno| format!("the endpoint's address cannot be read: {errno}"))?;
        self.shared
            .watch(life.endpoint())
            .map_err(|error| format!("epoll cannot watch the completion queue: {error}"))?;
        let mut bytes = life.token.to_be_bytes().to_vec();
        bytes.extend(address);
        if bytes.len() > stentor_fabric_net::MAX_ADDRESS {
            return Err(format!("the endpoint's address is too long: {} bytes", bytes.len() - 8));
        }
        let seen = life.endpoint().queue().descriptor().is_some() && !Quirks::of(self.domain.info()).silent_writes;
        end.bells = !seen && life.endpoint().writes_landed().is_none();
        end.begin(Some(life));
        Ok(End::Opaque(bytes))
    }

    fn meet(&mut self, qp: QpId, _: &End, theirs: &End) -> Result<(), String> {
        let Some(life) = &mut self.ends[qp.index()].life else { return Ok(()) };
        let (token, address) = parts(theirs)?;
        life.know(address).map_err(|errno| format!("the peer's address is refused: {errno}"))?;
        life.their_token = token;
        Ok(())
    }

    fn ready(&mut self, qp: QpId, _: &End, _: &End) -> Result<(), String> {
        let end = &mut self.ends[qp.index()];
        if let Some(life) = &mut end.life {
            // Send the first frame. Until this frame arrives, the peer does not know that the provider has connected
            // the two endpoints.
            life.say(FrameKind::Bell);
        }
        end.advance(&mut self.shared);
        Ok(())
    }

    /// Drives the provider.
    fn drive(&mut self) {
        self.drive_into(&mut []);
    }

    fn fail(&mut self, qp: QpId, status: Status) {
        let end = &mut self.ends[qp.index()];
        if end.alive {
            end.fail(status, &mut self.shared);
        }
    }

    fn next_broken(&mut self) -> Option<QpId> {
        self.shared.broken.pop_front()
    }

    fn withdrawn(&mut self, qp: QpId) {
        self.shared.fenced.close(qp);
    }

    fn granted(&mut self, peer: ProcessId, key: u64) {
        if self.shared.fenced.remove(peer, key) {
            self.ends.iter_mut().filter(|end| end.peer == peer).for_each(|end| end.refuse(key));
        }
    }
}
