//! Registration of memory with a domain.

use std::fmt;
use std::ptr;
use std::sync::Arc;

use stentor_fabric::Access;

use crate::PageMemory;
use crate::domain::{Domain, Fid, MakeError};
use crate::endpoint::Endpoint;
use crate::errno::Errno;
use crate::sys::{self, bit};

/// Memory that is registered with a domain.
pub struct Registration {
    // Fields are dropped in this order; the memory comes last.
    raw: Option<Fid<sys::fid_mr>>,
    _endpoint: Option<Arc<Endpoint>>,
    domain: Arc<Domain>,
    memory: Arc<PageMemory>,
    key: u64,
    descriptor: *mut std::ffi::c_void,
}

// SAFETY: the descriptor is an opaque value that is only passed back to the provider, which was requested with
// FI_THREAD_SAFE.
unsafe impl Send for Registration {}
// SAFETY: as above.
unsafe impl Sync for Registration {}

impl fmt::Debug for Registration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Registration").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl Registration {
    /// Registers memory for operations of this process and, if `peers` is set, for operations of peers that know the
    /// key.
    ///
    /// `wish` is the key to use. It is ignored if the provider chooses keys (`FI_MR_PROV_KEY`). Otherwise it must not
    /// be in use already. `endpoint` is the endpoint through which peers access the memory; only providers with
    /// `FI_MR_ENDPOINT` need it.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn new(
        domain: &Arc<Domain>,
        memory: &Arc<PageMemory>,
        peers: Option<Access>,
        wish: u64,
        endpoint: Option<&Arc<Endpoint>>,
    ) -> Result<Registration, MakeError> {
        let what = || format!("a registration of {} bytes", memory.bytes());
        let failed = |errno| MakeError::new(domain.info(), what(), errno);
        let modes = domain.info().memory_modes();
        let mut raw = ptr::null_mut();
        // SAFETY: a live libfabric object has a valid function table.
        let register = unsafe { (*(*domain.raw()).mr).reg }.ok_or(Errno::NOT_SUPPORTED).map_err(failed)?;
        // SAFETY: the memory is valid until the registration is closed, and it is accessed only as atomic words.
        let returned = unsafe {
            let fid = ptr::from_mut(&mut (*domain.raw()).fid);
            let (start, bytes) = (memory.at(0).as_ptr().cast(), memory.bytes() as usize);
            register(fid, start, bytes, access(peers), 0, wish, 0, &raw mut raw, ptr::null_mut())
        };
        // SAFETY: `fid_mr` begins with a `fid`, and the object was just created.
        let raw = unsafe { Fid::new(returned, raw) }.map_err(failed)?;
        let endpoint = endpoint.filter(|_| modes.endpoint);
        if modes.endpoint {
            let endpoint = endpoint.ok_or_else(|| failed(Errno::INVALID))?;
            // SAFETY: the registration keeps the endpoint open.
            unsafe { raw.bind(endpoint.fid(), 0) }.map_err(failed)?;
            // SAFETY: this command has no argument.
            unsafe { raw.control(sys::FI_ENABLE as i32, ptr::null_mut()) }.map_err(failed)?;
        }
        // SAFETY: the registration was just created and is enabled, so its key and descriptor are set and do not
        // change.
        let (key, descriptor) = unsafe { ((*raw.raw()).key, (*raw.raw()).mem_desc) };
        if key == u64::MAX {
            return Err(failed(Errno::NOT_SUPPORTED));
        }
        let (domain, memory, _endpoint) = (Arc::clone(domain), Arc::clone(memory), endpoint.cloned());
        Ok(Registration { raw: Some(raw), _endpoint, domain, memory, key, descriptor })
    }

    /// Returns the memory.
    #[inline]
    #[must_use]
    pub fn memory(&self) -> &Arc<PageMemory> {
        &self.memory
    }

    /// Returns the key that peers need to access the memory.
    #[must_use]
    pub fn key(&self) -> u64 {
        self.key
    }

    /// Returns the address by which peers address the start of the memory: its virtual address with `FI_MR_VIRT_ADDR`,
    /// otherwise 0.
    #[must_use]
    pub fn base(&self) -> u64 {
        if self.domain.info().memory_modes().virtual_addresses { self.memory.at(0).addr().get() as u64 } else { 0 }
    }

    /// Returns the descriptor that operations of this process pass together with addresses in this memory.
    #[inline]
    #[must_use]
    pub fn descriptor(&self) -> *mut std::ffi::c_void {
        self.descriptor
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        if let Some(raw) = self.raw.take()
            && raw.close().is_err()
        {
            // The registration could not be closed. The provider may still write to the memory, so it must never be
            // reused.
            std::mem::forget(Arc::clone(&self.memory));
        }
    }
}

fn access(peers: Option<Access>) -> u64 {
    let own = bit::SEND | bit::RECV | bit::READ | bit::WRITE;
    own | match peers {
        None => 0,
        Some(Access::Read) => bit::REMOTE_READ,
        Some(Access::Write | Access::Atomic) => bit::REMOTE_READ | bit::REMOTE_WRITE,
    }
}
