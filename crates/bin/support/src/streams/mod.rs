//! Standard input, output and error, through which all commands speak.
//!
//! Whoever started this process, or shares a stream with it, may have made the stream non-blocking, may not read it, or may be
//! gone. "Not now" is waited for and never an error. Standard error is written by a thread of its own, so that nobody who
//! runs a protocol or answers a signal waits for its reader.

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

/// Waits until a stream is ready, or that long. Whether it is.
fn is_ready(stream: impl AsFd, flags: PollFlags, longest: Option<&Timespec>) -> std::io::Result<bool> {
    match poll(&mut [PollFd::new(&stream, flags)], longest) {
        Ok(ready) => Ok(ready > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Reads or writes. "Not now" is waited for.
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
