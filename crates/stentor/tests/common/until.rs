//! A wait in tests of processes and threads.

use std::thread;
use std::time::{Duration, Instant};

/// Calls `is` until it returns a value, for at most a minute.
pub(crate) fn until<T>(what: &str, mut is: impl FnMut() -> Option<T>) -> T {
    let since = Instant::now();
    loop {
        if let Some(found) = is() {
            return found;
        }
        assert!(since.elapsed() < Duration::from_secs(60), "waits for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
