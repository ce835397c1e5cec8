//! Reads standard input.

use std::io::{self, Read, stdin};

use rustix::event::PollFlags;
use rustix::io::read;

use super::retry;

/// Unbuffered standard input. Reads block even if another process has made the stream non-blocking.
pub struct StandardInput;

impl Read for StandardInput {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        retry(stdin(), PollFlags::IN, || read(stdin(), &mut *bytes))
    }
}
