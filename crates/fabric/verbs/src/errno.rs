//! Error numbers, as verbs return them.

use std::fmt;
use std::io;

/// An error number of the kernel or of a provider.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

impl Errno {
    /// An attribute or an argument is wrong; verbs do not say which.
    pub const INVALID: Errno = Errno(22);
    /// No memory, or more than may be locked.
    pub const NO_MEMORY: Errno = Errno(12);
    /// Not permitted.
    pub const NOT_PERMITTED: Errno = Errno(1);
    /// The device file may not be opened.
    pub const ACCESS: Errno = Errno(13);
    /// The device was taken away.
    pub const IO: Errno = Errno(5);
    /// No such device, or not any more.
    pub const NO_DEVICE: Errno = Errno(19);

    /// The provider lacks a function that every one has.
    pub const NOT_SUPPORTED: Errno = Errno(95);

    /// Whether this is what a device says that is gone, or was taken from under this process.
    #[must_use]
    pub fn is_gone(self) -> bool {
        [Errno::NO_DEVICE, Errno::IO].contains(&self)
    }

    /// What the last call of this thread left, for those verbs that return a null pointer.
    pub(crate) fn last() -> Errno {
        Errno(io::Error::last_os_error().raw_os_error().unwrap_or_default())
    }

    /// From what a verb returned: an error number, negated by some providers; -1 means that it is in `errno`.
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
    fn both_signs_are_understood() {
        assert_eq!(Errno::check(0), Ok(()));
        assert_eq!(Errno::check(22), Err(Errno::INVALID));
        assert_eq!(Errno::check(-22), Err(Errno::INVALID));
        assert!(Errno::INVALID.to_string().starts_with("Invalid argument"));
    }
}
