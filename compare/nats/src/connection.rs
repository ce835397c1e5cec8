//! A connection to a NATS server. It implements the parts of the text protocol that a publisher and a subscriber need.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// Maximum time for a server to start, and maximum time without bytes from the server.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Maximum number of bytes of one read.
const CHUNK: usize = 1 << 18;

/// An operation that a server has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// A message with this payload size in bytes.
    Message(usize),
    /// The server checks whether the client is alive.
    Ping,
    /// The server replies to the client's check.
    Pong,
    /// An operation that needs no reply.
    Other,
}

/// The received bytes that have not been parsed.
#[derive(Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// Offset of the first byte that has not been parsed.
    at: usize,
}

impl Inbox {
    /// Adds received bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next complete operation, or `None` if there is none yet.
    ///
    /// # Errors
    /// Returns an error if the server reports an error, or sends bytes that are not an operation of the protocol.
    pub fn next(&mut self) -> Result<Option<Said>> {
        let rest = &self.bytes[self.at..];
        let Some(length) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
        let line = std::str::from_utf8(&rest[..length]).context("the server sent a line that is not text")?;
        let mut taken = length + 2;
        let (word, arguments) = line.split_once([' ', '\t']).unwrap_or((line, ""));
        let said = match word {
            "MSG" => {
                let size = arguments.split_whitespace().last().and_then(|size| size.parse().ok());
                let size: usize = size.with_context(|| format!("{line:?} has no size"))?;
                taken += size + 2;
                if rest.len() < taken {
                    return Ok(None);
                }
                ensure!(rest[..taken].ends_with(b"\r\n"), "a message of {size} bytes has no end");
                Said::Message(size)
            }
            "PING" => Said::Ping,
            "PONG" => Said::Pong,
            "INFO" | "+OK" => Said::Other,
            _ => bail!("the server sent {line:?}"),
        };
        self.at += taken;
        Ok(Some(said))
    }
}

/// A connection to a server.
pub struct Connection {
    stream: TcpStream,
    inbox: Inbox,
    chunk: Vec<u8>,
    /// The bytes that have to be written.
    outbox: Vec<u8>,
}

impl Connection {
    /// Connects, retries while the server is not ready, and sends `hello`.
    ///
    /// # Errors
    /// Returns an error if no server accepts the connection within [`PATIENCE`], or the server reports an error.
    pub fn open(server: &str, hello: &str) -> Result<Self> {
        let until = Instant::now() + PATIENCE;
        let stream = loop {
            match TcpStream::connect(server) {
                Ok(stream) => break stream,
                Err(error) if Instant::now() > until => {
                    return Err(error).with_context(|| format!("no NATS server at {server}"));
                }
                Err(_) => sleep(Duration::from_millis(20)),
            }
        };
        stream.set_nodelay(true)?;
        let mut connection = Connection { stream, inbox: Inbox::default(), chunk: vec![0; CHUNK], outbox: Vec::new() };
        connection.queue(b"CONNECT {\"verbose\":false,\"pedantic\":false,\"lang\":\"rust\",\"version\":\"0\"}\r\n");
        connection.queue(hello.as_bytes());
        connection.queue(b"PING\r\n");
        connection.flush()?;
        while connection.next_said()? != Said::Pong {}
        Ok(connection)
    }

    /// Returns the socket, for `poll`.
    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Queues bytes for writing.
    pub fn queue(&mut self, bytes: &[u8]) {
        self.outbox.extend_from_slice(bytes);
    }

    /// Returns the number of queued bytes.
    pub fn queued(&self) -> usize {
        self.outbox.len()
    }

    /// Writes the queued bytes. A non-blocking socket may accept only a part of them.
    ///
    /// # Errors
    /// Returns an error if the connection is broken.
    pub fn flush(&mut self) -> Result<()> {
        let mut written = 0;
        while written < self.outbox.len() {
            match self.stream.write(&self.outbox[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error).context("writing to the NATS server"),
            }
        }
        self.outbox.drain(..written);
        Ok(())
    }

    /// Reads once. Returns whether bytes were received.
    ///
    /// # Errors
    /// Returns an error if the connection is broken.
    pub fn fill(&mut self) -> Result<bool> {
        match self.stream.read(&mut self.chunk) {
            Ok(0) => bail!("the NATS server ended the connection: it does so when a subscriber is too slow"),
            Ok(count) => {
                self.inbox.extend(&self.chunk[..count]);
                Ok(true)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error).context("reading from the NATS server"),
        }
    }

    /// Returns the next received operation. Replies to the server's checks.
    ///
    /// # Errors
    /// Returns an error if the server reports an error.
    pub fn said(&mut self) -> Result<Option<Said>> {
        let said = self.inbox.next()?;
        if said == Some(Said::Ping) {
            self.queue(b"PONG\r\n");
        }
        Ok(said)
    }

    /// Waits for the next operation on a blocking socket.
    ///
    /// # Errors
    /// Returns an error if nothing arrives within [`PATIENCE`], or the connection is broken.
    pub fn next_said(&mut self) -> Result<Said> {
        self.stream.set_read_timeout(Some(PATIENCE))?;
        loop {
            if let Some(said) = self.said()? {
                self.flush()?;
                return Ok(said);
            }
            ensure!(self.fill()?, "the NATS server sent nothing for {} s", PATIENCE.as_secs());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_is_returned_when_it_is_complete() {
        let mut inbox = Inbox::default();
        inbox.extend(b"MSG compare 1 4\r\n\r\n\r");
        assert_eq!(inbox.next().unwrap(), None);
        inbox.extend(b"\n\r\nPING\r\nMSG a b 1 r");
        assert_eq!(inbox.next().unwrap(), Some(Said::Message(4)));
        assert_eq!(inbox.next().unwrap(), Some(Said::Ping));
        assert_eq!(inbox.next().unwrap(), None);
    }

    #[test]
    fn an_error_and_a_message_without_an_end_are_seen() {
        let next = |bytes: &[u8]| {
            let mut inbox = Inbox::default();
            inbox.extend(bytes);
            inbox.next()
        };
        assert!(next(b"-ERR 'Slow Consumer'\r\n").unwrap_err().to_string().contains("Slow Consumer"));
        assert!(next(b"MSG compare 1 2\r\nabcd").is_err());
        assert!(next(b"MSG compare 1 two\r\n").is_err());
    }
}
