//! Transfer letters: the peer messages between donors and receivers of state transfers.
//!
//! | word | content |
//! |---|---|
//! | 0 | kind |
//! | 1 | name: life of the donor |
//! | 2 | name: number of the freeze |
//! | 3 | name: incarnation of the group, number (32) and tag (32) |
//! | 4 | deliveries that the frozen state contains |
//! | 5 | number of the piece, from 1 |
//! | 6, 7 | arguments, see below |
//! | 8… | `Deliveries`: the deliveries |
//!
//! The frozen state and the deliveries belong to the history of the incarnation in word 3. The bytes of a frozen state
//! are the tail of the letter.
//!
//! In `Standing`, word 4 is the number of deliveries that the sender's application has made, and word 5 is the piece
//! that the sender waits for, or 0 if it takes part in no transfer. In `GivenUp`, word 4 is 0 and word 5 is the reason.
//! Words 6 and 7 are 0 except in three kinds: in `End` the bytes of the whole state, and 0; in `Deliveries` the origin
//! of their history, number (32) and tag (32), and 0; in `GivenUp` the bytes and the limit.

use super::{GivenUp, Standing};
use crate::Incarnation;

/// Words before the deliveries.
const HEADER: usize = 8;

/// The name of a transfer, which is unique together with the donor's process id.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) struct Name {
    /// Life of the donor.
    pub(in crate::node) life: u64,
    /// The donor's number for the freeze.
    pub(in crate::node) freeze: u64,
    /// The incarnation to whose history the donor's application belongs.
    pub(in crate::node) incarnation: Incarnation,
}

impl Name {
    /// The name in transfer letters that are about no transfer.
    pub(in crate::node) const NONE: Name = Name { life: 0, freeze: 0, incarnation: Incarnation::NONE };
}

/// The content of a transfer letter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) enum Subject<'a> {
    /// The next bytes of the frozen state.
    Snapshot(&'a [u8]),
    /// The end of the frozen state, with its total number of bytes.
    End(u64),
    /// The next deliveries of the donor, and the origin of their history.
    Deliveries(Incarnation, &'a [u64]),
    /// Asks for the receiver's progress.
    Query,
    /// The receiver's progress.
    Standing(Standing),
    /// The sender ends the transfer.
    GivenUp(GivenUp),
}

/// A peer message about a transfer, in an envelope of kind `TRANSFER`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::node) struct TransferLetter<'a> {
    pub(in crate::node) name: Name,
    /// Number of deliveries that the frozen state contains.
    pub(in crate::node) position: u64,
    /// Number of the piece, from 1.
    pub(in crate::node) number: u64,
    pub(in crate::node) subject: Subject<'a>,
}

impl<'a> TransferLetter<'a> {
    /// Creates a transfer letter that is not a piece.
    pub(in crate::node) fn about(name: Name, subject: Subject<'a>) -> Self {
        TransferLetter { name, position: 0, number: 0, subject }
    }

