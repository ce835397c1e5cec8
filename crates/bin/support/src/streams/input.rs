//! Reading standard input.

use std::io::{self, Read, stdin};

use rustix::event::PollFlags;
use rustix::io::read;

use super::retry;

/// Standard input without a buffer. If somebody has made it non-blocking it is waited for all the same.
pub struct StandardInput;

impl Read for StandardInput {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        retry(stdin(), PollFlags::IN, || read(stdin(), &mut *bytes))
    }
}
