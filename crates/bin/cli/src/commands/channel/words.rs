//! The protocol between the two sides. The first byte of a message is its kind.

use stentor_support::{Failure, hex};

/// Longest message, in bytes.
pub(super) const MESSAGE_BYTES: usize = 1 << 20;
/// First byte of a message with data. The data follows.
pub(super) const DATA: u8 = b'D';
const HEADER: u8 = b'H';
const END: u8 = b'E';
const FAILED: u8 = b'F';
/// Length in a header if the length is unknown.
const UNKNOWN: u64 = u64::MAX;

/// Size and hash of a stream, as computed by one side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Whole {
    pub(super) bytes: u64,
    pub(super) sha256: [u8; 32],
}

/// A message without its data.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Words {
    /// The sender's first message: the number of bytes that will follow, if it is known.
    Header(Option<u64>),
    /// A message with data, which follow its first byte.
    Data,
    /// The sender's last message, or the receiver's answer to it.
    End(Whole),
    /// An error after which this side cannot continue.
    Failed(String),
}

impl Words {
    /// Encodes the message. For `Data`, that is the first byte only.
    pub(super) fn message(&self) -> Vec<u8> {
        match self {
            Words::Header(bytes) => [&[HEADER][..], &bytes.unwrap_or(UNKNOWN).to_le_bytes()].concat(),
            Words::Data => vec![DATA],
            Words::End(whole) => [&[END][..], &whole.bytes.to_le_bytes(), &whole.sha256].concat(),
            Words::Failed(why) => [&[FAILED], why.as_bytes()].concat(),
        }
    }

    /// Parses a message. `place` is where it came from, for errors.
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
            let what = format_args!("the other side sent an invalid message of {} bytes", message.len());
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
    fn words_are_decoded_as_encoded() {
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
            assert!(failure.what.contains("invalid message") && failure.place == "here", "{message:?}: {failure}");
        }
    }
}
