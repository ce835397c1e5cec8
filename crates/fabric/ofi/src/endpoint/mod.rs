//! Endpoints for reliable datagrams, and the peers that they know.

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

/// The longest address of an endpoint, bytes: `shm` has names, the others far less.
pub const MAX_ADDRESS: usize = 256;

/// A peer, as one endpoint names it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PeerAddress(pub(crate) sys::fi_addr_t);

/// An endpoint with its address vector and its completion queue.
pub struct Endpoint {
    // Dropped in this order: what others are bound to last.
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
        // Held while closing: nobody comes to know it meanwhile.
        let mut neighbours = quirks.close_harms_neighbours.then(neighbours);
        let is_known = neighbours.as_mut().and_then(|them| them.remove(name(&address))).unwrap_or(false);
        if quirks.close_hangs || is_known {
            // Nobody reads its queue any more, so nothing of it moves. What it stands on must stay.
            std::mem::forget(Arc::clone(&self.domain));
            remove_segment(&address);
            return;
        }
        // SAFETY: nobody uses the fields any more; the endpoint is closed before what it is bound to.
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
    /// Makes and enables one, with a completion queue for so many entries. Every operation that succeeds has an entry there.
    /// When it is dropped, what is outstanding ends: nothing of it touches memory any more.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn new(domain: &Arc<Domain>, entries: usize, waits: bool) -> Result<Endpoint, MakeError> {
        let failed = |what: &'static str| move |errno| MakeError::new(domain.info(), what, errno);
        let _making = Making::begin(domain.info())?;
        let queue = CompletionQueue::new(domain, entries, waits)?;
        let addresses = open_addresses(domain).map_err(failed("address vector"))?;
        let mut raw = ptr::null_mut();
        // SAFETY: objects have tables of functions as long as they live.
        let open = unsafe { (*(*domain.raw()).ops).endpoint };
        let open = open.ok_or(Errno::NOT_SUPPORTED).map_err(failed("endpoint"))?;
        // SAFETY: the domain lives while the `Arc` does, which the endpoint keeps; so does the description.
        let returned = unsafe { open(domain.raw(), domain.info().raw(), &raw mut raw, ptr::null_mut()) };
        // SAFETY: `fid_ep` begins with a `fid`, and was just made.
        let raw: Fid<sys::fid_ep> = unsafe { Fid::new(returned, raw) }.map_err(failed("endpoint"))?;
        // SAFETY: queue and addresses are closed after the endpoint, as the order of fields says.
        unsafe { raw.bind(queue.fid(), bit::SEND | bit::RECV) }.map_err(failed("binding to a completion queue"))?;
        // SAFETY: the same.
        unsafe { raw.bind(&addresses, 0) }.map_err(failed("binding to an address vector"))?;
        let counter = Counter::new(domain).ok().filter(|_| domain.info().counts_writes()).filter(|counter| {
            // SAFETY: the counter is closed after the endpoint. A provider that cannot count goes without.
            unsafe { raw.bind(counter.fid(), bit::REMOTE_WRITE) }.is_ok()
        });
        // SAFETY: this command takes nothing.
        unsafe { raw.control(sys::FI_ENABLE as i32, ptr::null_mut()) }.map_err(failed("enabled endpoint"))?;
        // SAFETY: the endpoint lives, is enabled, and its tables do not change any more.
        let operations = unsafe { Operations::of(raw.raw()) }.map_err(failed("operations"))?;
        let (raw, addresses, queue) = (ManuallyDrop::new(raw), ManuallyDrop::new(addresses), ManuallyDrop::new(queue));
        let counter = ManuallyDrop::new(counter);
        let endpoint = Endpoint { raw, addresses, queue, counter, operations, domain: Arc::clone(domain) };
        if Quirks::of(domain.info()).close_harms_neighbours {
            let address = endpoint.address().map_err(failed("address"))?;
            neighbours().insert(name(&address).to_vec(), false);
        }
        Ok(endpoint)
    }

    /// The domain.
    #[must_use]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Where its completions come.
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

    /// How many writes of peers have landed in this process's memory by way of this endpoint; `None` where the provider does
    /// not count them.
    #[inline]
    #[must_use]
    pub fn writes_landed(&self) -> Option<u64> {
        self.counter.as_ref().map(Counter::value)
    }

    /// Its address, for its peers' [`know`](Self::know); bytes that mean something to the same provider only.
    ///
    /// # Errors
    /// What the provider says.
    pub fn address(&self) -> Result<Vec<u8>, Errno> {
        let mut address = vec![0; MAX_ADDRESS];
        let mut length = address.len();
        // SAFETY: objects have tables of functions as long as they live.
        let name = unsafe { (*(*self.raw.raw()).cm).getname }.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: there is room for as many bytes as are offered.
        Errno::check(unsafe { name(self.raw.fid(), address.as_mut_ptr().cast(), &raw mut length) })?;
        address.truncate(length);
        Ok(address)
    }

    /// Makes a peer known. Bytes that come from others are looked at before: see [`is_address`].
    ///
    /// # Errors
    /// What the provider says; [`Errno::INVALID`] for bytes that are no address of this provider.
    pub fn know(&self, address: &[u8]) -> Result<PeerAddress, Errno> {
        let own = self.address()?;
        if !is_address(address, &own, self.domain.info().has_ip()) {
            return Err(Errno::INVALID);
        }
        // Held until the provider has looked for the other end.
        let mut neighbours = Quirks::of(self.domain.info()).close_harms_neighbours.then(neighbours);
        if let Some(them) = neighbours.as_mut().filter(|them| them.contains_key(name(address))) {
            them.extend([name(address), name(&own)].map(|name| (name.to_vec(), true)));
        }
        let mut padded = vec![0; MAX_ADDRESS];
        padded[..address.len()].copy_from_slice(address);
        let mut peer = u64::MAX;
        // SAFETY: objects have tables of functions as long as they live.
        let insert = unsafe { (*(*self.addresses.raw()).ops).insert }.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: one address, with zeros behind it, so a name ends; a place for one number.
        let count =
            unsafe { insert(self.addresses.raw(), padded.as_ptr().cast(), 1, &raw mut peer, 0, ptr::null_mut()) };
        match count {
            1 if peer != u64::MAX => Ok(PeerAddress(peer)),
            0 | 1 => Err(Errno::INVALID),
            error => Err(Errno(error.saturating_abs())),
        }
    }

    /// Asks an operation back. It completes all the same.
    ///
    /// # Errors
    /// What the provider says: [`Errno::NOT_SUPPORTED`], or that there is no such operation.
    ///
    /// # Safety
    /// The context is one that an operation was posted with; its [`Scratch`](crate::Scratch) is still there.
    pub unsafe fn cancel(&self, context: *mut c_void) -> Result<(), Errno> {
        // SAFETY: objects have tables of functions as long as they live.
        let cancel = unsafe { (*(*self.raw.raw()).ops).cancel }.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: the caller's promise.
        Errno::posted(unsafe { cancel(self.raw.fid(), context) })
    }
}

