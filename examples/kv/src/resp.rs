//! The Redis protocol: parses requests and writes replies.
//!
//! A request is an array of bulk strings, or one line of words (an *inline* request). Clients send nothing else, so
//! this parser accepts nothing else. It parses in place and in one pass, and all lengths are bounded. A general parser
//! of the protocol would accept nested arrays of any depth, but no inline requests.

use crate::store::LONGEST;

/// Maximum number of words in a request.
const MOST_WORDS: usize = 4096;
/// Maximum size of an inline request, in bytes.
const LONGEST_LINE: usize = 16_384;
/// Maximum size of a request, in bytes.
pub const LONGEST_REQUEST: usize = 16 * LONGEST;

/// The error of a malformed request. The bytes after the request cannot be parsed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed(pub &'static str);

/// Parses the first request, and writes the offsets of its words in `bytes` to `words`. Returns the request's size in
/// bytes, or `None` if it is incomplete.
///
/// # Errors
/// Returns an error if the bytes are not a request.
pub fn read_request(bytes: &[u8], words: &mut Vec<(usize, usize)>) -> Result<Option<usize>, Malformed> {
    words.clear();
    match bytes.first() {
        None => return Ok(None),
        Some(b'*') => {}
        Some(_) => return read_inline(bytes, words),
    }
    let Some((count, mut at)) = read_number(bytes, 1)? else { return Ok(None) };
    if count > MOST_WORDS as i64 {
        return Err(Malformed("Protocol error: invalid multibulk length"));
    }
    for _ in 0..count.max(0) {
        match bytes.get(at) {
            None => return Ok(None),
            Some(b'$') => {}
            Some(_) => return Err(Malformed("Protocol error: expected '$'")),
        }
        let Some((length, from)) = read_number(bytes, at + 1)? else { return Ok(None) };
        let Some(length) = usize::try_from(length).ok().filter(|length| *length <= LONGEST_REQUEST) else {
            return Err(Malformed("Protocol error: invalid bulk length"));
        };
        let end = from + length;
        if end > LONGEST_REQUEST {
            return Err(Malformed("Protocol error: the request is longer than 1 MiB"));
        }
        match bytes.get(end..end + 2) {
            None => return Ok(None),
            Some(b"\r\n") => words.push((from, end)),
            Some(_) => return Err(Malformed("Protocol error: the end of a bulk string does not match its length")),
        }
        at = end + 2;
    }
    Ok(Some(at))
}

/// Parses a number that ends with its line. Returns the number and the offset of the next line, or `None` if the line
/// is incomplete.
fn read_number(bytes: &[u8], at: usize) -> Result<Option<(i64, usize)>, Malformed> {
    let rest = &bytes[at..];
    let window = &rest[..rest.len().min(24)];
    let Some(end) = window.iter().position(|byte| *byte == b'\r') else {
        return if window.len() < 24 { Ok(None) } else { Err(Malformed("Protocol error: invalid length")) };
    };
    match rest.get(end + 1) {
        None => return Ok(None),
        Some(b'\n') => {}
        Some(_) => return Err(Malformed("Protocol error: invalid length")),
    }
    let number = std::str::from_utf8(&rest[..end]).ok().and_then(|text| text.parse().ok());
    number.map(|number| Some((number, at + end + 2))).ok_or(Malformed("Protocol error: invalid length"))
}

fn read_inline(bytes: &[u8], words: &mut Vec<(usize, usize)>) -> Result<Option<usize>, Malformed> {
    let Some(end) = bytes.iter().take(LONGEST_LINE).position(|byte| *byte == b'\n') else {
        let is_long = bytes.len() >= LONGEST_LINE;
        return if is_long { Err(Malformed("Protocol error: too big inline request")) } else { Ok(None) };
    };
    let mut from = None;
    for (at, byte) in bytes[..=end].iter().enumerate() {
        match (from, byte.is_ascii_whitespace()) {
            (None, false) => from = Some(at),
            (Some(start), true) => {
                words.push((start, at));
                from = None;
            }
            _ => {}
        }
    }
    Ok(Some(end + 1))
}

/// The version of the protocol in which replies are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Version {
    /// The version at the start of a connection.
    #[default]
    Two,
    /// The version after `HELLO 3`.
    Three,
}

/// A writer of replies.
#[derive(Debug)]
pub struct Writer<'a> {
    /// The version of the protocol.
    pub version: Version,
    /// The destination of the replies.
    pub out: &'a mut Vec<u8>,
}

