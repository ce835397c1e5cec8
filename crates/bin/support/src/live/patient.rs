//! Starts a process whose port or seat another process may still hold for a moment.
//!
//! The kernel frees the ports and locks of a killed process only after it has torn the process down ([`InUse`]). A
//! start that finds its port or seat in use therefore retries for some seconds, and reports what it waits for.

use stentor::runtime::{InUse, StartError, tcp_port};
use stentor_fabric_roce::StartError as RoceError;
use stentor_host::StartError as ShmError;
use stentor_soft_switch::{SessionError, StartError as SwitchError};

/// An error of a start. Its cause may be that another process holds the port or seat.
pub trait Busy {
    /// Returns a description of the port or seat in use, if that is the cause of the error and may soon change.
    fn busy(&self) -> Option<String>;
}

/// Implements [`Busy`] for the errors of the fabrics that a node starts on.
macro_rules! busy {
    ($($error:ty),*) => {
        $(impl Busy for $error {
            fn busy(&self) -> Option<String> {
                self.in_use()
            }
        })*
    };
}

busy!(StartError, RoceError, ShmError);

impl Busy for SwitchError {
    fn busy(&self) -> Option<String> {
        match self {
            SwitchError::Port(error) => error.in_use(),
            SwitchError::Session(SessionError::Listen { at, in_use: true, .. }) => Some(tcp_port(*at)),
            _ => None,
        }
    }
}

/// Calls `start`, and calls it again for some seconds while the port or the seat is in use. Calls `say` at most once,
/// with a description of the port or seat.
pub fn patiently<T, E: Busy>(start: impl FnMut() -> Result<T, E>, say: impl FnMut(&str)) -> Result<T, E> {
    stentor::runtime::patiently(start, E::busy, say)
}