    /// Appends the letter's words to `out`. Returns its tail.
    pub(in crate::node) fn encode(&self, out: &mut Vec<u64>) -> &'a [u8] {
        let TransferLetter { name, position, number, subject } = *self;
        let no_deliveries: &[u64] = &[];
        let no_bytes: &[u8] = &[];
        let (kind, name, position, number, extra, words, tail) = match subject {
            Subject::Snapshot(bytes) => (1, name, position, number, [0; 2], no_deliveries, bytes),
            Subject::End(total) => (2, name, position, number, [total, 0], no_deliveries, no_bytes),
            Subject::Deliveries(origin, words) => (3, name, position, number, [origin.to_word(), 0], words, no_bytes),
            Subject::Query => (4, Name::NONE, 0, 0, [0; 2], no_deliveries, no_bytes),
            Subject::Standing(Standing { applied, under_way }) => {
                let (name, next) = under_way.unwrap_or((Name::NONE, 0));
                (5, name, applied, next, [0; 2], no_deliveries, no_bytes)
            }
            Subject::GivenUp(why) => {
                let (number, extra) = match why {
                    GivenUp::TooLarge { bytes, limit } => (1, [bytes, limit]),
                    GivenUp::BacklogFull { limit } => (2, [0, limit]),
                    GivenUp::Silent => (3, [0; 2]),
                    GivenUp::Abandoned => (4, [0; 2]),
                    GivenUp::LeaderChanged => (5, [0; 2]),
                    GivenUp::Unwritable => (6, [0; 2]),
                };
                (6, name, 0, number, extra, no_deliveries, no_bytes)
            }
        };
        let incarnation = name.incarnation.to_word();
        out.extend_from_slice(&[kind, name.life, name.freeze, incarnation, position, number, extra[0], extra[1]]);
        out.extend_from_slice(words);
        tail
    }

    /// Decodes a transfer letter. Returns `None` if it is malformed.
    pub(in crate::node) fn decode(words: &'a [u64], tail: &'a [u8]) -> Option<Self> {
        let (header, rest) = words.split_first_chunk::<HEADER>()?;
        let [kind, life, freeze, incarnation, position, number, first, second] = header;
        let (life, freeze, position, number, extra) = (*life, *freeze, *position, *number, [*first, *second]);
        if (position | number) >> 63 != 0 || (*kind != 3 && !rest.is_empty()) || (*kind != 1 && !tail.is_empty()) {
            return None;
        }
        let incarnation = Some(Incarnation::from_word(*incarnation)).filter(|one| one.is_possible())?;
        let name = Name { life, freeze, incarnation };
        let subject = match *kind {
            1 => Subject::Snapshot(tail),
            2 => Subject::End(extra[0]),
            3 => {
                let origin = Some(Incarnation::from_word(extra[0])).filter(|one| one.is_possible())?;
                Subject::Deliveries(origin, rest)
            }
            4 => Subject::Query,
            5 => {
                let under_way = (number != 0).then_some((name, number));
                Subject::Standing(Standing { applied: position, under_way })
            }
            6 => Subject::GivenUp(match number {
                1 => GivenUp::TooLarge { bytes: extra[0], limit: extra[1] },
                2 => GivenUp::BacklogFull { limit: extra[1] },
                3 => GivenUp::Silent,
                4 => GivenUp::Abandoned,
                5 => GivenUp::LeaderChanged,
                6 => GivenUp::Unwritable,
                _ => return None,
            }),
            _ => return None,
        };
        let is_piece = matches!(subject, Subject::Snapshot(_) | Subject::End(_) | Subject::Deliveries(..));
        (!is_piece || number != 0).then_some(TransferLetter { name, position, number, subject })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: Name = Name { life: 8, freeze: 2, incarnation: Incarnation { number: 3, tag: 4 } };

    #[test]
    fn transfer_letters_round_trip() {
        let standing = |under_way| Subject::Standing(Standing { applied: 9, under_way });
        let subjects = [
            Subject::Snapshot(b"bytes"),
            Subject::End(1 << 40),
            Subject::Deliveries(Incarnation { number: 3, tag: 9 }, &[1, 2, 3]),
            Subject::Query,
            standing(None),
            standing(Some((NAME, 4))),
            Subject::GivenUp(GivenUp::TooLarge { bytes: 5, limit: 4 }),
            Subject::GivenUp(GivenUp::BacklogFull { limit: 7 }),
            Subject::GivenUp(GivenUp::Silent),
            Subject::GivenUp(GivenUp::Abandoned),
            Subject::GivenUp(GivenUp::LeaderChanged),
            Subject::GivenUp(GivenUp::Unwritable),
        ];
        for subject in subjects {
            let letter = TransferLetter { name: NAME, position: 6, number: 3, subject };
            let mut words = Vec::new();
            let tail = letter.encode(&mut words);
            let read = TransferLetter::decode(&words, tail).expect("a letter");
            assert_eq!(read.subject, subject);
            if let Subject::Snapshot(_) | Subject::End(_) | Subject::Deliveries(..) = subject {
                assert_eq!(read, letter);
                words[5] = 0;
                assert_eq!(TransferLetter::decode(&words, tail), None, "pieces have numbers");
                words[5] = 1 << 63;
                assert_eq!(TransferLetter::decode(&words, tail), None);
            }
            assert_eq!(TransferLetter::decode(&words[..7], tail), None);
        }
    }

    #[test]
    fn malformed_transfer_letters_are_refused() {
        for kind in [0, 7, u64::MAX] {
            assert_eq!(TransferLetter::decode(&[kind, 0, 0, 0, 0, 1, 0, 0], b""), None);
        }
        assert_eq!(TransferLetter::decode(&[4, 0, 0, 0, 0, 0, 0, 0, 1], b""), None, "words after a query");
        assert_eq!(TransferLetter::decode(&[2, 0, 0, 0, 0, 1, 0, 0], b"x"), None, "bytes after an end");
        assert_eq!(TransferLetter::decode(&[6, 0, 0, 0, 0, 7, 0, 0], b""), None, "no such reason");
        assert_eq!(TransferLetter::decode(&[2, 0, 0, 1 << 16, 0, 1, 0, 0], b""), None, "no such incarnation");
    }
}
