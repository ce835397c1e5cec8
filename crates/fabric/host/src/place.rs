//! A seat for processes that do not communicate over shared memory.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use stentor_fabric::ProcessId;

use crate::about::Source;
use crate::config::{SeatConfig, StartError};
use crate::seat::{Beside, Seat};

/// Interval between calls of [`Seat::look`].
const PAUSE: Duration = Duration::from_millis(250);

/// The seat and its listening socket. The socket shows that its process runs; it accepts no connections.
type Held = Arc<Mutex<Option<(Seat, OwnedFd)>>>;

/// A process's seat in a private directory of the host, with a thread that maintains it. Processes that communicate
/// over a network fabric have one so that operators on this host find them. Its files are removed when it is dropped or
/// the process is killed. If another process removes the socket, the thread creates it again.
#[derive(Debug)]
pub struct StandingSeat {
    held: Held,
    beside: Beside,
}

impl StandingSeat {
    /// Takes the seat of a process. `cluster` names a directory in `directory`, and `source` is [`SeatConfig::source`].
    /// `say` is called with a message whenever another process removed the socket.
    ///
    /// # Errors
    /// Returns a [`StartError`]; [`StartError::AlreadyRunning`] if another process has the seat.
    pub fn take(
        directory: PathBuf,
        cluster: &str,
        me: ProcessId,
        name: &str,
        source: Option<Source>,
        say: impl Fn(&str) + Send + 'static,
    ) -> Result<Self, StartError> {
        let (cluster, name) = (cluster.to_owned(), name.to_owned());
        let config = SeatConfig { directory, cluster, me, name, janitor: true, source };
        config.check()?;
        let (seat, listener) = Seat::take(&config)?;
        let beside = seat.beside();
        let held = Arc::new(Mutex::new(Some((seat, listener))));
        let weak = Arc::downgrade(&held);
        let watch = move || {
            while let Some(held) = weak.upgrade() {
                look(&held, &say);
                drop(held);
                thread::sleep(PAUSE);
            }
        };
        let thread = thread::Builder::new().name("place".to_owned()).spawn(watch);
        thread.map_err(|source| StartError::System {
            what: "start the thread that maintains the socket".to_owned(),
            source,
        })?;
        Ok(StandingSeat { held, beside })
    }

    /// Returns the path of the caller's file beside the socket.
    #[must_use]
    pub fn beside(&self) -> Beside {
        self.beside.clone()
    }
}

fn look(held: &Held, say: &impl Fn(&str)) {
    let remade = {
        let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((seat, listener)) = held.as_mut() else { return };
        let Some(remade) = seat.look(Instant::now()) else { return };
        if let Some(anew) = remade.listener {
            *listener = anew;
        }
        remade.note
    };
    say(&remade);
}

impl Drop for StandingSeat {
    fn drop(&mut self) {
        // The seat is dropped here, because the thread may not run again before the process ends.
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(held);
    }
}
