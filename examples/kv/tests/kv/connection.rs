//! A TCP client.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Timeout of a reply. It is longer than the time for which the gateway retries a command.
const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Connection {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn new(port: u16) -> io::Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Connection { reader: BufReader::new(stream.try_clone()?), stream })
    }

    pub(crate) fn to(port: u16) -> Connection {
        Connection::new(port).expect("the gateway listens")
    }

    /// Returns another handle of the same connection, for writing.
    pub(crate) fn writer_handle(&self) -> Connection {
        let stream = self.stream.try_clone().expect("a descriptor");
        Connection { reader: BufReader::new(stream.try_clone().expect("a descriptor")), stream }
    }

    /// Shuts down the sending side.
    pub(crate) fn end_output(&self) {
        self.stream.shutdown(std::net::Shutdown::Write).expect("the stream is connected");
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.stream.write_all(bytes)
    }

    /// Sends a request with these words.
    pub(crate) fn send(&mut self, words: &[&[u8]]) -> io::Result<()> {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend_from_slice(word);
            bytes.extend(b"\r\n");
        }
        self.write(&bytes)
    }

    /// Reads the bytes of one reply.
    pub(crate) fn reply(&mut self) -> io::Result<Vec<u8>> {
        let (mut all, mut left) = (Vec::new(), 1u64);
        while left > 0 {
            left -= 1;
            let from = all.len();
            if self.reader.read_until(b'\n', &mut all)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let line = String::from_utf8_lossy(&all[from..]).trim().to_owned();
            let number: i64 = line[1..].parse().unwrap_or(-1);
            match line.as_bytes()[0] {
                b'$' if number >= 0 => {
                    let from = all.len();
                    all.resize(from + number as usize + 2, 0);
                    self.reader.read_exact(&mut all[from..])?;
                }
                b'*' if number > 0 => left += number as u64,
                b'%' => left += 2 * number as u64,
                _ => {}
            }
        }
        Ok(all)
    }

    /// Sends the words of a line as a request. Returns the reply as one line: its parts without `$` and lengths,
    /// separated by blanks.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        self.send(&words).expect("the words are sent");
        formatted(&self.reply().expect("a reply"))
    }
}

/// Formats a reply as one line.
pub(crate) fn formatted(reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply);
    let is_length = |line: &&str| line.starts_with('$') && *line != "$-1";
    text.split_terminator("\r\n").filter(|line| !is_length(line)).collect::<Vec<_>>().join(" ")
}
