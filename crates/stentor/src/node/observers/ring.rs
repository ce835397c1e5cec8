//! An eventfd by which one thread wakes another.

use std::os::fd::OwnedFd;

use rustix::event::{EventfdFlags, eventfd};

pub(super) fn make() -> std::io::Result<OwnedFd> {
    Ok(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?)
}

pub(super) fn ring(bell: &OwnedFd) {
    // The write fails only if the counter is full, and then the other thread wakes anyway.
    let _ = rustix::io::write(bell, &1_u64.to_ne_bytes());
}

pub(super) fn hear(bell: &OwnedFd) {
    let _ = rustix::io::read(bell, &mut [0_u8; 8]);
}
