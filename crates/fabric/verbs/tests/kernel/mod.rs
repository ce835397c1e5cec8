//! Counts the kernel's RDMA objects.

use std::time::{Duration, Instant};

/// Returns the output of `rdma resource show`, which is the number of objects of each kind.
pub(crate) fn resources() -> String {
    let output = std::process::Command::new("rdma").args(["resource", "show"]).output().expect("rdma");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns the number of objects after the kernel has cleaned up, which takes a short time after a process has ended.
/// Waits at most 10 s for the `expected` value. If it is `None`, waits until the number no longer changes.
pub(crate) fn settled(expected: Option<&str>) -> String {
    let until = Instant::now() + Duration::from_secs(10);
    let mut last = None;
    loop {
        let now = resources();
        let is_it = expected.map_or(last.as_ref() == Some(&now), |expected| now == expected);
        if is_it || Instant::now() > until {
            return now;
        }
        last = Some(now);
        std::thread::sleep(Duration::from_millis(20));
    }
}
