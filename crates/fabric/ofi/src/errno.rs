//! Error numbers, as libfabric returns them.

use std::ffi::{CStr, c_int};
use std::fmt;

use crate::load::Libfabric;
use crate::sys;

/// An error number of libfabric, positive: the system's, or one of its own from 256 on.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// No room, or nothing there: let the provider work (read its completion queue), then try again.
    pub const AGAIN: Errno = Errno(sys::FI_EAGAIN);
    /// No such provider, or none that can do what was asked.
    pub const NO_DATA: Errno = Errno(sys::FI_ENODATA);
    /// The provider lacks this.
    pub const NOT_SUPPORTED: Errno = Errno(sys::FI_ENOSYS);
    /// No memory, or more than may be locked.
    pub const NO_MEMORY: Errno = Errno(sys::FI_ENOMEM);
    /// A directory is full.
    pub const NO_SPACE: Errno = Errno(libc::ENOSPC);
    /// Somebody has it.
    pub const BUSY: Errno = Errno(libc::EBUSY);
    /// An argument is wrong; libfabric does not say which.
    pub const INVALID: Errno = Errno(sys::FI_EINVAL);
    /// Refused.
    pub const ACCESS: Errno = Errno(sys::FI_EACCES);
    /// The operation was asked back.
    pub const CANCELLED: Errno = Errno(sys::FI_ECANCELED);
    /// The message was longer than the receive.
    pub const TRUNCATED: Errno = Errno(sys::FI_ETRUNC as i32);
    /// The completion queue has a failure first.
    pub(crate) const AVAILABLE: Errno = Errno(sys::FI_EAVAIL as i32);

    /// From what a control function returned.
    pub(crate) fn check(returned: c_int) -> Result<(), Errno> {
        if returned == 0 { Ok(()) } else { Err(Errno(returned.saturating_abs())) }
    }

    /// From what an operation returned.
    #[inline]
    pub(crate) fn posted(returned: isize) -> Result<(), Errno> {
        if returned == 0 { Ok(()) } else { Err(Errno(returned.unsigned_abs() as i32)) }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(library) = Libfabric::load() else { return write!(f, "error {}", self.0) };
        // SAFETY: it takes any number, and returns a string that lasts.
        let text = unsafe { CStr::from_ptr(library.symbols.fi_strerror(self.0)) };
        f.write_str(&text.to_string_lossy())
    }
}

impl std::error::Error for Errno {}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {self})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_positive_whatever_the_function_returns() {
        assert_eq!(Errno::check(0), Ok(()));
        assert_eq!(Errno::check(-11), Err(Errno::AGAIN));
        assert_eq!(Errno::posted(-265), Err(Errno::TRUNCATED));
        assert_eq!(Errno::posted(0), Ok(()));
    }
}
