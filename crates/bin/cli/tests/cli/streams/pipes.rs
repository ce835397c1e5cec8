//! Streams for a command: empty, full, or without a reader. A constructor of an unusual stream checks that the stream
//! behaves as intended.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::pipe::{PipeFlags, pipe_with};

fn pipe() -> (OwnedFd, OwnedFd) {
    pipe_with(PipeFlags::CLOEXEC).unwrap()
}

fn set_blocking(end: &OwnedFd, blocking: bool) {
    let flags = fcntl_getfl(end).unwrap();
    fcntl_setfl(end, if blocking { flags - OFlags::NONBLOCK } else { flags | OFlags::NONBLOCK }).unwrap();
}

/// Returns an input for a command, and the end to write to.
pub(super) fn input(nonblocking: bool) -> (Stdio, File) {
    let (reader, writer) = pipe();
    if nonblocking {
        set_blocking(&reader, false);
        let mut ours = File::from(reader.try_clone().unwrap());
        assert_eq!(ours.read(&mut [0]).unwrap_err().kind(), ErrorKind::WouldBlock, "an empty pipe returns an error");
    }
    (reader.into(), File::from(writer))
}

/// Returns a full pipe for a command, blocking or not, and its reading end.
pub(super) fn full(blocking: bool) -> (Stdio, File) {
    let (reader, writer) = pipe();
    set_blocking(&writer, false);
    let mut ours = File::from(writer.try_clone().unwrap());
    while ours.write(&[b'.'; 4096]).is_ok() {}
    set_blocking(&writer, blocking);
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    let ready = poll(&mut [PollFd::new(&writer, PollFlags::OUT)], Some(&now)).unwrap();
    assert_eq!(ready, 0, "the pipe is full");
    (writer.into(), File::from(reader))
}

/// Returns a pipe whose reader is closed.
pub(super) fn gone() -> Stdio {
    let (reader, writer) = pipe();
    drop(reader);
    let mut ours = File::from(writer.try_clone().unwrap());
    assert_eq!(ours.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe, "the pipe has no reader");
    writer.into()
}
