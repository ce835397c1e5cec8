//! One connection to a NATS server: its text protocol, as far as a publisher and a subscriber need it.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// How long a server may take to start, and how long it may say nothing.
pub const PATIENCE: Duration = Duration::from_secs(30);
/// Bytes that one read takes in at most.
const CHUNK: usize = 1 << 18;

/// An operation that a server sends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Said {
    /// A message with a payload of so many bytes.
    Message(usize),
    /// It asks whether the client lives.
    Ping,
    /// It answers.
    Pong,
    /// Something that needs no answer.
    Other,
}

/// The bytes that were received and not parsed yet.
#[derive(Default)]
pub struct Inbox {
    bytes: Vec<u8>,
    /// The parser is here.
    at: usize,
}

impl Inbox {
    /// Takes in some bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.at);
        self.at = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// Returns the next thing that is there as a whole.
    ///
    /// # Errors
    /// When the server reports an error, or says what the protocol has not.
    pub fn next(&mut self) -> Result<Option<Said>> {
        let rest = &self.bytes[self.at..];
        let Some(length) = rest.windows(2).position(|pair| pair == b"\r\n") else { return Ok(None) };
        let line = std::str::from_utf8(&rest[..length]).context("the server does not say text")?;
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
            _ => bail!("the server says {line:?}"),
        };
        self.at += taken;
        Ok(Some(said))
    }
}

/// A connection.
pub struct Connection {
    stream: TcpStream,
    inbox: Inbox,
    chunk: Vec<u8>,
    /// The bytes to be written.
    outbox: Vec<u8>,
}

impl Connection {
    /// Connects, tries again while the server is not there yet, and says `hello`.
    ///
    /// # Errors
    /// When there is no server within the patience, or it refuses.
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

    /// The socket, to wait for it.
    pub fn socket(&self) -> &TcpStream {
        &self.stream
    }

    /// Adds bytes to what is to be written.
    pub fn queue(&mut self, bytes: &[u8]) {
        self.outbox.extend_from_slice(bytes);
    }

    /// How many bytes are to be written.
    pub fn queued(&self) -> usize {
        self.outbox.len()
    }

    /// Writes as much as the socket takes: all, unless it does not block.
    ///
    /// # Errors
    /// When the connection is gone.
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

    /// Reads once. Returns whether something came.
    ///
    /// # Errors
    /// When the connection is gone.
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

    /// Returns what has come, and answers when the server asks.
    ///
    /// # Errors
    /// When the server reports an error.
    pub fn said(&mut self) -> Result<Option<Said>> {
        let said = self.inbox.next()?;
        if said == Some(Said::Ping) {
            self.queue(b"PONG\r\n");
        }
        Ok(said)
    }

    /// Waits for what comes next, on a socket that blocks.
    ///
    /// # Errors
    /// When nothing comes within the patience, or the connection is gone.
    pub fn next_said(&mut self) -> Result<Said> {
        self.stream.set_read_timeout(Some(PATIENCE))?;
        loop {
            if let Some(said) = self.said()? {
                self.flush()?;
                return Ok(said);
            }
            ensure!(self.fill()?, "the NATS server said nothing for {} s", PATIENCE.as_secs());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_once_all_of_it_is_there() {
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
