//! Memory as file descriptors: made with seals, and believed only with seals.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{
    MemfdFlags, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate, memfd_create,
};
use rustix::io;
use stentor_fabric::memory::WORD;

/// The seals without which a peer could shrink memory that we have mapped, and kill us with SIGBUS.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);

/// Zeroed memory of a fixed size.
///
/// Its pages come as they are touched, and none of them can fail by SIGBUS: memfds are on a tmpfs of the kernel's own, which has no
/// limit, whatever `/dev/shm` has. Where memory is accounted strictly, `ftruncate` fails. Allocating all of it here would take
/// memory for clients that never come. Whether there is enough is looked at before the start, by whoever knows what is needed.
///
/// # Errors
/// What the system says.
pub fn create(name: &str, bytes: u64) -> io::Result<OwnedFd> {
    let fd = memfd_create(name, MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&fd, bytes)?;
    fcntl_add_seals(&fd, SIZE_SEALS)?;
    Ok(fd)
}

/// Forbids further seals.
///
/// # Errors
/// What the system says.
pub fn finish(fd: &OwnedFd) -> io::Result<()> {
    fcntl_add_seals(fd, SealFlags::SEAL)
}

/// Forbids further seals and, to whoever has not mapped the memory yet, writing.
///
/// # Errors
/// What the system says.
pub fn finish_read_only(fd: &OwnedFd) -> io::Result<()> {
    fcntl_add_seals(fd, SealFlags::FUTURE_WRITE | SealFlags::SEAL)
}

/// Another descriptor of the same memory, through which it cannot be written.
///
/// # Errors
/// What the system says.
pub fn read_only(fd: &OwnedFd) -> io::Result<OwnedFd> {
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(fd));
    rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
}

/// Checks that memory that a peer passed is as large as it says and stays so. Returns its size in words.
///
/// # Errors
/// What is wrong, in words.
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
