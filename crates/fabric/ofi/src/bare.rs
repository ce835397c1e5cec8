//! Tagged messages by a provider itself and nothing else: the floor under what the fabric and channels on it cost.

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

/// All messages have it.
const TAG: u64 = 7;

/// One end: an endpoint, and places in registered memory that messages are sent from and received into.
pub struct Bare {
    // Dropped in this order: the endpoint before what it uses.
    endpoint: Endpoint,
    peer: Option<PeerAddress>,
    memory: Registration,
    scratch: Box<[Scratch]>,
    /// Places that the provider has.
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
    /// An end at an address of this host, for its process of that turn ([`Wish::turn`]), with so many places of so many bytes.
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
        let failed = |errno| MakeError::new(&info, format!("{bytes} bytes"), errno);
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

    /// What is used.
    #[must_use]
    pub fn provider(&self) -> &Info {
        self.endpoint.domain().info()
    }

    /// This end's address, for the other one.
    ///
    /// # Errors
    /// What the provider says.
    pub fn address(&self) -> Result<Vec<u8>, Errno> {
        self.endpoint.address()
    }

    /// Takes up the other end's address.
    ///
    /// # Errors
    /// What the provider says.
    pub fn know(&mut self, address: &[u8]) -> Result<(), Errno> {
        self.peer = Some(self.endpoint.know(address)?);
        Ok(())
    }

    /// Messages that came, and that went, since the beginning.
    #[must_use]
    pub fn counts(&self) -> (u64, u64) {
        (self.received, self.sent)
    }

    /// Sends so many bytes of a place. `Ok(false)`: there is no room now, or the place is in use.
    ///
    /// # Errors
    /// What the provider says.
    ///
    /// # Panics
    /// If there is no such place, it is shorter, or the other end is not known.
    #[inline]
    pub fn send(&mut self, place: usize, bytes: usize) -> Result<bool, Errno> {
        let peer = self.peer.expect("the other end is known");
        // SAFETY: memory and scratch belong to this end, which closes its endpoint first; a place that is taken is not used
        // again before its completion.
        self.post(place, bytes, |end, local, context| unsafe { end.send_tagged(local, peer, TAG, context) })
    }

    /// Receives so many bytes at most into a place. `Ok(false)` as with [`send`](Self::send).
    ///
    /// # Errors
    /// What the provider says.
    ///
    /// # Panics
    /// If there is no such place, or it is shorter.
    #[inline]
    pub fn receive(&mut self, place: usize, bytes: usize) -> Result<bool, Errno> {
        // SAFETY: as above.
        self.post(place, bytes, |end, local, context| unsafe { end.receive_tagged(local, TAG, 0, context) })
    }

    #[inline]
    fn post(
        &mut self,
        place: usize,
        bytes: usize,
        post: impl FnOnce(&Endpoint, Local, *mut c_void) -> Result<(), Errno>,
    ) -> Result<bool, Errno> {
        assert!(bytes <= self.place_bytes, "{bytes} bytes in a place of {}", self.place_bytes);
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

    /// Lets the provider work, and takes completions. Whether there were any.
    ///
    /// # Errors
    /// An operation that failed.
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
