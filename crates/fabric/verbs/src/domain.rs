//! Protection domains and the memory in them.

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::Arc;

use stentor_fabric::Access;
use stentor_fabric::memory::{WORD, Word};

use crate::context::{Context, Handle};
use crate::{Errno, PageMemory, sys};

/// Why an object could not be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{device} makes no {what}: {errno}; {remedy}")]
pub struct MakeError {
    /// The device.
    pub device: String,
    /// What was to be made, with its sizes.
    pub what: String,
    /// Why not.
    pub errno: Errno,
    /// What to do.
    pub remedy: &'static str,
}

impl MakeError {
    pub(crate) fn new(context: &Context, what: String, errno: Errno) -> Self {
        let remedy = match errno {
            Errno::NO_MEMORY => {
                "raise the limit of locked memory (ulimit -l; LimitMEMLOCK= of a service), or ask for less"
            }
            Errno::INVALID => "ask for less: `stentor doctor` shows the device's limits",
            // Also of memory, if nothing at all may be locked.
            Errno::NOT_PERMITTED | Errno::ACCESS => {
                "allow this user the device, raise the limit of locked memory (ulimit -l; LimitMEMLOCK= of a service), or raise \
                 rdma.max of its control group"
            }
            Errno::NO_DEVICE => "the device is gone: load its driver again, and start anew",
            _ => "look for the driver's reasons in the kernel's log (dmesg)",
        };
        MakeError { device: context.name().to_owned(), what, errno, remedy }
    }
}

/// A protection domain: queue pairs reach only the memory of their own.
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
    /// A new one.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn new(context: &Arc<Context>) -> Result<Arc<Domain>, MakeError> {
        // SAFETY: the context is open while the `Arc` lives, which the domain keeps.
        let raw = Handle::new(unsafe { context.symbols().ibv_alloc_pd(context.raw()) });
        let raw = raw.map_err(|errno| MakeError::new(context, "protection domain".into(), errno))?;
        Ok(Arc::new(Domain { context: Arc::clone(context), raw }))
    }

    /// The device.
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
        // SAFETY: regions and queue pairs hold an `Arc` of their domain, so none is left; nobody gives it back twice.
        unsafe { self.context.symbols().ibv_dealloc_pd(self.raw.raw()) };
    }
}

/// Memory that is registered in one protection domain.
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
    /// Registers memory of its own, and says what peers that have its key may do; `None` is nothing.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn register(domain: &Arc<Domain>, bytes: usize, peers: Option<Access>) -> Result<Region, MakeError> {
        let errno = if bytes == 0 || !bytes.is_multiple_of(WORD) { Errno::INVALID } else { Errno::NO_MEMORY };
        let failed = || MakeError::new(&domain.context, format!("memory region of {bytes} bytes"), errno);
        Region::over(domain, &PageMemory::zeroed(bytes).ok_or_else(failed)?, peers)
    }

    /// Registers memory, which may be registered elsewhere besides.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn over(domain: &Arc<Domain>, memory: &Arc<PageMemory>, peers: Option<Access>) -> Result<Region, MakeError> {
        let bytes = memory.bytes() as usize;
        let flags = (sys::IBV_ACCESS_LOCAL_WRITE | flags(peers)).cast_signed();
        let symbols = domain.context.symbols();
        // SAFETY: the memory is there until the region is taken back (see `Drop`), and is seen as atomic words only.
        let raw = Handle::new(unsafe { symbols.ibv_reg_mr(domain.raw(), memory.at(0).as_ptr().cast(), bytes, flags) });
        let failed = |errno| MakeError::new(&domain.context, format!("memory region of {bytes} bytes"), errno);
        let raw = raw.map_err(failed)?;
        // SAFETY: it was just made; its keys do not change.
        let (local_key, remote_key) = unsafe { ((*raw.raw()).lkey, (*raw.raw()).rkey) };
        Ok(Region { domain: Arc::clone(domain), raw, memory: Arc::clone(memory), local_key, remote_key })
    }

    /// Takes it back. From then on its keys are refused, and nothing that a peer sent lands any more.
    ///
    /// # Errors
    /// The region, if the device does not give it back, and what the device says.
    pub fn deregister(self) -> Result<(), (Region, Errno)> {
        // SAFETY: `self` ends here if it worked, and nobody takes it back twice.
        let returned = unsafe { self.domain.context.symbols().ibv_dereg_mr(self.raw.raw()) };
        if let Err(errno) = Errno::check(returned) {
            return Err((self, errno));
        }
        let this = ManuallyDrop::new(self);
        // SAFETY: `this` is not dropped, so each of the two is read out of it once.
        drop(unsafe { (ptr::read(&raw const this.memory), ptr::read(&raw const this.domain)) });
        Ok(())
    }

    /// The memory.
    #[must_use]
    pub fn words(&self) -> &[Word] {
        self.memory.words()
    }

    /// The memory, which outlives the registration.
    pub(crate) fn memory(&self) -> &Arc<PageMemory> {
        &self.memory
    }

    /// Its size.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.memory.bytes()
    }

    /// Where it begins, as peers name it.
    #[must_use]
    pub fn address(&self) -> u64 {
        self.memory.address()
    }

    /// What lets a peer use it.
    #[must_use]
    pub fn remote_key(&self) -> u32 {
        self.remote_key
    }

    pub(crate) fn local_key(&self) -> u32 {
        self.local_key
    }

    /// Whether so many bytes from there lie inside.
    pub(crate) fn contains(&self, offset: u64, bytes: u32) -> bool {
        offset.checked_add(u64::from(bytes)).is_some_and(|end| end <= self.bytes())
    }
}

/// What a peer may do, as verbs say it: who may write may read.
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
        // SAFETY: nobody takes it back twice. Work that is under way with it fails from now on.
        let returned = unsafe { self.domain.context.symbols().ibv_dereg_mr(self.raw.raw()) };
        if Errno::check(returned).is_err() {
            // The device may still write to it: it must never be used for anything else.
            mem::forget(Arc::clone(&self.memory));
        }
    }
}
