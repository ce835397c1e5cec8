//! Shared, sealed and locked memory.

use std::fs;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, ftruncate, memfd_create};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use stentor_support::bytes;

use super::Finding;

const PAGE: u64 = 4096;
const KERNEL: &str = "use Linux 5.1 or newer, and a sandbox that allows memfd_create and fcntl seals";

pub(super) fn memfd() -> Finding {
    let what = "anonymous shared memory";
    let made = memfd_create("stentor-doctor", MemfdFlags::CLOEXEC).and_then(|fd| ftruncate(fd, PAGE));
    match made {
        Ok(()) => Finding::ok(what, "memfd_create works; nothing in /dev/shm or /tmp is used for memory"),
        Err(error) => Finding::missing(what, format!("memfd_create: {error}"), KERNEL),
    }
}

/// Checks seals. Without them a peer could shrink the memory under a process that reads it.
pub(super) fn seals() -> Finding {
    let what = "seals on shared memory";
    match sealed() {
        Ok(()) => Finding::ok(what, "size and future writes can be sealed"),
        Err(error) => Finding::missing(what, format!("fcntl seals: {error}"), KERNEL),
    }
}

fn sealed() -> Result<(), Errno> {
    let fd = memfd_create("stentor-doctor", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, PAGE)?;
    let wanted = SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE | SealFlags::SEAL;
    fcntl_add_seals(&fd, wanted)?;
    let held = fcntl_get_seals(&fd)?.contains(wanted) && ftruncate(&fd, 2 * PAGE).is_err();
    if held { Ok(()) } else { Err(Errno::NOTSUP) }
}

pub(super) fn memlock() -> Finding {
    let what = "locked memory limit";
    let remedy = "nothing to do on shm, roce and sim; for RDMA devices raise `memlock` in /etc/security/limits.conf";
    match getrlimit(Resource::Memlock).current {
        None => Finding::ok(what, "unlimited"),
        Some(limit) => Finding::info(what, bytes(limit), remedy),
    }
}

pub(super) fn huge_pages() -> Finding {
    let what = "huge pages";
    let remedy = "nothing to do: no fabric of this version uses them";
    match fs::read_to_string("/proc/meminfo") {
        Ok(meminfo) => Finding::info(what, huge_pages_of(&meminfo), remedy),
        Err(error) => Finding::info(what, format!("/proc/meminfo: {error}"), remedy),
    }
}

fn huge_pages_of(meminfo: &str) -> String {
    let field = |name: &str| {
        let line = meminfo.lines().find(|line| line.starts_with(name))?;
        line[name.len()..].trim().trim_end_matches("kB").trim().parse::<u64>().ok()
    };
    match (field("HugePages_Total:"), field("HugePages_Free:"), field("Hugepagesize:")) {
        (Some(total), Some(free), Some(kib)) => format!("{total} of {}, {free} free", bytes(kib << 10)),
        _ => "this kernel has none".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn huge_pages_are_read_from_meminfo() {
        let text = "MemTotal: 1 kB\nHugePages_Total:       4\nHugePages_Free:        3\nHugepagesize:       2048 kB\n";
        assert_eq!(huge_pages_of(text), "4 of 2.0 MiB, 3 free");
        assert_eq!(huge_pages_of("MemTotal: 1 kB\n"), "this kernel has none");
    }
}
