//! Waits in tests of processes and threads.

use std::thread;
use std::time::{Duration, Instant};

/// Looks again and again, for a minute at most.
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
