//! Protection domains and their memory regions.

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::Arc;

use stentor_fabric::Access;
use stentor_fabric::memory::{WORD, Word};

use crate::context::{Context, Handle};
use crate::{Errno, PageMemory, sys};

/// Reason why an object could not be created.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{device} cannot create {what}: {errno}; {remedy}")]
pub struct MakeError {
    /// Name of the device.
    pub device: String,
    /// The object that was to be created, with an article and its sizes.
    pub what: String,
    /// Error code.
    pub errno: Errno,
    /// Remedy for the user.
    pub remedy: &'static str,
}

impl MakeError {
    pub(crate) fn new(context: &Context, what: String, errno: Errno) -> Self {
        let remedy = match errno {
            Errno::NO_MEMORY => {
                "raise the limit of locked memory (ulimit -l; LimitMEMLOCK= of a service), or configure less"
            }
            Errno::INVALID => "configure less: `stentor doctor` shows the device's limits",
            // Registration also fails with this error if no memory may be locked at all.
            Errno::NOT_PERMITTED | Errno::ACCESS => {
                "allow this user to use the device, raise the limit of locked memory (ulimit -l; LimitMEMLOCK= of a service), or \
                 raise rdma.max of its control group"
            }
            Errno::NO_DEVICE => "the device was removed: load its driver again, and restart this process",
            _ => "look for the driver's reason in the kernel's log (dmesg)",
        };
        MakeError { device: context.name().to_owned(), what, errno, remedy }
    }
}

/// A protection domain. Queue pairs can access only memory in their own domain.
pub struct Domain {
    context: Arc<Context>,
    raw: Handle<sys::ibv_pd>,
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("context", &self.context).finish_non_exhaustive()
    }
}

impl Domain {
    /// Creates a protection domain.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn new(context: &Arc<Context>) -> Result<Arc<Domain>, MakeError> {
        // SAFETY: the context is open as long as the `Arc`, which the domain keeps.
        let raw = Handle::new(unsafe { context.symbols().ibv_alloc_pd(context.raw()) });
        let raw = raw.map_err(|errno| MakeError::new(context, "a protection domain".into(), errno))?;
        Ok(Arc::new(Domain { context: Arc::clone(context), raw }))
    }

    /// Returns the device.
    #[must_use]
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_pd {
        self.raw.raw()
    }
}

impl Drop for Domain {
    fn drop(&mut self) {
        // SAFETY: every region and queue pair holds an `Arc` of its domain, so none is left, and the domain is
        // deallocated only once.
        unsafe { self.context.symbols().ibv_dealloc_pd(self.raw.raw()) };
    }
}

/// Memory that is registered in a protection domain.
pub struct Region {
    domain: Arc<Domain>,
    raw: Handle<sys::ibv_mr>,
    memory: Arc<PageMemory>,
    local_key: u32,
    remote_key: u32,
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Region")
            .field("bytes", &self.bytes())
            .field("remote_key", &self.remote_key)
            .finish_non_exhaustive()
    }
}

impl Region {
    /// Allocates and registers memory. `peers` is the access of peers that have the region's key; `None` means no
    /// access.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn register(domain: &Arc<Domain>, bytes: usize, peers: Option<Access>) -> Result<Region, MakeError> {
        let errno = if bytes == 0 || !bytes.is_multiple_of(WORD) { Errno::INVALID } else { Errno::NO_MEMORY };
        let failed = || MakeError::new(&domain.context, format!("a memory region of {bytes} bytes"), errno);
        Region::over(domain, &PageMemory::zeroed(bytes).ok_or_else(failed)?, peers)
    }

    /// Registers existing memory, which may also be registered elsewhere.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn over(domain: &Arc<Domain>, memory: &Arc<PageMemory>, peers: Option<Access>) -> Result<Region, MakeError> {
        let bytes = memory.bytes() as usize;
        let flags = (sys::IBV_ACCESS_LOCAL_WRITE | flags(peers)).cast_signed();
        let symbols = domain.context.symbols();
        // SAFETY: the memory is valid until the region is deregistered (see `Drop`), and it is accessed only as atomic
        // words.
        let raw = Handle::new(unsafe { symbols.ibv_reg_mr(domain.raw(), memory.at(0).as_ptr().cast(), bytes, flags) });
        let failed = |errno| MakeError::new(&domain.context, format!("a memory region of {bytes} bytes"), errno);
        let raw = raw.map_err(failed)?;
        // SAFETY: the region was just created, and its keys do not change.
        let (local_key, remote_key) = unsafe { ((*raw.raw()).lkey, (*raw.raw()).rkey) };
        Ok(Region { domain: Arc::clone(domain), raw, memory: Arc::clone(memory), local_key, remote_key })
    }

    /// Deregisters the memory. Afterwards the device refuses the region's keys, and no peer's operation lands in the
    /// memory.
    ///
    /// # Errors
    /// Returns the region and the device's error if the device refuses.
    pub fn deregister(self) -> Result<(), (Region, Errno)> {
        // SAFETY: `self` is consumed if the call succeeds, so the region is deregistered only once.
        let returned = unsafe { self.domain.context.symbols().ibv_dereg_mr(self.raw.raw()) };
        if let Err(errno) = Errno::check(returned) {
            return Err((self, errno));
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is never dropped, so each of the two fields is moved out only once.
        drop(unsafe { (ptr::read(&raw const this.memory), ptr::read(&raw const this.domain)) });
        Ok(())
    }

    /// Returns the memory as words.
    #[must_use]
    pub fn words(&self) -> &[Word] {
        self.memory.words()
    }

    /// Returns the memory, which may outlive the registration.
    pub(crate) fn memory(&self) -> &Arc<PageMemory> {
        &self.memory
    }

    /// Returns the length in bytes.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Returns the start address that peers must use.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Returns the key that peers need to access the region.
    #[must_use]
    pub fn remote_key(&self) -> u32 {
        self.remote_key
    }

    pub(crate) fn local_key(&self) -> u32 {
        self.local_key
    }

    /// Returns whether the `bytes` bytes at `offset` are inside the region.
    pub(crate) fn contains(&self, offset: u64, bytes: u32) -> bool {
        offset.checked_add(u64::from(bytes)).is_some_and(|end| end <= self.bytes())
    }
}

/// Converts an access into the flags of verbs. Write access includes read access.
pub(crate) fn flags(peers: Option<Access>) -> sys::ibv_access_flags {
    let (read, write) = (sys::IBV_ACCESS_REMOTE_READ, sys::IBV_ACCESS_REMOTE_WRITE);
    match peers {
        None => 0,
        Some(Access::Read) => read,
        Some(Access::Write) => read | write,
        Some(Access::Atomic) => read | write | sys::IBV_ACCESS_REMOTE_ATOMIC,
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the region is deregistered only once. After this call, outstanding work requests that use the region
        // fail.
        let returned = unsafe { self.domain.context.symbols().ibv_dereg_mr(self.raw.raw()) };
        if Errno::check(returned).is_err() {
            // The registration remains. The device may still write to the memory, so the memory must never be reused.
            mem::forget(Arc::clone(&self.memory));
        }
    }
}
