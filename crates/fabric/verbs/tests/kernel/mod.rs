//! What the kernel has of RDMA objects.

use std::time::{Duration, Instant};

/// How many of each kind there are.
pub(crate) fn resources() -> String {
    let output = std::process::Command::new("rdma").args(["resource", "show"]).output().expect("rdma");
    String::from_utf8(output.stdout).unwrap()
}

/// The same once the kernel has tidied up, which it does a little after a process is gone: when there is what is expected, or
/// for ten seconds was not; without an expectation when nothing changes any more.
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
