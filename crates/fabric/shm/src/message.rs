//! Messages on the control sockets: short, little endian, one in each packet, some with file descriptors.
//!
//! Decoding is strict: everything that is not exactly a message of this format is [`Garbage`].

use stentor_fabric::codec::{Field, LittleEndian};
use stentor_fabric::{Access, ProcessId, Purpose, QpKind, Service, fields, variants};
use stentor_host::MAX_NAME;
use thiserror::Error;

/// First field of the first message.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"StentorS");
/// Version of these messages and of the layout of shared memory.
pub(crate) const FORMAT: u16 = 4;
/// Maximum length of a message, in bytes.
pub(crate) const MAX_MESSAGE: usize = 1024;
/// Maximum length of the reason of a refusal, in bytes. Longer ones are cut.
const MAX_REASON: usize = 800;

/// The identity that a process states in its hello.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) format: u16,
    pub(crate) version: u16,
    pub(crate) fingerprint: u64,
    pub(crate) process: ProcessId,
    pub(crate) processes: u16,
    pub(crate) cluster: String,
    pub(crate) name: String,
    /// Life of the process: a random number that is new at each start.
    pub(crate) life: u64,
}

/// A message on a control socket.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// The first message, in both directions.
    Hello(Identity),
    /// The last message: the reason why the connection is closed.
    Refuse(String),
    /// The other end's hello was accepted. Carries the wait page, the control page, which has `control_words` words, and
    /// the eventfd that wakes the sender.
    Welcome { control_words: u32 },
    /// A region may be used. Carries its memory.
    Grant { region: u32, purpose: Purpose, access: Access, bytes: u64, generation: u64 },
    /// The access to a region is revoked; `generation` is the new one.
    Revoke { region: u32, generation: u64 },
    /// An end of a queue pair is offered. Carries the queue that it receives from.
    Offer { service: Service, kind: QpKind, epoch: u32, ring_words: u64, receives: u32 },
    /// An offered end is withdrawn.
    Withdraw { service: Service, epoch: u32 },
}

/// Bytes that are not a valid message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{bytes} bytes that are no message of format {FORMAT}")]
pub(crate) struct Garbage {
    bytes: usize,
}

variants! { Message {
    1 => Hello(identity),
    2 => Refuse(reason),
    3 => Welcome { control_words },
    4 => Grant { region, purpose, access, bytes, generation },
    5 => Revoke { region, generation },
    6 => Offer { service, kind, epoch, ring_words, receives },
    7 => Withdraw { service, epoch },
} }
fields! { Identity = MAGIC => { format, version, fingerprint, process, processes, cluster, name, life } }

impl Message {
    /// Encodes the message, in at most [`MAX_MESSAGE`] bytes.
    pub(crate) fn encode(&self) -> Vec<u8> {
        let bytes = match self {
            Message::Refuse(reason) => {
                let end = (0..=reason.len().min(MAX_REASON)).rev().find(|at| reason.is_char_boundary(*at));
                Message::Refuse(reason[..end.unwrap_or(0)].to_owned()).to_message::<LittleEndian>()
            }
            message => message.to_message::<LittleEndian>(),
        };
        debug_assert!(bytes.len() <= MAX_MESSAGE);
        bytes
    }

    /// Decodes a message.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Message, Garbage> {
        let message = Message::of_message::<LittleEndian>(bytes).filter(Message::has_short_texts);
        message.ok_or(Garbage { bytes: bytes.len() })
    }

    fn has_short_texts(&self) -> bool {
        match self {
            Message::Hello(identity) => identity.cluster.len() <= MAX_NAME && identity.name.len() <= MAX_NAME,
            Message::Refuse(reason) => reason.len() <= MAX_REASON,
            _ => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Message> {
        vec![
            Message::Hello(Identity {
                format: 1,
                version: 2,
                fingerprint: 3,
                process: ProcessId(4),
                processes: 5,
                cluster: "x".repeat(MAX_NAME),
                name: "g1.1".to_owned(),
                life: u64::MAX - 1,
            }),
            Message::Refuse("because".to_owned()),
            Message::Welcome { control_words: 9 },
            Message::Grant { region: 1, purpose: Purpose(2), access: Access::Atomic, bytes: 64, generation: 3 },
            Message::Revoke { region: 1, generation: 4 },
            Message::Offer { service: Service(1), kind: QpKind::Unreliable, epoch: 2, ring_words: 64, receives: 3 },
            Message::Withdraw { service: Service(1), epoch: 2 },
        ]
    }

    #[test]
    fn messages_round_trip_and_other_lengths_are_garbage() {
        for message in all() {
            let bytes = message.encode();
            assert_eq!(Message::decode(&bytes), Ok(message.clone()));
            for cut in 0..bytes.len() {
                assert!(Message::decode(&bytes[..cut]).is_err(), "{message:?} cut at {cut}");
            }
            assert!(Message::decode(&[bytes, vec![0]].concat()).is_err(), "{message:?} with a byte more");
        }
    }

    #[test]
    fn long_reasons_are_cut_at_a_character() {
        let bytes = Message::Refuse("ü".repeat(1000)).encode();
        assert!(bytes.len() <= MAX_MESSAGE);
        assert_eq!(Message::decode(&bytes), Ok(Message::Refuse("ü".repeat(MAX_REASON / 2))));
    }

    #[test]
    fn control_characters_and_wrong_magic_are_garbage() {
        assert!(Message::decode(&Message::Refuse("\x1b[2J".to_owned()).encode()).is_err());
        let mut hello = all().remove(0).encode();
        hello[1] ^= 1;
        assert!(Message::decode(&hello).is_err());
    }
}
