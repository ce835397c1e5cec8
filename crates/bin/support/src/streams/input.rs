//! Reading standard input.

use std::io::{self, Read, stdin};

use rustix::event::PollFlags;
use rustix::io::{Errno, read};

use super::is_ready;

/// Standard input without a buffer. If somebody has made it non-blocking it is waited for all the same.
pub struct StandardInput;

impl Read for StandardInput {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match read(stdin(), &mut *bytes) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    is_ready(stdin(), PollFlags::IN, None)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
