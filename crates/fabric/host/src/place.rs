//! A process's place in a host's private directory without the fabric.

use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use stentor_fabric::ProcessId;

use crate::about::Source;
use crate::config::{SeatConfig, StartError};
use crate::seat::{Beside, Seat};

/// Between two looks at the clock.
const PAUSE: Duration = Duration::from_millis(250);

/// The seat, and what shows that its process lives. Nobody is let in.
type Held = Arc<Mutex<Option<(Seat, OwnedFd)>>>;

/// A process's place in a host's private directory without the fabric: for processes that meet over another one, so that
/// operators on this host find them. Everything there is removed when it is dropped, and when the process is killed; what
/// others remove is made anew.
#[derive(Debug)]
pub struct StandingSeat {
    held: Held,
    beside: Beside,
}

impl StandingSeat {
    /// Takes the place of a process; `cluster` names a directory in `directory`, `source` is [`SeatConfig::source`]. `say` hears of what was removed by others.
    ///
    /// # Errors
    /// See [`StartError`]; [`StartError::AlreadyRunning`] if another process is in it.
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
        thread.map_err(|source| StartError::System { what: "start a thread for its socket".to_owned(), source })?;
        Ok(StandingSeat { held, beside })
    }

    /// Returns where something of the caller's own belongs beside the socket.
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
        // Here, not in the thread: it may not run again before the process ends.
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        drop(held);
    }
}
