//! An open provider: its fabric and its domain, and the owner type [`Fid`] of libfabric's objects.

use std::fmt;
use std::ptr::{self, NonNull};
use std::sync::Arc;

use crate::errno::Errno;
use crate::info::{Info, has_segments};
use crate::load::Libfabric;
use crate::sys;

/// Reason why an object could not be created.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{provider} cannot create {what}: {errno}; {remedy}")]
pub struct MakeError {
    /// Name of the provider.
    pub provider: String,
    /// The object that was to be created, with an article and its sizes.
    pub what: String,
    /// Error code.
    pub errno: Errno,
    /// Remedy for the user.
    pub remedy: &'static str,
}

/// Remedy for a file name in `/dev/shm` that is in use. The files there are named by pid, and a process in another PID
/// namespace can have the same pid.
const OF_ANOTHER_NAMESPACE: &str = "the name of its file in /dev/shm contains this process's pid, and a process in another PID namespace with the same \
     /dev/shm has that pid, too, or had it when it was killed: run all processes in one PID namespace (docker run \
     --pid=container:NAME), remove the files of dead processes there, or name another provider, for instance \
     \"tcp;ofi_rxm\"";

impl MakeError {
    pub(crate) fn new(info: &Info, what: impl Into<String>, errno: Errno) -> Self {
        let remedy = match errno {
            Errno::NO_MEMORY => {
                "raise the limit of locked memory (ulimit -l; LimitMEMLOCK= of a service), or configure less"
            }
            Errno::INVALID => "configure less: `stentor doctor` shows the provider's limits",
            Errno::NOT_SUPPORTED => "name another provider",
            Errno::BUSY if has_segments(info.provider()) => OF_ANOTHER_NAMESPACE,
            _ => "set FI_LOG_LEVEL=warn to see the provider's reason",
        };
        MakeError { provider: info.provider().to_owned(), what: what.into(), errno, remedy }
    }
}

/// A libfabric object that is closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Fid<T>(NonNull<T>);

// SAFETY: every domain is requested with FI_THREAD_SAFE, so its objects may be used from any thread.
unsafe impl<T> Send for Fid<T> {}
// SAFETY: as above, several threads may use one object at once. Closing an object requires `&mut` (in `Drop`) or its
// ownership.
unsafe impl<T> Sync for Fid<T> {}

impl<T> Fid<T> {
    /// Takes ownership of an object that a libfabric function has created.
    ///
    /// # Safety
    /// `T` must begin with a `fid`, as all libfabric objects do, and nothing else may close the object.
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

    /// Does what the headers' inline function `fi_control` does.
    ///
    /// # Safety
    /// The argument is of the type that the command requires.
    pub(crate) unsafe fn control(&self, command: i32, argument: *mut std::ffi::c_void) -> Result<(), Errno> {
        // SAFETY: a live libfabric object has a valid function table.
        let control = unsafe { (*(*self.fid()).ops).control }.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: guaranteed by the caller.
        Errno::check(unsafe { control(self.fid(), command, argument) })
    }

    /// Does what the headers' inline function `fi_ep_bind`, or its counterpart for another kind of object, does.
    ///
    /// # Safety
    /// The other object outlives this one.
    pub(crate) unsafe fn bind<O>(&self, other: &Fid<O>, flags: u64) -> Result<(), Errno> {
        // SAFETY: a live libfabric object has a valid function table.
        let bind = unsafe { (*(*self.fid()).ops).bind }.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: both objects are live.
        Errno::check(unsafe { bind(self.fid(), other.fid(), flags) })
    }

    /// Closes the object and returns the result.
    pub(crate) fn close(self) -> Result<(), Errno> {
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: `self` is consumed and not dropped, so the object is closed only once.
        unsafe { close(this.fid()) }
    }
}

/// Does what the headers' inline function `fi_close` does.
///
/// # Safety
/// The object is live, and nothing uses it any more.
unsafe fn close(fid: *mut sys::fid) -> Result<(), Errno> {
    // SAFETY: a live libfabric object has a valid function table.
    let close = unsafe { (*(*fid).ops).close }.ok_or(Errno::NOT_SUPPORTED)?;
    // SAFETY: guaranteed by the caller.
    Errno::check(unsafe { close(fid) })
}

impl<T> Drop for Fid<T> {
    fn drop(&mut self) {
        // SAFETY: the owner of an object that depends on this one drops it first (see the field orders). If the
        // provider refuses to close the object, it leaks.
        let _ = unsafe { close(self.fid()) };
    }
}

/// A libfabric domain. Memory regions, queues and endpoints can be used together if they belong to the same domain.
pub struct Domain {
    // Fields are dropped in this order: the domain is closed before the fabric.
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
    /// Opens the fabric and the domain that `info` describes.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn open(library: &'static Libfabric, info: Info) -> Result<Arc<Domain>, MakeError> {
        let mut fabric = ptr::null_mut();
        // SAFETY: the description is live, and the attributes are part of it.
        let returned =
            unsafe { library.symbols.fi_fabric((*info.raw()).fabric_attr, &raw mut fabric, ptr::null_mut()) };
        // SAFETY: `fid_fabric` begins with a `fid`, and the object was just created.
        let fabric = unsafe { Fid::new(returned, fabric) }.map_err(|errno| MakeError::new(&info, "a fabric", errno))?;
        let failed = |errno| MakeError::new(&info, "a domain", errno);
        let mut raw = ptr::null_mut();
        // SAFETY: a live libfabric object has a valid function table.
        let open = unsafe { (*(*fabric.raw()).ops).domain }.ok_or(Errno::NOT_SUPPORTED).map_err(failed)?;
        // SAFETY: fabric and description are live, and the fabric is closed after the domain.
        let returned = unsafe { open(fabric.raw(), info.raw(), &raw mut raw, ptr::null_mut()) };
        // SAFETY: `fid_domain` begins with a `fid`, and the object was just created.
        let raw = unsafe { Fid::new(returned, raw) }.map_err(failed)?;
        Ok(Arc::new(Domain { raw, fabric, info }))
    }

    /// Returns the description of the open provider.
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
