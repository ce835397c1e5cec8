//! Shared memory as file descriptors: created with seals, and accepted from a peer only with seals.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io;
use stentor_fabric::memory::WORD;

/// Seals of the size. Without them a peer could shrink memory that this process has mapped. An access to the missing
/// pages would then kill this process with SIGBUS.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Creates zeroed memory of a fixed size.
///
/// The kernel allocates pages when they are touched. Memfds are on an internal tmpfs of the kernel, which has no limit,
/// whatever limit `/dev/shm` has. However, under strict memory accounting (`vm.overcommit_memory` = 2) the kernel
/// counts each page when it is touched, and an access beyond the limit fails with SIGBUS. Allocating all pages here
/// would use memory for clients that never connect. The caller must check before the start whether there is enough
/// memory, because only the caller knows how much is needed.
///
/// # Errors
/// Returns the error of the operating system.
pub fn create(name: &str, bytes: u64) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, bytes)?;
    fcntl_add_seals(&fd, SIZE_SEALS)?;
    Ok(fd)
}

/// Forbids further seals.
///
/// # Errors
/// Returns the error of the operating system.
pub fn finish(fd: &OwnedFd) -> io::Result<()> {
    fcntl_add_seals(fd, SealFlags::SEAL)
}

/// Forbids further seals and future writable mappings. Existing mappings stay writable.
///
/// # Errors
/// Returns the error of the operating system.
pub fn finish_read_only(fd: &OwnedFd) -> io::Result<()> {
    fcntl_add_seals(fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL)
}

/// Returns another descriptor of the same memory, which does not permit writing.
///
/// # Errors
/// Returns the error of the operating system.
pub fn read_only(fd: &OwnedFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(fd));
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Checks that memory from a peer has the announced size, and that this size is sealed. Returns the size in words.
///
/// # Errors
/// Returns a description of the problem.
pub fn verify(fd: BorrowedFd<'_>, bytes: u64) -> Result<usize, String> {
    let seals = fcntl_get_seals(fd.as_fd()).map_err(|_| "it is no memfd".to_owned())?;
    if !seals.contains(SIZE_SEALS) {
        return Err("its size is not sealed (F_SEAL_SHRINK and F_SEAL_GROW are missing)".to_owned());
    }
    let size = fstat(fd).map_err(|error| format!("fstat: {error}"))?.st_size;
    if u64::try_from(size) != Ok(bytes) {
        return Err(format!("it is truncated: {size} bytes where {bytes} were announced"));
    }
    if bytes == 0 || !bytes.is_multiple_of(WORD as u64) {
        return Err(format!("{bytes} bytes are not a whole number of words"));
    }
    usize::try_from(bytes / WORD as u64).map_err(|_| format!("{bytes} bytes cannot be addressed here"))
}
