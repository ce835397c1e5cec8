//! What goes over the control sockets: small messages, little endian, one per packet, some with file descriptors.
//!
//! Decoding is strict: what is not exactly a message of this format is [`Garbage`].

use stentor_fabric::{Access, ProcessId, Purpose, QpKind, Service};
use stentor_host::MAX_NAME;
use thiserror::Error;

/// First field of the first message.
pub(crate) const MAGIC: u64 = u64::from_le_bytes(*b"StentorS");
/// Version of these messages and of what lies in shared memory.
pub(crate) const FORMAT: u16 = 2;
/// No message is longer, bytes.
pub(crate) const MAX_MESSAGE: usize = 1024;
/// Of a reason for refusing, so much is sent, bytes.
const MAX_REASON: usize = 800;

/// Who a process says it is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Identity {
    pub(crate) format: u16,
    pub(crate) version: u16,
    pub(crate) fingerprint: u64,
    pub(crate) process: ProcessId,
    pub(crate) processes: u16,
    pub(crate) cluster: String,
    pub(crate) name: String,
    /// Another one each time that the process is started.
    pub(crate) life: u64,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// The first one, both ways.
    Hello(Identity),
    /// The last one: why the connection is closed.
    Refuse(String),
    /// The other end's hello was good. With the wait page and the control page of so many words.
    Welcome { control_words: u32 },
    /// A region may be used. With its memory.
    Grant { region: u32, purpose: Purpose, access: Access, bytes: u64, generation: u64 },
    /// A region may not be used any more; `generation` is the new one.
    Revoke { region: u32, generation: u64 },
    /// An end of a queue pair is there. With the queue that it receives from.
    Offer { service: Service, kind: QpKind, epoch: u32, ring_words: u64, receives: u32 },
    /// That end is gone.
    Withdraw { service: Service, epoch: u32 },
    /// Wakes a process that sleeps on its sockets.
    Wake,
}

/// Bytes that are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error("{bytes} bytes that are no message of format {FORMAT}")]
pub(crate) struct Garbage {
    bytes: usize,
}

/// The one byte of [`Message::Wake`].
pub(crate) const WAKE: [u8; 1] = [8];

struct Writer(Vec<u8>);

impl Writer {
    fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }
    fn u16(mut self, value: u16) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_le_bytes());
        self
    }
    fn text(self, value: &str) -> Self {
        let mut writer = self.u16(value.len() as u16);
        writer.0.extend(value.as_bytes());
        writer
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (value, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*value)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }
    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_le_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }
    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
    fn text(&mut self, limit: usize) -> Option<String> {
        let length = usize::from(self.u16()?);
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        (length <= limit).then_some(())?;
        // Text of a peer ends up in messages on terminals.
        let text = String::from_utf8(text.to_vec()).ok()?;
        (!text.contains(char::is_control)).then_some(text)
    }
}

impl Message {
    /// As bytes, at most [`MAX_MESSAGE`].
    pub(crate) fn encode(&self) -> Vec<u8> {
        let writer = Writer(Vec::with_capacity(64));
        let writer = match self {
            Message::Hello(hello) => writer
                .u8(1)
                .u64(MAGIC)
                .u16(hello.format)
                .u16(hello.version)
                .u64(hello.fingerprint)
                .u16(hello.process.0)
                .u16(hello.processes)
                .text(&hello.cluster)
                .text(&hello.name)
                .u64(hello.life),
            Message::Refuse(reason) => {
                let mut end = reason.len().min(MAX_REASON);
                while !reason.is_char_boundary(end) {
                    end -= 1;
                }
                writer.u8(2).text(&reason[..end])
            }
            Message::Welcome { control_words } => writer.u8(3).u32(*control_words),
            Message::Grant { region, purpose, access, bytes, generation } => {
                let access = match access {
                    Access::Read => 0,
                    Access::Write => 1,
                    Access::Atomic => 2,
                };
                writer.u8(4).u32(*region).u16(purpose.0).u8(access).u64(*bytes).u64(*generation)
            }
            Message::Revoke { region, generation } => writer.u8(5).u32(*region).u64(*generation),
            Message::Offer { service, kind, epoch, ring_words, receives } => {
                let kind = u8::from(*kind == QpKind::Unreliable);
                writer.u8(6).u16(service.0).u8(kind).u32(*epoch).u64(*ring_words).u32(*receives)
            }
            Message::Withdraw { service, epoch } => writer.u8(7).u16(service.0).u32(*epoch),
            Message::Wake => writer.u8(WAKE[0]),
        };
        debug_assert!(writer.0.len() <= MAX_MESSAGE);
        writer.0
    }

    /// From bytes.
    pub(crate) fn decode(bytes: &[u8]) -> Result<Message, Garbage> {
        let mut reader = Reader(bytes);
        let message = Message::read(&mut reader).filter(|_| reader.0.is_empty());
        message.ok_or(Garbage { bytes: bytes.len() })
    }

    fn read(reader: &mut Reader<'_>) -> Option<Message> {
        Some(match reader.u8()? {
            1 => {
                (reader.u64()? == MAGIC).then_some(())?;
                Message::Hello(Identity {
                    format: reader.u16()?,
                    version: reader.u16()?,
                    fingerprint: reader.u64()?,
                    process: ProcessId(reader.u16()?),
                    processes: reader.u16()?,
                    cluster: reader.text(MAX_NAME)?,
                    name: reader.text(MAX_NAME)?,
                    life: reader.u64()?,
                })
            }
            2 => Message::Refuse(reader.text(MAX_REASON)?),
            3 => Message::Welcome { control_words: reader.u32()? },
            4 => Message::Grant {
                region: reader.u32()?,
                purpose: Purpose(reader.u16()?),
                access: match reader.u8()? {
                    0 => Access::Read,
                    1 => Access::Write,
                    2 => Access::Atomic,
                    _ => return None,
                },
                bytes: reader.u64()?,
                generation: reader.u64()?,
            },
            5 => Message::Revoke { region: reader.u32()?, generation: reader.u64()? },
            6 => Message::Offer {
                service: Service(reader.u16()?),
                kind: match reader.u8()? {
                    0 => QpKind::Reliable,
                    1 => QpKind::Unreliable,
                    _ => return None,
                },
                epoch: reader.u32()?,
                ring_words: reader.u64()?,
                receives: reader.u32()?,
            },
            7 => Message::Withdraw { service: Service(reader.u16()?), epoch: reader.u32()? },
            8 => Message::Wake,
            _ => return None,
        })
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
            Message::Wake,
        ]
    }

    #[test]
    fn every_message_survives_and_no_part_or_extension_of_one_does() {
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
