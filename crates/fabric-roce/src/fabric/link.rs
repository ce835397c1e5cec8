//! A bootstrap connection: frames in and out of a TCP stream that never blocks.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;

/// Bytes that wait to be sent before the other end is given up.
const MAX_BEHIND: usize = 8 << 20;
/// The longest frame, bytes.
const MAX_FRAME: usize = 512;

/// Frames of a length and so many bytes.
#[derive(Debug)]
pub(super) struct Link {
    pub(super) stream: TcpStream,
    inbound: Vec<u8>,
    outbound: Vec<u8>,
    pub(super) dead: bool,
}

impl Link {
    pub(super) fn new(stream: TcpStream) -> std::io::Result<Link> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Link { stream, inbound: Vec::new(), outbound: Vec::new(), dead: false })
    }

    /// Queues a frame and sends what can be sent.
    pub(super) fn send(&mut self, parts: &[&[u8]]) {
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        self.outbound.extend((bytes as u16).to_be_bytes());
        parts.iter().for_each(|part| self.outbound.extend(*part));
        self.drain();
    }

    /// Sends what can be sent.
    pub(super) fn drain(&mut self) {
        while !self.outbound.is_empty() && !self.dead {
            match self.stream.write(&self.outbound) {
                Ok(0) => self.dead = true,
                Ok(sent) => drop(self.outbound.drain(..sent)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.dead = true,
            }
        }
        self.dead |= self.outbound.len() > MAX_BEHIND;
    }

    /// The next frame, if a whole one is there. What came before the end is still given.
    pub(super) fn receive(&mut self) -> Option<Vec<u8>> {
        if let Some(frame) = self.frame() {
            return Some(frame);
        }
        let mut buffer = [0; 4096];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => self.dead = true,
                Ok(count) => {
                    self.inbound.extend(&buffer[..count]);
                    if self.inbound.len() < 16 * MAX_FRAME {
                        continue;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => self.dead = true,
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
