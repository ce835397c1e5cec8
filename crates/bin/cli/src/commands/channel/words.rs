//! What the two sides say to each other: the first byte of a message says what it is.

use stentor_support::{Failure, hex};

/// The longest message, bytes.
pub(super) const MESSAGE_BYTES: usize = 1 << 20;
/// What a message with data begins with; the data follows.
pub(super) const DATA: u8 = b'D';
const HEADER: u8 = b'H';
const END: u8 = b'E';
const FAILED: u8 = b'F';
/// In a header of unknown length.
const UNKNOWN: u64 = u64::MAX;

/// All of a stream, as one side counted it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Whole {
    pub(super) bytes: u64,
    pub(super) sha256: [u8; 32],
}

/// A message, without the data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Words {
    /// The sender's first: how many bytes will come, if it knows.
    Header(Option<u64>),
    /// Data, behind the first byte.
    Data,
    /// The sender's last, or the receiver's answer to it.
    End(Whole),
    /// The side that says so cannot go on.
    Failed(String),
}

impl Words {
    /// As a message; of data nobody asks.
    pub(super) fn message(&self) -> Vec<u8> {
        match self {
            Words::Header(bytes) => [&[HEADER][..], &bytes.unwrap_or(UNKNOWN).to_le_bytes()].concat(),
            Words::Data => vec![DATA],
            Words::End(whole) => [&[END][..], &whole.bytes.to_le_bytes(), &whole.sha256].concat(),
            Words::Failed(why) => [&[FAILED], why.as_bytes()].concat(),
        }
    }

    /// What a message is; `place` is where it came from.
    pub(super) fn of(message: &[u8], place: &str) -> Result<Words, Failure> {
        let number = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes);
        let words = match message.split_first() {
            Some((&DATA, _)) => Some(Words::Data),
            Some((&HEADER, rest)) => number(rest).ok().map(|bytes| Words::Header((bytes != UNKNOWN).then_some(bytes))),
            Some((&END, rest)) if rest.len() == 40 => number(&rest[..8]).ok().and_then(|bytes| {
                let sha256 = rest[8..].try_into().ok()?;
                Some(Words::End(Whole { bytes, sha256 }))
            }),
            Some((&FAILED, why)) => Some(Words::Failed(String::from_utf8_lossy(why).into_owned())),
            _ => None,
        };
        words.ok_or_else(|| {
            let what = format_args!("the other side sent {} bytes that mean nothing", message.len());
            Failure::run(what, place, "use the same version of this command on both sides")
        })
    }
}

impl Whole {
    pub(super) fn hex(&self) -> String {
        hex(&self.sha256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_heard() {
        let whole = Whole { bytes: 77, sha256: [5; 32] };
        for words in [
            Words::Header(None),
            Words::Header(Some(0)),
            Words::Header(Some(1 << 40)),
            Words::Data,
            Words::End(whole),
            Words::Failed("the disk is full".into()),
        ] {
            assert_eq!(Words::of(&words.message(), "here").unwrap(), words);
        }
    }

    #[test]
    fn garbage_is_refused() {
        for message in [&b""[..], b"H", b"H123", b"E", &[END; 40], &[END; 42], b"X", &[0; 9]] {
            let failure = Words::of(message, "here").unwrap_err();
            assert!(failure.what.contains("mean nothing") && failure.place == "here", "{message:?}: {failure}");
        }
    }
}
