//! Start errors that may resolve themselves: another process still holds this process's port or seat.
//!
//! The kernel releases the ports and sockets of a killed process when it has torn the process down. The more memory the
//! process has and the busier the machine is, the longer that takes.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use stentor_fabric_net::StartError as NetError;
#[cfg(feature = "ofi")]
use stentor_fabric_ofi::StartError as OfiError;
#[cfg(feature = "roce")]
use stentor_fabric_roce::{StartError as RoceError, driver::PortError};
#[cfg(feature = "verbs")]
use stentor_fabric_verbs::StartError as VerbsError;
use stentor_host::{StartError as SeatError, is_ending};

use super::StartError;

/// Longest time for which a start waits for its port or seat.
const GIVING_BACK: Duration = Duration::from_secs(5);
/// Time after which the wait is reported.
const UNNOTICED: Duration = Duration::from_millis(300);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(20);

/// An error that may be caused by another process that holds this one's port or seat.
pub trait InUse {
    /// Returns what is in use, if that is the cause and may be temporary.
    fn in_use(&self) -> Option<String>;
}

impl InUse for StartError {
    fn in_use(&self) -> Option<String> {
        match self {
            StartError::Fabric(error) => error.in_use(),
            #[cfg(feature = "roce")]
            StartError::Roce(error) => error.in_use(),
            #[cfg(feature = "verbs")]
            StartError::Verbs(VerbsError::Net(error)) => error.in_use(),
            #[cfg(feature = "ofi")]
            StartError::Ofi(OfiError::Net(error)) => error.in_use(),
            _ => None,
        }
    }
}

#[cfg(feature = "roce")]
impl InUse for RoceError {
    fn in_use(&self) -> Option<String> {
        match self {
            RoceError::Port(error) => error.in_use(),
            RoceError::Net(error) => error.in_use(),
            _ => None,
        }
    }
}

/// The UDP port for packets.
#[cfg(feature = "roce")]
impl InUse for PortError {
    fn in_use(&self) -> Option<String> {
        let PortError::Taken { address } = self else { return None };
        Some(format!("UDP port 4791 of {address}"))
    }
}

/// The TCP port of the connection manager.
impl InUse for NetError {
    fn in_use(&self) -> Option<String> {
        let NetError::Listen { address, source } = self else { return None };
        (source.kind() == ErrorKind::AddrInUse).then(|| tcp_port(*address))
    }
}

impl InUse for SeatError {
    /// Returns `None` for a process that runs and is not being torn down: waiting does not help then. A process in
    /// another PID namespace may be ending, so it counts as in use.
    fn in_use(&self) -> Option<String> {
        match self {
            SeatError::Starting { path, .. } => Some(format!("the directory {}", path.display())),
            SeatError::AlreadyRunning { name, pid: 0, .. } => Some(format!("the place of `{name}`")),
            SeatError::AlreadyRunning { name, pid, .. } if is_ending(*pid) => {
                Some(format!("the place of `{name}`, whose process {pid} is ending,"))
            }
            _ => None,
        }
    }
}

/// Returns a TCP port in words.
#[must_use]
pub fn tcp_port(address: SocketAddr) -> String {
    format!("TCP {address}")
}

/// Calls `start` until it succeeds, for up to five seconds while a resource that it needs is `in_use`. `say` receives
/// at most one message about the wait.
///
/// # Errors
/// Returns the last error of `start`.
pub fn patiently<T, E>(
    start: impl FnMut() -> Result<T, E>,
    in_use: impl Fn(&E) -> Option<String>,
    say: impl FnMut(&str),
) -> Result<T, E> {
    patiently_for(GIVING_BACK, start, in_use, say)
}

fn patiently_for<T, E>(
    most: Duration,
    mut start: impl FnMut() -> Result<T, E>,
    in_use: impl Fn(&E) -> Option<String>,
    mut say: impl FnMut(&str),
) -> Result<T, E> {
    let (since, mut said) = (Instant::now(), false);
    loop {
        let error = match start() {
            Ok(started) => return Ok(started),
            Err(error) => error,
        };
        let Some(what) = in_use(&error).filter(|_| since.elapsed() < most) else { return Err(error) };
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

    struct Held(bool);

    impl Held {
        fn tell(&self) -> Option<String> {
            self.0.then(|| "TCP 127.0.0.1:7101".to_owned())
        }
    }

    #[test]
    fn start_waits_for_its_port_and_reports_that_once() {
        let (mut attempts, mut said) = (0, Vec::new());
        let start = || {
            attempts += 1;
            if attempts < 7 { Err(Held(true)) } else { Ok(attempts) }
        };
        let started = patiently_for(Duration::from_millis(4), start, Held::tell, |text| said.push(text.to_owned()));
        // Either four milliseconds have passed and the start has failed, or it has succeeded.
        assert!(started.is_err() || said.len() == 1, "{said:?}");
        let (mut attempts, mut said) = (0, Vec::new());
        let start = || {
            attempts += 1;
            if attempts < 20 { Err(Held(true)) } else { Ok(attempts) }
        };
        let started = patiently_for(Duration::from_secs(20), start, Held::tell, |text| said.push(text.to_owned()));
        assert_eq!(started.ok(), Some(20));
        assert_eq!(said.len(), 1);
        assert!(said[0].contains("TCP 127.0.0.1:7101 is still in use"), "{said:?}");
    }

    #[test]
    fn start_times_out_and_other_errors_return_at_once() {
        let mut attempts = 0;
        let mut start = |busy| {
            attempts += 1;
            Err::<(), _>(Held(busy))
        };
        assert!(
            patiently_for(Duration::from_secs(600), || start(false), Held::tell, |_| panic!("it waits for nothing"))
                .is_err()
        );
        assert!(patiently_for(Duration::from_millis(30), || start(true), Held::tell, |_| ()).is_err());
        assert!(attempts > 2);
    }
}