impl Writer<'_> {
    /// Writes a short text without line ends.
    pub fn simple(&mut self, text: &str) {
        self.line(b'+', text.as_bytes());
    }

    /// Writes an error: its kind in capital letters, a blank, and its description.
    pub fn error(&mut self, text: &str) {
        let clean: Vec<u8> = text.bytes().map(|byte| if matches!(byte, b'\r' | b'\n') { b' ' } else { byte }).collect();
        self.line(b'-', &clean);
    }

    /// Writes a number.
    pub fn integer(&mut self, number: i64) {
        self.number(b':', number);
    }

    /// Writes a byte string.
    pub fn bulk(&mut self, bytes: &[u8]) {
        self.number(b'$', bytes.len() as i64);
        self.out.extend_from_slice(bytes);
        self.out.extend_from_slice(b"\r\n");
    }

    /// Writes a null value.
    pub fn nil(&mut self) {
        self.out.extend_from_slice(if self.version == Version::Three { b"_\r\n" } else { b"$-1\r\n" });
    }

    /// Writes the reply of a transaction that was not carried out.
    pub fn nil_array(&mut self) {
        self.out.extend_from_slice(if self.version == Version::Three { b"_\r\n" } else { b"*-1\r\n" });
    }

    /// Writes the head of an array. `count` replies follow.
    pub fn array(&mut self, count: usize) {
        self.number(b'*', count as i64);
    }

    /// Writes the head of a map. `pairs` pairs of replies follow.
    pub fn map(&mut self, pairs: usize) {
        match self.version {
            Version::Three => self.number(b'%', pairs as i64),
            Version::Two => self.array(2 * pairs),
        }
    }

    fn line(&mut self, kind: u8, text: &[u8]) {
        self.out.push(kind);
        self.out.extend_from_slice(text);
        self.out.extend_from_slice(b"\r\n");
    }

    fn number(&mut self, kind: u8, number: i64) {
        self.out.push(kind);
        let mut digits = [0; 20];
        let (mut at, mut left) = (digits.len(), number.unsigned_abs());
        loop {
            at -= 1;
            digits[at] = b'0' + (left % 10) as u8;
            left /= 10;
            if left == 0 {
                break;
            }
        }
        if number < 0 {
            self.out.push(b'-');
        }
        self.out.extend_from_slice(&digits[at..]);
        self.out.extend_from_slice(b"\r\n");
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The size of a request in bytes, and its words.
    type Request<'a> = (usize, Vec<&'a [u8]>);

    fn read(bytes: &[u8]) -> Result<Option<Request<'_>>, Malformed> {
        let mut words = Vec::new();
        let length = read_request(bytes, &mut words)?;
        Ok(length.map(|length| (length, words.into_iter().map(|(from, to)| &bytes[from..to]).collect())))
    }

    #[test]
    fn requests_are_read_whole_or_not_at_all() {
        let request = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$4\r\n\r\n\r\n\r\nrest";
        let whole = request.len() - 4;
        assert_eq!(read(request), Ok(Some((whole, vec![&b"SET"[..], b"k", b"\r\n\r\n"]))));
        for length in 0..whole {
            assert_eq!(read(&request[..length]), Ok(None), "{length} bytes");
        }
        assert_eq!(read(b"PING  a\r\nrest"), Ok(Some((9, vec![&b"PING"[..], b"a"]))));
        assert_eq!(read(b"\r\n"), Ok(Some((2, vec![]))));
        assert_eq!(read(b"*0\r\n"), Ok(Some((4, vec![]))));
        assert_eq!(read(b"*-1\r\n"), Ok(Some((5, vec![]))));
    }

    #[test]
    fn malformed_requests_are_refused_at_once() {
        for bad in [
            &b"*1000000000\r\n"[..],
            b"*1\r\n$-1\r\n",
            b"*1\r\n$99999999999\r\n",
            b"*1\r\n:1\r\n",
            b"*1\r\n*1\r\n",
            b"*x\r\n",
            b"*1\rx",
            b"*1\r\n$1\r\nabc\r\n",
            b"*111111111111111111111111111",
        ] {
            assert!(read(bad).is_err(), "{}", bad.escape_ascii());
        }
        assert!(read(&[b'a'; LONGEST_LINE]).is_err());
    }

    #[test]
    fn numbers_are_written_in_decimal() {
        let mut out = Vec::new();
        let mut writer = Writer { version: Version::Two, out: &mut out };
        [0, -1, 10, i64::MAX, i64::MIN].into_iter().for_each(|number| writer.integer(number));
        assert_eq!(out, b":0\r\n:-1\r\n:10\r\n:9223372036854775807\r\n:-9223372036854775808\r\n");
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_do_not_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300), head in "[*$0-9\r\n]{0,20}") {
            for bytes in [&bytes[..], &[head.as_bytes(), &bytes].concat()] {
                if let Ok(Some((length, words))) = read(bytes) {
                    prop_assert!(length <= bytes.len() && words.len() <= MOST_WORDS);
                }
            }
        }
    }
}
