//! Tagged messages directly on a provider, without the fabric: the lower bound for the cost of the fabric and of the
//! channels on it.

use std::ffi::c_void;
use std::fmt;
use std::net::IpAddr;
use std::ptr;

use crate::PageMemory;
use crate::choose::{Wish, choose};
use crate::cq::{Failure, Polled};
use crate::domain::{Domain, MakeError};
use crate::endpoint::{Endpoint, PeerAddress};
use crate::endpoint::{Local, Scratch};
use crate::errno::Errno;
use crate::fabric::StartError;
use crate::info::{Info, Needs};
use crate::load::Libfabric;
use crate::memory::Registration;

/// Tag of all messages.
const TAG: u64 = 7;

/// One end of a bare connection: an endpoint, and places in registered memory. Messages are sent from places and
/// received into places.
pub struct Bare {
    // Fields are dropped in this order: the endpoint is closed before the memory that it uses.
    endpoint: Endpoint,
    peer: Option<PeerAddress>,
    memory: Registration,
    scratch: Box<[Scratch]>,
    /// `true` for each place that a posted operation is using.
    taken: Box<[bool]>,
    place_bytes: usize,
    received: u64,
    sent: u64,
}

impl fmt::Debug for Bare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bare").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl Bare {
    /// Opens an end at an address of this host, with `places` places of `place_bytes` bytes. `turn` numbers the
    /// processes of the host (see [`Wish::turn`]).
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn open(
        provider: &str,
        (address, turn): (IpAddr, usize),
        places: usize,
        place_bytes: usize,
    ) -> Result<Bare, StartError> {
        let library = Libfabric::load()?;
        let wish =
            Wish { provider: Some(provider.into()), address: Some(address), device: None, turn, same_host: true };
        let info = choose(library, &wish, Needs { tagged: true, ..Needs::default() })?;
        let bytes = places * place_bytes;
        let failed = |errno| MakeError::new(&info, format!("{bytes} bytes of memory"), errno);
        let memory = PageMemory::zeroed(bytes).ok_or(Errno::NO_MEMORY).map_err(failed)?;
        let domain = Domain::open(library, info)?;
        let endpoint = Endpoint::new(&domain, 2 * places + 64, false)?;
        Ok(Bare {
            peer: None,
            memory: Registration::new(&domain, &memory, None, 1, None)?,
            scratch: (0..places).map(|_| Scratch::default()).collect(),
            taken: vec![false; places].into(),
            place_bytes,
            received: 0,
            sent: 0,
            endpoint,
        })
    }

    /// Returns the provider and device that are in use.
    #[must_use]
    pub fn provider(&self) -> &Info {
        self.endpoint.domain().info()
    }

    /// Returns this end's address, which the other end passes to [`know`](Self::know).
    ///
    /// # Errors
    /// Returns the provider's error.
    pub fn address(&self) -> Result<Vec<u8>, Errno> {
        self.endpoint.address()
    }

    /// Stores the other end's address, to which later messages are sent.
    ///
    /// # Errors
    /// Returns the provider's error.
    pub fn know(&mut self, address: &[u8]) -> Result<(), Errno> {
        self.peer = Some(self.endpoint.know(address)?);
        Ok(())
    }

    /// Returns the number of messages received and the number sent since this end was opened.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.received, self.sent)
    }

    /// Sends the first `bytes` bytes of a place. Returns `Ok(false)` if the queue is full or the place is in use.
    ///
    /// # Errors
    /// Returns the provider's error.
    ///
    /// # Panics
    /// Panics if the place does not exist or is shorter than `bytes`, or if the other end's address is unknown.
    #[inline]
    pub fn send(&mut self, place: usize, bytes: usize) -> Result<bool, Errno> {
        let peer = self.peer.expect("the other end's address is known");
        // SAFETY: memory and scratch belong to this end, which closes its endpoint before it frees them. A place in use
        // is not used again before its completion.
        self.post(place, bytes, |end, local, context| unsafe { end.send_tagged(local, peer, TAG, context) })
    }

    /// Posts a receive of at most `bytes` bytes into a place. Returns `Ok(false)` if the queue is full or the place is
    /// in use.
    ///
    /// # Errors
    /// Returns the provider's error.
    ///
    /// # Panics
    /// Panics if the place does not exist or is shorter than `bytes`.
    #[inline]
    pub fn receive(&mut self, place: usize, bytes: usize) -> Result<bool, Errno> {
        // SAFETY: the argument of `send` holds here too.
        self.post(place, bytes, |end, local, context| unsafe { end.receive_tagged(local, TAG, 0, context) })
    }

    #[inline]
    fn post(
        &mut self,
        place: usize,
        bytes: usize,
        post: impl FnOnce(&Endpoint, Local, *mut c_void) -> Result<(), Errno>,
    ) -> Result<bool, Errno> {
        assert!(bytes <= self.place_bytes, "a message of {bytes} bytes in a place of {} bytes", self.place_bytes);
        if self.taken[place] {
            return Ok(false);
        }
        let start = self.memory.memory().at((place * self.place_bytes) as u64);
        let local = Local { start, bytes, descriptor: self.memory.descriptor() };
        let context = ptr::from_mut(&mut self.scratch[place]).cast();
        match post(&self.endpoint, local, context) {
            Ok(()) => self.taken[place] = true,
            Err(Errno::AGAIN) => return Ok(false),
            Err(errno) => return Err(errno),
        }
        Ok(true)
    }

    /// Drives the provider and polls for completions. Returns `true` if there were any.
    ///
    /// # Errors
    /// Returns the error of an operation that failed.
    #[inline]
    pub fn progress(&mut self) -> Result<bool, Failure> {
        let Bare { endpoint, scratch, taken, received, sent, .. } = self;
        let polled = endpoint.queue().poll(|entry| {
            let offset = entry.context.addr().wrapping_sub(scratch.as_ptr().addr());
            if let Some(taken) = taken.get_mut(offset / size_of::<Scratch>()) {
                *taken = false;
            }
            *if entry.received { &mut *received } else { &mut *sent } += 1;
        });
        match polled {
            Polled::Entries(_) => Ok(true),
            Polled::Failed(failure) => Err(failure),
            Polled::Nothing => Ok(false),
        }
    }
}
