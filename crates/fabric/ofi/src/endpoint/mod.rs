//! Endpoints for reliable datagrams, and the addresses of their peers.
//!
//! An [`Endpoint`] owns its address vector, completion queue and counter of landed writes. The submodule `operations`
//! holds the functions that post operations.

mod operations;

use std::collections::BTreeMap;
use std::ffi::{CStr, c_void};
use std::fmt;
use std::mem::ManuallyDrop;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::counter::Counter;
use crate::cq::CompletionQueue;
use crate::domain::{Domain, Fid, MakeError};
use crate::errno::Errno;
use crate::quirks::Quirks;
use crate::segments::Making;
use crate::sys::{self, bit};
use operations::Operations;
pub use operations::{Completes, Local, Remote, Scratch};

/// Maximum length of an endpoint's address, in bytes. `shm` uses names; all other addresses are far shorter.
pub const MAX_ADDRESS: usize = 256;

/// A peer's entry in the address vector of one endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerAddress(pub(crate) sys::fi_addr_t);

/// An endpoint with its address vector and its completion queue.
pub struct Endpoint {
    // `drop` closes the fields in this order, because the endpoint is bound to the objects after it.
    raw: ManuallyDrop<Fid<sys::fid_ep>>,
    addresses: ManuallyDrop<Fid<sys::fid_av>>,
    queue: ManuallyDrop<CompletionQueue>,
    counter: ManuallyDrop<Option<Counter>>,
    operations: Operations,
    domain: Arc<Domain>,
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        let quirks = Quirks::of(self.domain.info());
        let address = self.address().unwrap_or_default();
        // The lock is held until the endpoint is closed, so that no neighbour inserts this endpoint's address
        // meanwhile.
        let mut neighbours = quirks.close_harms_neighbours.then(neighbours);
        let is_known = neighbours.as_mut().and_then(|them| them.remove(name(&address))).unwrap_or(false);
        if quirks.close_hangs || is_known {
            // The endpoint is never closed. Nothing polls its queue any more, so none of its operations makes progress.
            // The domain and the other objects that it depends on must stay open.
            std::mem::forget(Arc::clone(&self.domain));
            remove_segment(&address);
            return;
        }
        // SAFETY: the fields are not used any more, and the endpoint is closed before the objects to which it is bound.
        unsafe {
            ManuallyDrop::drop(&mut self.raw);
            ManuallyDrop::drop(&mut self.addresses);
            ManuallyDrop::drop(&mut self.queue);
            ManuallyDrop::drop(&mut self.counter);
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("domain", &self.domain).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Creates and enables an endpoint with a completion queue of `entries` entries, in which every successful
    /// operation except an injected one has a completion. After the endpoint is dropped, none of its operations
    /// accesses memory.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn new(domain: &Arc<Domain>, entries: usize, waits: bool) -> Result<Endpoint, MakeError> {
        let failed = |what: &'static str| move |errno| MakeError::new(domain.info(), what, errno);
        let _making = Making::begin(domain.info())?;
        let queue = CompletionQueue::new(domain, entries, waits)?;
        let addresses = open_addresses(domain).map_err(failed("an address vector"))?;
        let mut counter = Counter::new(domain).ok().filter(|_| domain.info().counts_writes());
        let mut raw = ptr::null_mut();
        // SAFETY: a live libfabric object has a valid function table.
        let open = unsafe { (*(*domain.raw()).ops).endpoint };
        let open = open.ok_or(Errno::NOT_SUPPORTED).map_err(failed("an endpoint"))?;
        // SAFETY: the domain lives as long as the `Arc`, which the endpoint keeps, and so does the description.
        let returned = unsafe { open(domain.raw(), domain.info().raw(), &raw mut raw, ptr::null_mut()) };
        // SAFETY: `fid_ep` begins with a `fid`, and the object was just created.
        let raw: Fid<sys::fid_ep> = unsafe { Fid::new(returned, raw) }.map_err(failed("an endpoint"))?;
        // SAFETY: queue, address vector and counter are closed after the endpoint: by `drop`, and after an error below
        // because they were declared before it.
        unsafe { raw.bind(queue.fid(), bit::SEND | bit::RECV) }
            .map_err(failed("an endpoint with a completion queue"))?;
        // SAFETY: as above.
        unsafe { raw.bind(&addresses, 0) }.map_err(failed("an endpoint with an address vector"))?;
        // SAFETY: as above.
        let refused = |counter: &mut Counter| unsafe { raw.bind(counter.fid(), bit::REMOTE_WRITE) }.is_err();
        // If the provider cannot count writes, the endpoint has no counter.
        drop(counter.take_if(refused));
        // SAFETY: this command has no argument.
        unsafe { raw.control(sys::FI_ENABLE as i32, ptr::null_mut()) }.map_err(failed("an enabled endpoint"))?;
        // SAFETY: the endpoint is live and enabled, and its tables do not change any more.
        let operations = unsafe { Operations::of(raw.raw()) }.map_err(failed("an endpoint with all operations"))?;
        let (raw, addresses, queue) = (ManuallyDrop::new(raw), ManuallyDrop::new(addresses), ManuallyDrop::new(queue));
        let counter = ManuallyDrop::new(counter);
        let endpoint = Endpoint { raw, addresses, queue, counter, operations, domain: Arc::clone(domain) };
        if Quirks::of(domain.info()).close_harms_neighbours {
            let address = endpoint.address().map_err(failed("an endpoint with an address"))?;
            neighbours().insert(name(&address).to_vec(), false);
        }
        Ok(endpoint)
    }