/// Whether bytes from elsewhere can be an address of an endpoint like the one whose address is `own`: providers read as many
/// bytes as their addresses have, and believe what is in them.
#[must_use]
pub fn is_address(address: &[u8], own: &[u8], internet: bool) -> bool {
    if address.is_empty() || address.len() >= MAX_ADDRESS {
        return false;
    }
    if internet {
        return address.len() == own.len() && address[..2] == own[..2];
    }
    // A name, whose length is its own, or numbers.
    let scheme = |name: &[u8]| name.windows(3).position(|window| window == b"://").map(|at| name[..at].to_vec());
    match scheme(own) {
        Some(of) => scheme(address) == Some(of) && address.iter().filter(|byte| **byte == 0).count() <= 1,
        None => address.len() == own.len(),
    }
}

/// Removes the name of an endpoint's shared memory, for those that are not closed, or whose process was killed. Whoever has
/// it open keeps it; nobody finds it any more. Addresses without a name have no such memory.
pub(crate) fn remove_segment(address: &[u8]) {
    let name = address.strip_prefix(b"fi_shm://").and_then(|name| CStr::from_bytes_until_nul(name).ok());
    // Process, user, number: no other name is touched, whoever says so.
    let is_segment = |name: &&CStr| name.to_bytes().iter().all(|byte| byte.is_ascii_digit() || *byte == b':');
    if let Some(name) = name.filter(is_segment) {
        // SAFETY: a string.
        unsafe { libc::shm_unlink(name.as_ptr()) };
    }
}

/// This process's endpoints by name, and whether they know, or are known to, another of them. A provider with this quirk hands
/// out one endpoint's memory to its neighbours, and takes no notice of them when that one closes; so those are not closed.
fn neighbours() -> MutexGuard<'static, BTreeMap<Vec<u8>, bool>> {
    static NEIGHBOURS: Mutex<BTreeMap<Vec<u8>, bool>> = Mutex::new(BTreeMap::new());
    NEIGHBOURS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// An address that is a name, without what may stand behind it.
fn name(address: &[u8]) -> &[u8] {
    address.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn open_addresses(domain: &Domain) -> Result<Fid<sys::fid_av>, Errno> {
    let mut attributes = sys::fi_av_attr { count: 1, ..sys::fi_av_attr::default() };
    let mut raw = ptr::null_mut();
    // SAFETY: objects have tables of functions as long as they live.
    let open = unsafe { (*(*domain.raw()).ops).av_open }.ok_or(Errno::NOT_SUPPORTED)?;
    // SAFETY: the domain lives; whoever asks keeps it longer than the addresses.
    let returned = unsafe { open(domain.raw(), &raw mut attributes, &raw mut raw, ptr::null_mut()) };
    // SAFETY: `fid_av` begins with a `fid`, and was just made.
    unsafe { Fid::new(returned, raw) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_are_no_address_of_this_provider_are_refused() {
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
