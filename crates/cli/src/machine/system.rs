//! Waiting and limits.

use std::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::thread::futex;

use super::Finding;

/// A process that has nothing to do sleeps on a futex in shared memory.
pub(super) fn futex() -> Finding {
    let what = "futex";
    // The word is 0: waiting for it to leave 1 must return at once.
    let word = AtomicU32::new(0);
    match futex::wait(&word, futex::Flags::empty(), 1, None) {
        Err(Errno::AGAIN) => Finding::ok(what, "a sleeping process can be woken"),
        Ok(()) => Finding::missing(what, "futex wait did not compare its word", "use a kernel with futexes"),
        Err(error) => {
            Finding::missing(what, format!("futex wait: {error}"), "use a sandbox that allows the system call futex")
        }
    }
}

/// What 16 groups of 5 with 16 clients need, generously: a socket and an event descriptor for each peer, and the
/// descriptors of regions while they are handed over.
const OPEN_FILES: u64 = 1024;

pub(super) fn open_files() -> Finding {
    let what = "open files limit";
    let limit = getrlimit(Resource::Nofile);
    match limit.current {
        Some(n) if n < OPEN_FILES => Finding::limited(
            what,
            format!("{n}: enough for small clusters only"),
            format!("ulimit -n {OPEN_FILES}, or raise `nofile` in /etc/security/limits.conf"),
        ),
        Some(n) => Finding::ok(what, n.to_string()),
        None => Finding::ok(what, "unlimited"),
    }
}
