//! Error numbers in the form in which libfabric returns them.

use std::ffi::{CStr, c_int};
use std::fmt;

use crate::load::Libfabric;
use crate::sys;

/// A positive libfabric error number. Numbers below 256 are those of the operating system, and libfabric's own numbers
/// begin at 256.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// The queue is full (when posting) or empty (when polling). The caller must read the completion queue, which
    /// drives the provider, and try again.
    pub const AGAIN: Errno = Errno(sys::FI_EAGAIN);
    /// No such provider exists, or none has the requested capabilities.
    pub const NO_DATA: Errno = Errno(sys::FI_ENODATA);
    /// The provider does not support the operation.
    pub const NOT_SUPPORTED: Errno = Errno(sys::FI_ENOSYS);
    /// Out of memory, or over the limit of locked memory.
    pub const NO_MEMORY: Errno = Errno(sys::FI_ENOMEM);
    /// The file system is full.
    pub const NO_SPACE: Errno = Errno(libc::ENOSPC);
    /// The resource is in use.
    pub const BUSY: Errno = Errno(libc::EBUSY);
    /// An argument is invalid; libfabric does not say which.
    pub const INVALID: Errno = Errno(sys::FI_EINVAL);
    /// Permission denied.
    pub const ACCESS: Errno = Errno(sys::FI_EACCES);
    /// The operation was cancelled.
    pub const CANCELLED: Errno = Errno(sys::FI_ECANCELED);
    /// The message was longer than the receive.
    pub const TRUNCATED: Errno = Errno(sys::FI_ETRUNC as i32);
    /// The next entry of the completion queue is a failure.
    pub(crate) const AVAILABLE: Errno = Errno(sys::FI_EAVAIL as i32);

    /// Converts the return value of a control function, which is 0 or an error number of either sign.
    pub(crate) fn check(returned: c_int) -> Result<(), Errno> {
        if returned == 0 { Ok(()) } else { Err(Errno(returned.saturating_abs())) }
    }

    /// Converts the return value of an operation, which is 0 or a negated error number.
    #[inline]
    pub(crate) fn posted(returned: isize) -> Result<(), Errno> {
        if returned == 0 { Ok(()) } else { Err(Errno(returned.unsigned_abs() as i32)) }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ok(library) = Libfabric::load() else { return write!(f, "error {}", self.0) };
        // SAFETY: `fi_strerror` accepts any number and returns a string with static lifetime.
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
    fn numbers_are_positive_for_either_sign_of_the_result() {
        assert_eq!(Errno::check(0), Ok(()));
        assert_eq!(Errno::check(-11), Err(Errno::AGAIN));
        assert_eq!(Errno::posted(-265), Err(Errno::TRUNCATED));
        assert_eq!(Errno::posted(0), Ok(()));
    }
}
