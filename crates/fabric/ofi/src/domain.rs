//! A provider that is open: its fabric and its domain.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::errno::Errno;
use crate::info::{Info, has_segments};
use crate::load::Libfabric;
use crate::sys;

/// Why an object could not be made.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{provider} makes no {what}: {errno}; {remedy}")]
pub struct MakeError {
    /// The provider.
    pub provider: String,
    /// What was to be made, with its sizes.
    pub what: String,
    /// Why not.
    pub errno: Errno,
    /// What to do.
    pub remedy: &'static str,
}

/// Files in `/dev/shm` are named by pid, which is another process's in another PID namespace.
const OF_ANOTHER_NAMESPACE: &str = "its name in /dev/shm holds this process's pid, and a process of another PID namespace that sees the same directory \
     has that pid, too, or had it when it was killed: run all in one PID namespace (docker run --pid=container:NAME), \
     remove what dead ones left there, or name another provider, as \"tcp;ofi_rxm\"";

impl MakeError {
    pub(crate) fn new(info: &Info, what: impl Into<String>, errno: Errno) -> Self {
        let remedy = match errno {
            Errno::NO_MEMORY => {
                "raise the limit of locked memory (ulimit -l; LimitMEMLOCK= of a service), or ask for less"
            }
            Errno::INVALID => "ask for less: `stentor doctor` shows the provider's limits",
            Errno::NOT_SUPPORTED => "take another provider",
            Errno::BUSY if has_segments(info.provider()) => OF_ANOTHER_NAMESPACE,
            _ => "set FI_LOG_LEVEL=warn to see the provider's reasons",
        };
        MakeError { provider: info.provider().to_owned(), what: what.into(), errno, remedy }
    }
}

/// An object of libfabric, closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Fid<T>(NonNull<T>);

// SAFETY: every domain is asked for with FI_THREAD_SAFE: its objects may be used from any thread.
unsafe impl<T> Send for Fid<T> {}
// SAFETY: the same: several threads may use one object at once. What closes an object takes it by `&mut` (in `Drop`).
unsafe impl<T> Sync for Fid<T> {}

impl<T> Fid<T> {
    /// Takes over what a function made.
    ///
    /// # Safety
    /// `T` begins with a `fid`, as all of libfabric's objects do; nobody else closes the object.
    pub(crate) unsafe fn new(returned: i32, raw: *mut T) -> Result<Fid<T>, Errno> {
        Errno::check(returned)?;
        NonNull::new(raw).map(Fid).ok_or(Errno::NOT_SUPPORTED)
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut T {
        self.0.as_ptr()
    }

    pub(crate) fn fid(&self) -> *mut sys::fid {
        self.0.as_ptr().cast()
    }

    /// `fi_control` of the headers.
    ///
    /// # Safety
    /// The argument is what the command takes.
    pub(crate) unsafe fn control(&self, command: i32, argument: *mut std::ffi::c_void) -> Result<(), Errno> {
        // SAFETY: objects have tables of functions as long as they live.
        let control = unsafe { (*(*self.fid()).ops).control }.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: the caller's promise.
        Errno::check(unsafe { control(self.fid(), command, argument) })
    }

    /// `fi_ep_bind` of the headers, and its kin.
    ///
    /// # Safety
    /// The other object outlives this one.
    pub(crate) unsafe fn bind<O>(&self, other: &Fid<O>, flags: u64) -> Result<(), Errno> {
        // SAFETY: objects have tables of functions as long as they live.
        let bind = unsafe { (*(*self.fid()).ops).bind }.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: both objects live.
        Errno::check(unsafe { bind(self.fid(), other.fid(), flags) })
    }

    /// Closes it, and says whether that succeeded.
    pub(crate) fn close(self) -> Result<(), Errno> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `self` is consumed and not dropped: nobody closes it twice.
        unsafe { close(this.fid()) }
    }
}

/// `fi_close` of the headers.
///
/// # Safety
/// The object lives, and nobody uses it any more.
unsafe fn close(fid: *mut sys::fid) -> Result<(), Errno> {
    // SAFETY: objects have tables of functions as long as they live.
    let close = unsafe { (*(*fid).ops).close }.ok_or(Errno::NOT_SUPPORTED)?;
    // SAFETY: the caller's promise.
    Errno::check(unsafe { close(fid) })
}

impl<T> Drop for Fid<T> {
    fn drop(&mut self) {
        // SAFETY: whoever holds an object that stands on this one drops it first: see the orders of fields. A provider that
        // refuses leaks it.
        let _ = unsafe { close(self.fid()) };
    }
}

/// Memory, queues and endpoints that know each other.
pub struct Domain {
    // Dropped in this order.
    raw: Fid<sys::fid_domain>,
    fabric: Fid<sys::fid_fabric>,
    info: Info,
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Domain").field("info", &self.info).finish_non_exhaustive()
    }
}

impl Domain {
    /// Opens what the description describes.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn open(library: &'static Libfabric, info: Info) -> Result<Arc<Domain>, MakeError> {
        let mut fabric = ptr::null_mut();
        // SAFETY: the description lives; the attributes are part of it.
        let returned =
            unsafe { library.symbols.fi_fabric((*info.raw()).fabric_attr, &raw mut fabric, ptr::null_mut()) };
        // SAFETY: `fid_fabric` begins with a `fid`, and was just made.
        let fabric = unsafe { Fid::new(returned, fabric) }.map_err(|errno| MakeError::new(&info, "fabric", errno))?;
        let failed = |errno| MakeError::new(&info, "domain", errno);
        let mut raw = ptr::null_mut();
        // SAFETY: objects have tables of functions as long as they live.
        let open = unsafe { (*(*fabric.raw()).ops).domain }.ok_or(Errno::NOT_SUPPORTED).map_err(failed)?;
        // SAFETY: fabric and description live; the fabric is closed after the domain.
        let returned = unsafe { open(fabric.raw(), info.raw(), &raw mut raw, ptr::null_mut()) };
        // SAFETY: `fid_domain` begins with a `fid`, and was just made.
        let raw = unsafe { Fid::new(returned, raw) }.map_err(failed)?;
        Ok(Arc::new(Domain { raw, fabric, info }))
    }

    /// What was opened.
    #[must_use]
    pub fn info(&self) -> &Info {
        &self.info
    }

    #[inline]
    pub(crate) fn raw(&self) -> *mut sys::fid_domain {
        self.raw.raw()
    }

    pub(crate) fn fabric(&self) -> *mut sys::fid_fabric {
        self.fabric.raw()
    }
}
