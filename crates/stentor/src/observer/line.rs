//! Frames over a non-blocking byte stream: a Unix socket of the same user, or a TCP connection with sealed frames.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use stentor_fabric_net::observe::{self, Seals};

use super::fields::Fields;
use super::frame::Frame;

/// Number of bytes that are read at once.
const READ: usize = 64 << 10;
/// Size of a frame's length field, in bytes.
const LENGTH: usize = 4;

#[derive(Debug)]
enum Stream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// The reason why a connection has ended.
#[derive(Debug)]
pub(crate) enum LineError {
    /// The other end closed the connection.
    Closed,
    /// The operating system reported an error.
    System(io::Error),
    /// The received bytes are not a valid frame, or were not sent by the other end.
    Garbage,
}

/// One end of a connection between a member and an observer.
///
/// # Bounds
/// A line buffers at most one frame to send (two if the second one ends the connection), and at most one received frame
/// plus [`READ`] bytes.
#[derive(Debug)]
pub(crate) struct Line {
    stream: Stream,
    /// The seals of a connection between hosts. There, each frame is followed by its seal.
    seals: Option<Seals>,
    inbound: Vec<u8>,
    /// Number of bytes of `inbound` that were processed.
    read: usize,
    outbound: Vec<u8>,
    /// Number of bytes of `outbound` that were sent.
    sent: usize,
    /// Maximum length of a frame from the other end.
    longest: usize,
}

impl Line {
    /// Wraps a connection to or from a process of the same user on this host. `unread` was received on it before.
    pub(crate) fn unix(stream: UnixStream, longest: usize, unread: Vec<u8>) -> io::Result<Line> {
        stream.set_nonblocking(true)?;
        Ok(Line::new(Stream::Unix(stream), None, longest, unread, Vec::new()))
    }

    /// Wraps a connection between hosts.
    pub(crate) fn tcp(line: observe::Line, longest: usize) -> Line {
        let observe::Line { socket, seals, unread, unsent } = line;
        Line::new(Stream::Tcp(socket), Some(seals), longest, unread, unsent)
    }

    fn new(stream: Stream, seals: Option<Seals>, longest: usize, inbound: Vec<u8>, outbound: Vec<u8>) -> Line {
        Line { stream, seals, inbound, read: 0, outbound, sent: 0, longest }
    }

    /// Returns whether bytes wait to be sent.
    pub(crate) fn is_behind(&self) -> bool {
        self.sent < self.outbound.len()
    }

    /// Queues a frame. Call this only while no bytes [wait](Line::is_behind), except for a frame that ends the
    /// connection.
    pub(crate) fn send(&mut self, frame: &Frame<'_>) {
        let at = self.outbound.len();
        if let Frame::Records(bytes) | Frame::Piece(bytes) = frame {
            self.outbound.reserve_exact(LENGTH + 1 + bytes.len() + Seals::BYTES);
        }
        self.outbound.extend([0; LENGTH]);
        frame.write(&mut self.outbound);
        let bytes = self.outbound.len() - at - LENGTH;
        self.outbound[at..at + LENGTH].copy_from_slice(&(bytes as u32).to_be_bytes());
        if let Some(seals) = &mut self.seals {
            let seal = seals.seal(&self.outbound[at + LENGTH..]);
            self.outbound.extend(seal);
        }
    }

    /// Sends as many bytes as possible. Returns whether it sent any.
    pub(crate) fn flush(&mut self) -> Result<bool, LineError> {
        let before = self.sent;
        while self.sent < self.outbound.len() {
            let bytes = &self.outbound[self.sent..];
            let written = match &mut self.stream {
                Stream::Unix(stream) => stream.write(bytes),
                Stream::Tcp(stream) => stream.write(bytes),
            };
            match written {
                Ok(0) => return Err(LineError::Closed),
                Ok(bytes) => self.sent += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(self.sent > before),
                Err(error) => return Err(ended(error)),
            }
        }
        let sent = self.sent > before;
        self.sent = 0;
        self.outbound.clear();
        Ok(sent)
    }

