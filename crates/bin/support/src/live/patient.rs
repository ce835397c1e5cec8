//! Starts a process whose port or place another process held a moment ago.
//!
//! The kernel gives back what a killed process held when it has torn down the process ([`InUse`]). So a start that finds its place in use
//! tries again for some seconds, and says what it waits for.

use stentor::runtime::{InUse, StartError, tcp_port};
use stentor_fabric_roce::StartError as RoceError;
use stentor_host::StartError as ShmError;
use stentor_soft_switch::{SessionError, StartError as SwitchError};

/// An error that another process, which holds this one's port or place, may cause.
pub trait Busy {
    /// Returns what is in use, if that is the cause and may pass.
    fn busy(&self) -> Option<String>;
}

/// The errors of whatever a node starts on.
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

/// Calls `start` until it succeeds, for some seconds while its port or place is in use. `say` hears once what it waits
/// for.
pub fn patiently<T, E: Busy>(start: impl FnMut() -> Result<T, E>, say: impl FnMut(&str)) -> Result<T, E> {
    stentor::runtime::patiently(start, E::busy, say)
}
