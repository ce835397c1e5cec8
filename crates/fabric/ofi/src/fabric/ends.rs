//! The ends of all connections, as the control plane drives them.

use std::collections::{HashSet, VecDeque};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{Timespec, epoll};
use rustix::io::Errno as SystemError;
use stentor_fabric::{Completion, QpId, Status};
use stentor_fabric_net::{End, Transport};

use super::OfiDevice;
use super::frame::FrameKind;
use super::fresh_key;
use super::life::{Life, Sizes};
use crate::PageMemory;
use crate::endpoint::Endpoint;
use crate::quirks::Quirks;

/// The epoll instance's data for completion queues.
pub(super) const QUEUE: u64 = 1;

/// What all queue pairs share.
#[derive(Debug)]
pub(super) struct Shared {
    /// Completions to be polled, and for requests the life that they are of and how many of its requests are done with it.
    pub(super) ready: VecDeque<(Completion, Option<(u32, u64)>)>,
    pub(super) broken: VecDeque<QpId>,
    /// Keys of peers' regions that are not used any more.
    pub(super) fenced: HashSet<u64>,
    /// Peers that have said that they leave a region alone, by queue pair, life and key.
    pub(super) answered: Vec<(QpId, u32, u64)>,
    /// By region.
    pub(super) memories: Vec<Arc<PageMemory>>,
    /// Whether something landed since [`arm`](stentor_fabric::Fabric::arm).
    pub(super) rung: bool,
    pub(super) armed: bool,
    /// Whether the provider promises order between writes.
    pub(super) ordered: bool,
    /// Whether completion queues have descriptors, where the provider has such a thing.
    pub(super) waits: bool,
    /// Operations of one endpoint that the provider may have at a time.
    pub(super) depth: usize,
    /// The most bytes of writes that become one.
    pub(super) most_merged: usize,
    pub(super) rnr_timeout: Duration,
    /// Whether immediates have 64 bits.
    pub(super) wide: bool,
    pub(super) epoll: Arc<OwnedFd>,
}

impl Shared {
    /// An immediate as the provider carries it: with the length, if there is room. Not all providers tell that.
    pub(super) fn immediate(&self, imm: u32, bytes: usize) -> u64 {
        if self.wide { u64::from(imm) | (bytes as u64) << 32 } else { imm.into() }
    }

    pub(super) fn told(&self, data: u64, bytes: usize) -> (u32, u32) {
        (data as u32, if self.wide { (data >> 32) as u32 } else { bytes as u32 })
    }

    /// An endpoint is about to be closed.
    pub(super) fn forget(&self, endpoint: &Endpoint) {
        if let Some(descriptor) = endpoint.queue().descriptor() {
            // SAFETY: the endpoint is open still, and its descriptor with it.
            let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
            let _ = epoll::delete(&self.epoll, descriptor);
        }
    }

    fn watch(&self, endpoint: &Endpoint) -> Result<(), SystemError> {
        let Some(descriptor) = endpoint.queue().descriptor() else { return Ok(()) };
        // SAFETY: the endpoint is open, and `forget` comes before it is closed.
        let descriptor = unsafe { BorrowedFd::borrow_raw(descriptor) };
        epoll::add(&self.epoll, descriptor, epoll::EventData::new_u64(QUEUE), epoll::EventFlags::IN)
    }

    /// Sleeps; whether a completion queue has something.
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

/// Why endpoints cannot be made, for a person.
#[derive(Debug, Default)]
pub(super) struct Trouble {
    why: Option<String>,
    /// Whether it was taken since an endpoint was made last: what stays the same is not said again.
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

    /// Takes it.
    pub(super) fn next(&mut self) -> Option<String> {
        let why = self.why.take();
        self.told |= why.is_some();
        why
    }
}

impl OfiDevice {
    /// Whether all endpoints have a descriptor to wait for.
    pub(super) fn has_queue_descriptors(&self) -> bool {
        let mut lives = self.ends.iter().filter_map(|qp| qp.life.as_ref());
        lives.all(|life| life.endpoint().queue().descriptor().is_some())
    }

    /// Whether all descriptors may be waited for.
    pub(super) fn may_wait(&self) -> bool {
        let mut lives = self.ends.iter().filter_map(|qp| qp.life.as_ref());
        lives.all(|life| life.endpoint().queue().may_wait())
    }

    /// Lets the provider work; how many completions there were that go to `out` at once. The others wait to be polled.
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

/// The token in front, then the provider's address.
fn parts(end: &End) -> Result<(u64, &[u8]), String> {
    let End::Opaque(bytes) = end else { return Err("it is none of libfabric".to_owned()) };
    let (token, address) = bytes.split_first_chunk().ok_or("it has no address")?;
    Ok((u64::from_be_bytes(*token), address))
}

impl Transport for OfiDevice {
    fn begin(&mut self, qp: QpId) -> Result<End, String> {
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
        let address = life.endpoint().address().map_err(|errno| format!("it does not tell its address: {errno}"))?;
        self.shared.watch(life.endpoint()).map_err(|error| format!("it cannot be waited for: {error}"))?;
        let mut bytes = life.token.to_be_bytes().to_vec();
        bytes.extend(address);
        if bytes.len() > stentor_fabric_net::MAX_ADDRESS {
            return Err(format!("its address has {} bytes", bytes.len() - 8));
        }
        let seen = life.endpoint().queue().descriptor().is_some() && !Quirks::of(self.domain.info()).silent_writes;
        end.bells = !seen && life.endpoint().writes_landed().is_none();
        end.begin(Some(life));
        Ok(End::Opaque(bytes))
    }

    fn meet(&mut self, qp: QpId, _: &End, theirs: &End) -> Result<(), String> {
        let Some(life) = &mut self.ends[qp.index()].life else { return Ok(()) };
        let (token, address) = parts(theirs)?;
        life.know(address).map_err(|errno| format!("its address is not one: {errno}"))?;
        life.their_token = token;
        Ok(())
    }

    fn ready(&mut self, qp: QpId, _: &End, _: &End) -> Result<(), String> {
        let end = &mut self.ends[qp.index()];
        if let Some(life) = &mut end.life {
            // The first word; until then the peer does not know that the provider has connected the two.
            life.say(FrameKind::Bell);
        }
        end.advance(&mut self.shared);
        Ok(())
    }

    /// Lets the provider work.
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
}
