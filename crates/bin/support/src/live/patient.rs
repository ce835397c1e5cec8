//! Starts a process whose port or place another process held a moment ago.
//!
//! The kernel gives back what a killed process held when it has torn down the process ([`InUse`]). So a start that finds its place in use
//! tries again for some seconds, and says what it waits for.

use std::time::{Duration, Instant};

use stentor::runtime::{InUse, StartError, tcp_port};
use stentor_fabric_roce::StartError as RoceError;
use stentor_host::StartError as ShmError;
use stentor_soft_switch::{SessionError, StartError as SwitchError};

/// The time for which a start waits for its port or place.
const GIVING_BACK: Duration = Duration::from_secs(5);
/// The time after which the wait is reported.
const UNNOTICED: Duration = Duration::from_millis(300);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

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
    patiently_for(GIVING_BACK, start, say)
}

fn patiently_for<T, E: Busy>(
    most: Duration,
    mut start: impl FnMut() -> Result<T, E>,
    mut say: impl FnMut(&str),
) -> Result<T, E> {
    let (since, mut said) = (Instant::now(), false);
    loop {
        let error = match start() {
            Ok(started) => return Ok(started),
            Err(error) => error,
        };
        let Some(what) = error.busy().filter(|_| since.elapsed() < most) else { return Err(error) };
        if !said && since.elapsed() >= UNNOTICED.min(most / 2) {
            said = true;
            say(&format!(
                "{what} is still in use, perhaps by a process that was killed just now: waits up to {} s until it is free",
                most.as_secs()
            ));
        }
        std::thread::sleep(PAUSE.min(most / 8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct InUse(bool);

    impl Busy for InUse {
        fn busy(&self) -> Option<String> {
            self.0.then(|| "TCP 127.0.0.1:7101".to_owned())
        }
    }

    #[test]
    fn start_waits_for_its_place_and_says_so_once() {
        let (mut attempts, mut said) = (0, Vec::new());
        let start = || {
            attempts += 1;
            if attempts < 7 { Err(InUse(true)) } else { Ok(attempts) }
        };
        let started = patiently_for(Duration::from_millis(4), start, |text| said.push(text.to_owned()));
        // It gives up after four milliseconds if they are over; else it has started.
        assert!(started.is_err() || said.len() == 1, "{said:?}");
        let (mut attempts, mut said) = (0, Vec::new());
        let start = || {
            attempts += 1;
            if attempts < 20 { Err(InUse(true)) } else { Ok(attempts) }
        };
        let started = patiently_for(Duration::from_secs(20), start, |text| said.push(text.to_owned()));
        assert_eq!(started.ok(), Some(20));
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("TCP 127.0.0.1:7101 is still in use"), "{said:?}");
    }

    #[test]
    fn start_gives_up_and_another_error_is_told_at_once() {
        let mut attempts = 0;
        let mut start = |busy| {
            attempts += 1;
            Err::<(), _>(InUse(busy))
        };
        assert!(patiently_for(Duration::from_secs(600), || start(false), |_| panic!("nothing is waited for")).is_err());
        assert!(patiently_for(Duration::from_millis(30), || start(true), |_| ()).is_err());
        assert!(attempts > 2);
    }
}
