//! A bell between two threads.

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};

pub(super) fn make() -> std::io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

pub(super) fn ring(bell: &OwnedFd) {
    // A bell that rings already takes no more, and needs no more.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

pub(super) fn hear(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0_u8; 8]);
}
