//! What processes tell each other over the bootstrap connection, as bytes.

use stentor_fabric::{Access, Purpose, Service};

/// Control messages. Epochs count the lives of a queue pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// A queue pair is ready to be connected.
    Offer(Offer),
    /// The sender takes requests from the peer's queue pair of this epoch.
    Ready { service: Service, epoch: u32 },
    /// A queue pair is broken.
    Withdraw { service: Service, epoch: u32 },
    /// A region may be used.
    Grant { purpose: Purpose, key: u32, bytes: u64, access: Access },
    /// It may not any more.
    Revoke { purpose: Purpose, key: u32 },
    /// Another process with the peer's id is connected; this connection ends here.
    Taken,
    /// The peer was started again, and must not be; this connection ends here.
    Again,
}

/// One end of a connection to be.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Offer {
    pub(crate) service: Service,
    pub(crate) unreliable: bool,
    pub(crate) epoch: u32,
    pub(crate) number: u32,
    pub(crate) psn: u32,
    pub(crate) mtu: u16,
    /// Packets may come in runs, which have the first few IPv4 identifications.
    pub(crate) runs: bool,
}

/// Bytes that are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Garbage;

/// The longest message, bytes.
pub(crate) const MAX_MESSAGE: usize = 32;

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(MAX_MESSAGE);
        match self {
            Message::Offer(offer) => {
                to.push(1);
                to.extend(offer.service.0.to_be_bytes());
                to.push(offer.unreliable.into());
                to.extend(offer.epoch.to_be_bytes());
                to.extend(offer.number.to_be_bytes());
                to.extend(offer.psn.to_be_bytes());
                to.extend(offer.mtu.to_be_bytes());
                to.push(offer.runs.into());
            }
            Message::Ready { service, epoch } | Message::Withdraw { service, epoch } => {
                to.push(if matches!(self, Message::Ready { .. }) { 2 } else { 3 });
                to.extend(service.0.to_be_bytes());
                to.extend(epoch.to_be_bytes());
            }
            Message::Grant { purpose, key, bytes, access } => {
                to.push(4);
                to.extend(purpose.0.to_be_bytes());
                to.extend(key.to_be_bytes());
                to.extend(bytes.to_be_bytes());
                to.push(*access as u8);
            }
            Message::Revoke { purpose, key } => {
                to.push(5);
                to.extend(purpose.0.to_be_bytes());
                to.extend(key.to_be_bytes());
            }
            Message::Taken => to.push(6),
            Message::Again => to.push(7),
        }
        to
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Message, Garbage> {
        let mut from = Reader(bytes);
        let message = match from.take::<1>()?[0] {
            1 => Message::Offer(Offer {
                service: Service(from.u16()?),
                unreliable: from.flag()?,
                epoch: from.u32()?,
                number: from.u32()?,
                psn: from.u32()?,
                mtu: from.u16()?,
                runs: from.flag()?,
            }),
            2 => Message::Ready { service: Service(from.u16()?), epoch: from.u32()? },
            3 => Message::Withdraw { service: Service(from.u16()?), epoch: from.u32()? },
            4 => Message::Grant {
                purpose: Purpose(from.u16()?),
                key: from.u32()?,
                bytes: u64::from_be_bytes(*from.take()?),
                access: match from.take::<1>()?[0] {
                    0 => Access::Read,
                    1 => Access::Write,
                    2 => Access::Atomic,
                    _ => return Err(Garbage),
                },
            },
            5 => Message::Revoke { purpose: Purpose(from.u16()?), key: from.u32()? },
            6 => Message::Taken,
            7 => Message::Again,
            _ => return Err(Garbage),
        };
        if from.0.is_empty() { Ok(message) } else { Err(Garbage) }
    }
}

/// Takes bytes from the front.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn take<const N: usize>(&mut self) -> Result<&'a [u8; N], Garbage> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Garbage)?;
        self.0 = rest;
        Ok(first)
    }

    fn flag(&mut self) -> Result<bool, Garbage> {
        match self.take::<1>()?[0] {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Garbage),
        }
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Garbage> {
        Ok(u16::from_be_bytes(*self.take()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Garbage> {
        Ok(u32::from_be_bytes(*self.take()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn messages_survive() {
        let service = Service(7);
        let offer = Offer { service, unreliable: true, epoch: 1, number: 2, psn: 3, mtu: 4096, runs: true };
        for message in [
            Message::Offer(offer),
            Message::Ready { service, epoch: 9 },
            Message::Withdraw { service, epoch: 9 },
            Message::Grant { purpose: Purpose(1), key: 5, bytes: 1 << 40, access: Access::Atomic },
            Message::Revoke { purpose: Purpose(1), key: 5 },
            Message::Taken,
            Message::Again,
        ] {
            let bytes = message.encode();
            assert!(bytes.len() <= MAX_MESSAGE);
            assert_eq!(Message::decode(&bytes), Ok(message));
            assert_eq!(Message::decode(&bytes[..bytes.len() - 1]), Err(Garbage));
            assert_eq!(Message::decode(&[&bytes[..], &[0]].concat()), Err(Garbage));
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_garbage(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}
