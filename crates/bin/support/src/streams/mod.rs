//! Standard input, output and error, which all commands use.
//!
//! Another process that shares a stream with this one may have made the stream non-blocking, may not read it, or may
//! have closed it. After `EAGAIN`, reads and writes wait and try again. A separate thread writes standard error, so
//! that threads that run a protocol or handle signals do not wait for its reader.

mod errors;
mod input;
mod output;
mod partial;
mod screen;

pub use errors::{complain, finish, flush_errors};
pub use input::StandardInput;
pub use output::{StandardOutput, write_until};
pub use partial::{Existing, PLAIN, Partial, SECRET, remove_partial_files, write_whole};
pub use screen::Screen;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::AsFd;
use rustix::io::Errno;

/// Waits until a stream is ready, for at most `longest`. Returns whether it is.
fn is_ready(stream: impl AsFd, flags: PollFlags, longest: Option<&Timespec>) -> std::io::Result<bool> {
    match poll(&mut [PollFd::new(&stream, flags)], longest) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads or writes, and waits while the stream returns `EAGAIN`.
fn retry(
    stream: impl AsFd,
    flags: PollFlags,
    mut attempt: impl FnMut() -> Result<usize, Errno>,
) -> std::io::Result<usize> {
    loop {
        match attempt() {
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => drop(is_ready(&stream, flags, None)?),
            done => return Ok(done?),
        }
    }
}
