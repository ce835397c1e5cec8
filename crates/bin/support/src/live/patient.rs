//! Starts a process although its port or seat was held by another process a moment ago.
//!
//! The kernel frees what a killed process held only after it has torn the process down ([`InUse`]). A start that finds
//! its seat in use therefore retries for some seconds, and reports what it waits for.

use stentor::runtime::{InUse, StartError, tcp_port};
use stentor_fabric_roce::StartError as RoceError;
use stentor_host::StartError as ShmError;
use stentor_soft_switch::{SessionError, StartError as SwitchError};

/// An error that may come from another process that holds this one's port or seat.
pub trait Busy {
    /// Returns what is in use, if that is the cause of the error and may pass.
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

/// Calls `start` until it succeeds. Retries for some seconds while the port or the seat is in use. Calls `say` once,
/// with a description of the port or seat.
pub fn patiently<T, E: Busy>(start: impl FnMut() -> Result<T, E>, say: impl FnMut(&str)) -> Result<T, E> {
    stentor::runtime::patiently(start, E::busy, say)
}