    /// Returns the endpoint's domain.
    #[must_use]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Returns the queue of this endpoint's completions.
    #[inline]
    #[must_use]
    pub fn queue(&self) -> &CompletionQueue {
        &self.queue
    }

    #[inline]
    pub(crate) fn operations(&self) -> &Operations {
        &self.operations
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut sys::fid_ep {
        self.raw.raw()
    }

    pub(crate) fn fid(&self) -> &Fid<sys::fid_ep> {
        &self.raw
    }

    /// Returns the number of peers' writes that have landed in this process's memory through this endpoint, or `None`
    /// if the provider does not count such writes.
    #[inline]
    #[must_use]
    pub fn writes_landed(&self) -> Option<u64> {
        self.counter.as_ref().map(Counter::value)
    }

    /// Returns this endpoint's address, which peers pass to [`know`](Self::know). The bytes are meaningful only to the
    /// same provider.
    ///
    /// # Errors
    /// Returns the provider's error.
    pub fn address(&self) -> Result<Vec<u8>, Errno> {
        let mut address = vec![0; MAX_ADDRESS];
        let mut length = address.len();
        // SAFETY: a live libfabric object has a valid function table.
        let name = unsafe { (*(*self.raw.raw()).cm).getname }.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: the buffer has room for `length` bytes.
        Errno::check(unsafe { name(self.raw.fid(), address.as_mut_ptr().cast(), &raw mut length) })?;
        address.truncate(length);
        Ok(address)
    }

    /// Inserts a peer's address into the address vector. The bytes come from another process, so [`is_address`] checks
    /// them first.
    ///
    /// # Errors
    /// Returns the provider's error, or [`Errno::INVALID`] if the bytes are not an address of this provider.
    pub fn know(&self, address: &[u8]) -> Result<PeerAddress, Errno> {
        let own = self.address()?;
        if !is_address(address, &own, self.domain.info().has_ip()) {
            return Err(Errno::INVALID);
        }
        // The lock is held until the provider has looked up the other end.
        let mut neighbours = Quirks::of(self.domain.info()).close_harms_neighbours.then(neighbours);
        if let Some(them) = neighbours.as_mut().filter(|them| them.contains_key(name(address))) {
            them.extend([name(address), name(&own)].map(|name| (name.to_vec(), true)));
        }
        let mut padded = vec![0; MAX_ADDRESS];
        padded[..address.len()].copy_from_slice(address);
        let mut peer = u64::MAX;
        // SAFETY: a live libfabric object has a valid function table.
        let insert = unsafe { (*(*self.addresses.raw()).ops).insert }.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: `padded` is one address, padded with zeros so that a name is terminated, and `peer` has room for one
        // number.
        let count =
            unsafe { insert(self.addresses.raw(), padded.as_ptr().cast(), 1, &raw mut peer, 0, ptr::null_mut()) };
        match count {
            1 if peer != u64::MAX => Ok(PeerAddress(peer)),
            0 | 1 => Err(Errno::INVALID),
            error => Err(Errno(error.saturating_abs())),
        }
    }

    /// Cancels an operation. The operation still has a completion.
    ///
    /// # Errors
    /// Returns the provider's error: [`Errno::NOT_SUPPORTED`], or that no such operation is outstanding.
    ///
    /// # Safety
    /// An operation must have been posted with this context, and its [`Scratch`](crate::Scratch) must still exist.
    pub unsafe fn cancel(&self, context: *mut c_void) -> Result<(), Errno> {
        // SAFETY: a live libfabric object has a valid function table.
        let cancel = unsafe { (*(*self.raw.raw()).ops).cancel }.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: guaranteed by the caller.
        Errno::posted(unsafe { cancel(self.raw.fid(), context) })
    }
}

/// Returns whether bytes from another process can be an address of an endpoint like the one with the address `own`.
/// Providers read as many bytes as their addresses have and trust the contents, so the bytes are checked here.
#[must_use]
pub fn is_address(address: &[u8], own: &[u8], internet: bool) -> bool {
    if address.is_empty() || address.len() >= MAX_ADDRESS {
        return false;
    }
    if internet {
        return address.len() == own.len() && address[..2] == own[..2];
    }
    // The address is either a name of variable length or a number of fixed length.
    let scheme = |name: &[u8]| name.windows(3).position(|window| window == b"://").map(|at| name[..at].to_vec());
    match scheme(own) {
        Some(of) => scheme(address) == Some(of) && address.iter().filter(|byte| **byte == 0).count() <= 1,
        None => address.len() == own.len(),
    }
}

/// Removes the name of an endpoint's shared memory, for endpoints that are not closed or whose process was killed.
/// Processes that have the memory open keep it, but no other process can open it any more. Does nothing for an address
/// that is not the name of a segment.
pub(crate) fn remove_segment(address: &[u8]) {
    let name = address.strip_prefix(b"fi_shm://").and_then(|name| CStr::from_bytes_until_nul(name).ok());
    // A valid name consists of digits and colons: process, user and number. Peers send these names, so no other file is
    // removed.
    let is_segment = |name: &&CStr| name.to_bytes().iter().all(|byte| byte.is_ascii_digit() || *byte == b':');
    if let Some(name) = name.filter(is_segment) {
        // SAFETY: the pointer is to a terminated string.
        unsafe { libc::shm_unlink(name.as_ptr()) };
    }
}

/// Returns this process's endpoints by name, each with `true` once its address was exchanged with another of them. A
/// provider with the quirk `close_harms_neighbours` maps one endpoint's memory into its neighbours and does not detach
/// it when that endpoint closes. An endpoint that is marked `true` is therefore never closed.
fn neighbours() -> MutexGuard<'static, BTreeMap<Vec<u8>, bool>> {
    static NEIGHBOURS: Mutex<BTreeMap<Vec<u8>, bool>> = Mutex::new(BTreeMap::new());
    NEIGHBOURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the name in an address, without the bytes after its terminator.
fn name(address: &[u8]) -> &[u8] {
    address.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn open_addresses(domain: &Domain) -> Result<Fid<sys::fid_av>, Errno> {
    let mut attributes = sys::fi_av_attr { count: 1, ..sys::fi_av_attr::default() };
    let mut raw = ptr::null_mut();
    // SAFETY: a live libfabric object has a valid function table.
    let open = unsafe { (*(*domain.raw()).ops).av_open }.ok_or(Errno::NOT_SUPPORTED)?;
    // SAFETY: the domain is live, and the caller keeps it longer than the address vector.
    let returned = unsafe { open(domain.raw(), &raw mut attributes, &raw mut raw, ptr::null_mut()) };
    // SAFETY: `fid_av` begins with a `fid`, and the object was just created.
    unsafe { Fid::new(returned, raw) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_not_an_address_of_the_provider_are_refused() {
        let own = [2, 0, 0x12, 0x34, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0];
        assert!(is_address(&own, &own, true));
        assert!(!is_address(&own[..15], &own, true), "short");
        assert!(!is_address(&[10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1], &own, true), "another family");
        assert!(!is_address(&[], &own, true) && !is_address(&[7; 300], &own, false));
        let name = b"fi_shm://77:0\0";
        assert!(is_address(b"fi_shm://8:123\0", name, false), "names have their own lengths");
        assert!(!is_address(b"fi_tcp://8:123\0", name, false));
        assert!(!is_address(b"fi_shm://8\0:123\0", name, false), "a name ends once");
        assert!(is_address(&[9; 32], &[1; 32], false) && !is_address(&[9; 31], &[1; 32], false));
    }
}