    /// Returns the next complete frame of the other end, if there is one. Frames that were received before the
    /// connection's end are returned before the error.
    pub(crate) fn receive(&mut self) -> Result<Option<Frame<'_>>, LineError> {
        let seal = if self.seals.is_some() { Seals::BYTES } else { 0 };
        let (at, bytes) = loop {
            match self.frame(seal)? {
                Some(found) => break found,
                None if !self.read_more()? => return Ok(None),
                None => {}
            }
        };
        self.read = at + bytes + seal;
        let (frame, sealed) = self.inbound[at..at + bytes + seal].split_at(bytes);
        if let Some(seals) = &mut self.seals
            && !seals.open(frame, sealed)
        {
            return Err(LineError::Garbage);
        }
        Frame::read(frame).map(Some).ok_or(LineError::Garbage)
    }

    /// Returns the offset and the length of the next complete frame.
    fn frame(&self, seal: usize) -> Result<Option<(usize, usize)>, LineError> {
        let mut rest = Fields(&self.inbound[self.read..]);
        let Some(bytes) = rest.u32() else { return Ok(None) };
        let bytes = bytes as usize;
        if bytes > self.longest {
            return Err(LineError::Garbage);
        }
        Ok(rest.take(bytes + seal).map(|_| (self.read + LENGTH, bytes)))
    }

    /// Reads available bytes. Returns `false` if there are none now.
    fn read_more(&mut self) -> Result<bool, LineError> {
        self.inbound.drain(..self.read);
        self.read = 0;
        let at = self.inbound.len();
        // If frames are short, a small buffer is sufficient.
        self.inbound.resize(at + READ.min(2 * self.longest), 0);
        let into = &mut self.inbound[at..];
        let read = match &mut self.stream {
            Stream::Unix(stream) => stream.read(into),
            Stream::Tcp(stream) => stream.read(into),
        };
        self.inbound.truncate(at + *read.as_ref().unwrap_or(&0));
        match read {
            Ok(0) => Err(LineError::Closed),
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(ended(error)),
        }
    }
}

fn ended(error: io::Error) -> LineError {
    match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => LineError::Closed,
        _ => LineError::System(error),
    }
}

impl AsFd for Line {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stream {
            Stream::Unix(stream) => stream.as_fd(),
            Stream::Tcp(stream) => stream.as_fd(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::frame::{LONGEST, LONGEST_ASKED};
    use super::*;

    fn pair(longest: usize) -> (UnixStream, Line) {
        let (one, other) = UnixStream::pair().expect("a pair");
        (one, Line::unix(other, longest, Vec::new()).expect("a line"))
    }

    #[test]
    fn frames_are_reassembled_and_returned_before_the_end() {
        let (mut one, mut line) = pair(LONGEST_ASKED);
        let mut bytes = Vec::new();
        for index in [1, 2] {
            bytes.extend([0, 0, 0, 9]);
            Frame::Alive(index).write(&mut bytes);
        }
        let whole = bytes.len() / 2;
        for (at, byte) in bytes[..20].iter().enumerate() {
            one.write_all(&[*byte]).expect("the socket has room");
            let came = line.receive().expect("the line is intact");
            assert_eq!(came, (at + 1 == whole).then_some(Frame::Alive(1)), "{at}");
        }
        one.write_all(&bytes[20..]).expect("the socket has room");
        drop(one);
        assert_eq!(line.receive().expect("the frame is complete"), Some(Frame::Alive(2)));
        assert!(matches!(line.receive(), Err(LineError::Closed)));
    }

    #[test]
    fn a_frame_that_is_too_long_or_invalid_ends_the_line() {
        for bytes in [&[0, 0, 0, 65][..], &[255; 9], &[0, 0, 0, 1, 99], &[0, 0, 0, 0]] {
            let (mut one, mut line) = pair(LONGEST_ASKED);
            one.write_all(bytes).expect("the socket has room");
            assert!(matches!(line.receive(), Err(LineError::Garbage)), "{bytes:?}");
        }
    }

    #[test]
    fn a_line_keeps_its_frames_while_the_other_end_does_not_read() {
        let (one, mut line) = pair(LONGEST);
        let mut reads = Line::unix(one, LONGEST, Vec::new()).expect("a line");
        let bytes = vec![7; 50_000];
        let mut sent = 0;
        while !line.is_behind() {
            line.send(&Frame::Piece(&bytes));
            line.flush().expect("the line is open");
            sent += 1;
        }
        assert!(!line.flush().expect("the line is open"), "there is no room");
        for _ in 0..sent {
            while reads.receive().expect("the line is intact").is_none() {
                line.flush().expect("the line is open");
            }
        }
        assert!(!line.is_behind());
    }
}
