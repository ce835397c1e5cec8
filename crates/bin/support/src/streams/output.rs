//! Writes standard output.

use std::io::{self, ErrorKind, Write, stdout};

use rustix::event::{PollFlags, Timespec};
use rustix::fd::AsFd;
use rustix::io::{Errno, write};

use super::{is_ready, retry};

/// POSIX's `PIPE_BUF` on Linux, in bytes. A pipe that polls as writable accepts this many without blocking.
const PIPE_BYTES: usize = 4096;
/// Interval at which a blocked writer checks whether it should stop.
const LOOK: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// Unbuffered standard output. Writes block while the stream is not read.
pub struct StandardOutput;

impl Write for StandardOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        retry(stdout(), PollFlags::OUT, || write(stdout(), bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes to standard output until all bytes are written or `stopping` returns `true`. Returns the number of bytes that
/// were not written.
///
/// # Errors
/// Returns the error of the system, which is [`ErrorKind::BrokenPipe`] if the reader has closed the stream.
pub fn write_until(bytes: &[u8], stopping: &dyn Fn() -> bool) -> io::Result<usize> {
    write_to(stdout(), bytes, stopping)
}

pub(super) fn write_to(stream: impl AsFd, mut bytes: &[u8], stopping: &dyn Fn() -> bool) -> io::Result<usize> {
    while !bytes.is_empty() {
        if !is_ready(&stream, PollFlags::OUT, Some(&LOOK))? {
            if stopping() {
                return Ok(bytes.len());
            }
            continue;
        }
        match write(&stream, &bytes[..bytes.len().min(PIPE_BYTES)]) {
            Ok(0) => return Err(ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    #[test]
    fn full_pipe_is_waited_for_until_the_writer_is_to_stop() {
        let (_reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let looks = Cell::new(0);
        let stopping = || {
            looks.set(looks.get() + 1);
            looks.get() > 2
        };
        let left = write_to(&writer, &vec![7; 1 << 20], &stopping).unwrap();
        assert!(left > 0 && left < 1 << 20, "{left}");
        assert_eq!(looks.get(), 3);
    }

    #[test]
    fn closed_reader_is_an_error() {
        let (reader, writer) = pipe_with(PipeFlags::empty()).unwrap();
        drop(reader);
        assert_eq!(write_to(&writer, b"x", &|| false).unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
