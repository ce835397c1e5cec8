//! Error numbers in the form in which verbs return them.

use std::fmt;
use std::io;

/// An error number of the kernel or of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// An attribute or argument is invalid; verbs do not report which one.
    pub const INVALID: Errno = Errno(22);
    /// Out of memory, or over the limit of locked memory.
    pub const NO_MEMORY: Errno = Errno(12);
    /// Operation not permitted.
    pub const NOT_PERMITTED: Errno = Errno(1);
    /// Permission to open the device file is missing.
    pub const ACCESS: Errno = Errno(13);
    /// The device was removed.
    pub const IO: Errno = Errno(5);
    /// The device does not exist, or no longer exists.
    pub const NO_DEVICE: Errno = Errno(19);

    /// The provider lacks a function that every provider should have.
    pub const NOT_SUPPORTED: Errno = Errno(95);

    /// Returns whether this error means that the device was removed or is no longer accessible to this process.
    #[must_use]
    pub fn is_gone(self) -> bool {
        [Errno::NO_DEVICE, Errno::IO].contains(&self)
    }

    /// Returns the thread's `errno`, for verbs that return a null pointer.
    pub(crate) fn last() -> Errno {
        Errno(io::Error::last_os_error().raw_os_error().unwrap_or_default())
    }

    /// Converts a verb's return value: an error number, which some providers negate, or -1 if the error is in `errno`.
    pub(crate) fn check(returned: i32) -> Result<(), Errno> {
        match returned {
            0 => Ok(()),
            -1 => Err(Errno::last()),
            number => Err(Errno(number.abs())),
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {self})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_signs_are_converted() {
        assert_eq!(Errno::check(0), Ok(()));
        assert_eq!(Errno::check(22), Err(Errno::INVALID));
        assert_eq!(Errno::check(-22), Err(Errno::INVALID));
        assert!(Errno::INVALID.to_string().starts_with("Invalid argument"));
    }
}
