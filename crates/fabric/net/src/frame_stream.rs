//! A control connection: frames in and out of a TCP stream that never blocks.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};

/// Bytes that wait to be sent before the other end is given up.
const MAX_BEHIND: usize = 8 << 20;
/// The longest frame, bytes.
const MAX_FRAME: usize = 512;

/// A host that is silent so long is gone: it may have lost its power, and with it all knowledge of this connection, so that it
/// could never come back as long as its old connection stands. Processes that are busy or stopped do not count as silent:
/// their kernel answers.
pub(crate) const SILENCE: Duration = Duration::from_secs(10);
/// Of the silence so many parts are asked for in turn.
const PROBES: u32 = 4;

/// Frames of a length and so many bytes.
#[derive(Debug)]
pub(crate) struct FrameStream {
    pub(crate) socket: TcpStream,
    inbound: Vec<u8>,
    outbound: Vec<u8>,
    pub(crate) dead: bool,
    /// The other end closed it.
    closed: bool,
    /// What the system said when it died; nothing if the other end closed it.
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
        // The same for what was sent and is not acknowledged.
        sockopt::set_tcp_user_timeout(&socket, SILENCE.as_millis() as u32)?;
        Ok(FrameStream { socket, inbound: Vec::new(), outbound: Vec::new(), dead: false, closed: false, fault: None })
    }

    /// Takes it apart: the socket, what came and was not received, and what was not sent.
    pub(crate) fn into_parts(self) -> (TcpStream, Vec<u8>, Vec<u8>) {
        (self.socket, self.inbound, self.outbound)
    }

    /// Whether it is dead because the other end closed it, or its system knows nothing of it. Not if it was silent too long, or said what
    /// cannot be.
    pub(crate) fn was_closed(&self) -> bool {
        self.closed
            || self
                .fault
                .as_ref()
                .is_some_and(|fault| [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe].contains(&fault.kind()))
    }

    /// Queues a frame and sends what can be sent.
    pub(crate) fn send(&mut self, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.outbound.extend((bytes as u16).to_be_bytes());
        parts.iter().for_each(|part| self.outbound.extend(*part));
        self.drain();
    }

    /// Sends what can be sent.
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

    /// Whether something waits to be sent: of a connection that begins, until the peer's kernel takes it.
    pub(crate) fn is_behind(&self) -> bool {
        !self.outbound.is_empty()
    }

    /// The next frame, if a whole one is there. What came before the end is still given.
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

/// Begins a connection, from this process's own address: on a host with several, others may only let that one in. The polling
/// thread does not wait until the peer takes it; what is written meanwhile is kept, and if nobody takes it reading says so.
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

    /// An end and the socket at the other one.
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
    fn who_closes_or_resets_its_end_is_told_from_who_is_silent_or_says_what_cannot_be() {
        let (mut frames, other) = pair();
        drop(other);
        until_dead(&mut frames);
        assert!(frames.was_closed(), "closed");
        // What it has not read when it ends resets the connection.
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
    fn a_silent_host_is_asked_and_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let frames = FrameStream::new(TcpStream::connect(listener.local_addr().unwrap()).unwrap()).unwrap();
        assert!(sockopt::socket_keepalive(&frames.socket).unwrap());
        let idle = sockopt::tcp_keepidle(&frames.socket).unwrap();
        let interval = sockopt::tcp_keepintvl(&frames.socket).unwrap();
        assert_eq!(idle + sockopt::tcp_keepcnt(&frames.socket).unwrap() * interval, SILENCE);
        assert_eq!(u128::from(sockopt::tcp_user_timeout(&frames.socket).unwrap()), SILENCE.as_millis());
    }
}
