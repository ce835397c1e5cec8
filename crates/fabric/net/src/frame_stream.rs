//! The frames of a control connection, over a TCP stream that never blocks.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// Maximum number of bytes that wait to be sent. Beyond it the connection is closed.
const MAX_BEHIND: usize = 8 << 20;
/// Maximum length of a frame, in bytes.
const MAX_FRAME: usize = 512;

/// Time after which a silent connection is closed. The peer's host may have lost power, and with it the state of the
/// connection. While this end keeps the old connection, the peer cannot reconnect. A peer that is busy or stopped does
/// not count as silent, because its kernel acknowledges.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);
/// Number of keep-alive probes sent within `SILENCE`.
const PROBES: u32 = 4;

/// A stream of frames: each is a length followed by that number of bytes.
#[derive(Debug)]
pub(crate) struct FrameStream {
    pub(crate) socket: TcpStream,
    inbound: Vec<u8>,
    outbound: Vec<u8>,
    pub(crate) dead: bool,
    /// `true` if the other end closed the connection.
    closed: bool,
    /// Error of the operating system that ended the connection, if one did.
    pub(crate) fault: Option<io::Error>,
}

impl FrameStream {
    pub(crate) fn new(socket: TcpStream) -> io::Result<FrameStream> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let pause = SILENCE / (PROBES + 1);
        sockopt::set_socket_keepalive(&socket, true)?;
        sockopt::set_tcp_keepidle(&socket, pause)?;
        sockopt::set_tcp_keepintvl(&socket, pause)?;
        sockopt::set_tcp_keepcnt(&socket, PROBES)?;
        // The same limit applies to sent data that is not acknowledged.
        sockopt::set_tcp_user_timeout(&socket, SILENCE.as_millis() as u32)?;
        Ok(FrameStream { socket, inbound: Vec::new(), outbound: Vec::new(), dead: false, closed: false, fault: None })
    }

    /// Returns the parts of the stream: the socket, the unread bytes, and the unsent bytes.
    pub(crate) fn into_parts(self) -> (TcpStream, Vec<u8>, Vec<u8>) {
        (self.socket, self.inbound, self.outbound)
    }

    /// Returns whether the connection ended because the other end closed it, or because the other end's kernel no
    /// longer knows the connection. Returns `false` if the other end was silent for too long, or sent an invalid frame.
    pub(crate) fn was_closed(&self) -> bool {
        self.closed
            || self
                .fault
                .as_ref()
                .is_some_and(|fault| [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&fault.kind()))
    }

    /// Queues a frame and sends as much as the socket accepts.
    pub(crate) fn send(&mut self, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.outbound.extend((bytes as u16).to_be_bytes());
        parts.iter().for_each(|part| self.outbound.extend(*part));
        self.drain();
    }

    /// Sends as much as the socket accepts.
    pub(crate) fn drain(&mut self) {
        while !self.outbound.is_empty() && !self.dead {
            match self.socket.write(&self.outbound) {
                Ok(0) => self.dead = true,
                Ok(sent) => drop(self.outbound.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.dies_of(error),
            }
        }
        self.dead |= self.outbound.len() > MAX_BEHIND;
    }

    fn dies_of(&mut self, error: io::Error) {
        self.dead = true;
        self.fault.get_or_insert(error);
    }

    /// Returns whether bytes are waiting to be sent. On a new connection they wait until the peer's kernel accepts it.
    pub(crate) fn is_behind(&self) -> bool {
        !self.outbound.is_empty()
    }

    /// Returns the next frame, if it is complete. Frames from before the end of the connection are still returned.
    pub(crate) fn receive(&mut self) -> Option<Vec<u8>> {
        if let Some(frame) = self.frame() {
            return Some(frame);
        }
        let mut buffer = [0; 4096];
        loop {
            match self.socket.read(&mut buffer) {
                Ok(0) => (self.dead, self.closed) = (true, true),
                Ok(count) => {
                    self.inbound.extend(&buffer[..count]);
                    if self.inbound.len() < 16 * MAX_FRAME {
                        continue;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => self.dies_of(error),
            }
            return self.frame();
        }
    }

    fn frame(&mut self) -> Option<Vec<u8>> {
        let (length, rest) = self.inbound.split_first_chunk::<2>()?;
        let length = usize::from(u16::from_be_bytes(*length));
        if length > MAX_FRAME {
            self.dead = true;
            return None;
        }
        let frame = rest.get(..length)?.to_vec();
        self.inbound.drain(..2 + length);
        Some(frame)
    }
}

/// Begins a connection from this process's address, because a peer may admit only that address of a host with several.
/// The polling thread does not wait for the peer to accept. Bytes written meanwhile are kept, and reading reports a
/// refusal.
pub(crate) fn connect(from: IpAddr, to: SocketAddr) -> io::Result<TcpStream> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    net::bind(&socket, &SocketAddr::new(from, 0))?;
    match net::connect(&socket, &to) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(TcpStream::from(socket)),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Returns a frame stream and the socket at its other end.
    fn pair() -> (FrameStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let frames = FrameStream::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap()).unwrap();
        (frames, listener.accept().unwrap().0)
    }

    fn until_dead(frames: &mut FrameStream) {
        while !frames.dead {
            assert_eq!(frames.receive(), None);
            std::thread::yield_now();
        }
    }

    #[test]
    fn only_a_closed_or_reset_connection_counts_as_closed() {
        let (mut frames, other) = pair();
        drop(other);
        until_dead(&mut frames);
        assert!(frames.was_closed(), "closed");
        // Closing a socket with unread data resets the connection.
        let (mut frames, other) = pair();
        frames.send(&[b"unread"]);
        while other.peek(&mut [0; 1]).unwrap() == 0 {}
        drop(other);
        until_dead(&mut frames);
        assert!(frames.was_closed(), "reset: {:?}", frames.fault);
        let (mut frames, mut other) = pair();
        other.write_all(&u16::MAX.to_be_bytes()).unwrap();
        until_dead(&mut frames);
        assert!(!frames.was_closed(), "too long a frame");
        let (mut frames, _other) = pair();
        frames.dies_of(ErrorKind::TimedOut.into());
        assert!(frames.dead && !frames.was_closed(), "silent");
        let (mut frames, _other) = pair();
        frames.dies_of(ErrorKind::BrokenPipe.into());
        assert!(frames.was_closed(), "written to after it was closed");
    }

    #[test]
    fn a_silent_host_is_probed_and_dropped() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let frames = FrameStream::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap()).unwrap();
        assert!(sockopt::socket_keepalive(&frames.socket).unwrap());
        let idle = sockopt::tcp_keepidle(&frames.socket).unwrap();
        let interval = sockopt::tcp_keepintvl(&frames.socket).unwrap();
        assert_eq!(idle + sockopt::tcp_keepcnt(&frames.socket).unwrap() * interval, SILENCE);
        assert_eq!(u128::from(sockopt::tcp_user_timeout(&frames.socket).unwrap()), SILENCE.as_millis());
    }
}
