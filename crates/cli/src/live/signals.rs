//! Asking a running process to end.

use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use signal_hook::consts::{SIGINT, SIGTERM};
use stentor::runtime::Stop;

use crate::failure::Failure;

/// Set by SIGINT and SIGTERM.
#[derive(Clone, Debug, Default)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From here on the signals do not end the process; it has to look.
    pub(crate) fn catch() -> Result<Self, Failure> {
        let interrupt = Interrupt::default();
        for signal in [SIGINT, SIGTERM] {
            signal_hook::flag::register(signal, Arc::clone(&interrupt.0)).map_err(|error| {
                Failure::run(format_args!("cannot catch signals: {error}"), "this process", "report this as a bug")
            })?;
        }
        Ok(interrupt)
    }

    /// Whether one of them came.
    pub(crate) fn came(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Fails once one of them came.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        if self.came() { Err(Failure::run("interrupted", "by a signal", "start it again")) } else { Ok(()) }
    }
}

/// Makes the system kill this process, even a stopped one, when the thread of `parent` that started it ends.
///
/// # Errors
/// When that process is not the parent any more, or the system refuses.
pub(crate) fn follow(parent: i32) -> Result<(), Failure> {
    let place = format_args!("--follow {parent}").to_string();
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| Failure::run(std::io::Error::from(error), &place, "start the node without --follow"))?;
    if getppid().map(Pid::as_raw_pid) != Some(parent) {
        return Err(Failure::run(
            "the process that started this one is gone",
            place,
            "start the node without --follow",
        ));
    }
    Ok(())
}

/// Stops when standard input ends: when whoever holds the other end closes it, or is gone by whatever cause.
pub(crate) fn stop_at_end_of_input(stop: Arc<Stop>) {
    std::thread::spawn(move || {
        let mut input = std::io::stdin().lock();
        let mut ignored = [0; 256];
        while input.read(&mut ignored).is_ok_and(|bytes| bytes > 0) {}
        stop.stop();
    });
}
