//! Futexes, and the limits of the system.

use std::sync::atomic::AtomicU32;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use rustix::thread::futex;
use stentor_support::bytes;

use super::Finding;

/// Checks futexes. An idle process sleeps on a futex in shared memory.
pub(super) fn futex() -> Finding {
    let what = "futex";
    // The word is 0, so waiting for it to change from 1 must return at once.
    let word = AtomicU32::new(0);
    match futex::wait(&word, futex::Flags::empty(), 1, None) {
        Err(Errno::AGAIN) => Finding::ok(what, "a sleeping process can be woken"),
        Ok(()) => Finding::missing(what, "futex wait did not compare its word", "use a kernel with futexes"),
        Err(error) => {
            Finding::missing(what, format!("futex wait: {error}"), "use a sandbox that allows the system call futex")
        }
    }
}

/// Number of open files that suffices for 16 groups of 5 with 16 clients, a generous estimate: a socket and an event
/// descriptor for each peer, and the descriptors of regions while they are passed on.
const OPEN_FILES: u64 = 1024;

/// Number of open files below which no member of any cluster starts.
const FEW_FILES: u64 = 24;

pub(super) fn open_files() -> Finding {
    let what = "open files limit";
    let remedy = format!("ulimit -n {OPEN_FILES}, or raise `nofile` in /etc/security/limits.conf");
    match getrlimit(Resource::Nofile).current {
        Some(n) if n < FEW_FILES => {
            Finding::missing(what, format!("{n}: no member of any cluster starts with so few"), remedy)
        }
        most => limit(what, most, OPEN_FILES, |n| n.to_string(), ": enough for small clusters only", remedy),
    }
}

/// Returns the finding about a limit. A limit of `enough` or more is good; `few` describes the consequence of a lower
/// one.
fn limit(
    what: &'static str,
    most: Option<u64>,
    enough: u64,
    tell: impl Fn(u64) -> String,
    few: &str,
    remedy: String,
) -> Finding {
    match most {
        Some(most) if most < enough => Finding::limited(what, tell(most) + few, remedy),
        Some(most) => Finding::ok(what, tell(most)),
        None => Finding::ok(what, "unlimited"),
    }
}

/// Size of a file that suffices for the memory of a small cluster's process and for a short history, in bytes.
const FILE_BYTES: u64 = 64 << 20;

/// Checks the limit of file sizes, which applies to shared memory as well.
pub(super) fn file_sizes() -> Finding {
    let few = ": no region of shared memory, history or capture can be longer";
    let remedy = "ulimit -f unlimited, or raise `fsize` in /etc/security/limits.conf".to_owned();
    limit("file sizes limit", getrlimit(Resource::Fsize).current, FILE_BYTES, bytes, few, remedy)
}

/// Number of processes and threads of a demonstration with 16 groups of 5, an estimate: for each member a process, its
/// janitor, and their threads.
const PROCESSES: u64 = 1024;

pub(super) fn processes() -> Finding {
    let few = " processes and threads of this user: enough for small clusters only";
    let remedy = format!("ulimit -u {PROCESSES}, or raise `nproc` in /etc/security/limits.conf");
    let most = getrlimit(Resource::Nproc).current;
    limit("processes limit", most, PROCESSES, |most| most.to_string(), few, remedy)
}
