//! What processes tell each other over the control connection, as bytes.

use std::net::Ipv6Addr;

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
    Grant { purpose: Purpose, key: u64, base: u64, bytes: u64, access: Access },
    /// It may not any more.
    Revoke { purpose: Purpose, key: u64 },
    /// Another process with the peer's id is connected; this connection ends here.
    Taken,
    /// The peer was started again, and must not be; this connection ends here.
    Again,
    /// The sender of a set has left a generation of it: is the peer out of it, too?
    Ask { set: u16, generation: u64 },
    /// Nothing of that generation lands at who says so any more.
    Left { set: u16, generation: u64 },
}

/// One end of a connection to be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// What both ends name to meet.
    pub service: Service,
    /// Whether it is an unreliable connection.
    pub unreliable: bool,
    /// Which life of the end this is.
    pub epoch: u32,
    /// How to reach it.
    pub end: End,
}

/// How one life of an end is reached, as its fabric says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// A queue pair of InfiniBand's transport, on whatever carries it.
    QueuePair(Pair),
    /// An address that only fabrics of the same kind can read: at most [`MAX_ADDRESS`] bytes.
    Opaque(Vec<u8>),
}

/// One end of InfiniBand's transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair {
    /// The queue pair's number, 24 bits.
    pub number: u32,
    /// The number of its first packet, 24 bits.
    pub psn: u32,
    /// The largest payload of a packet that it takes, bytes; the smaller one of both ends counts.
    pub mtu: u16,
    /// Its address: an IPv4 address is mapped.
    pub gid: Ipv6Addr,
    /// Its address inside an InfiniBand subnet; 0 elsewhere.
    pub lid: u16,
    /// READs and atomics of the peer that it answers at a time.
    pub reads: u8,
    /// Packets may come in runs, which have the first few IPv4 identifications.
    pub runs: bool,
    /// Its IPv4 packets have identifications of their own, as those of cards and of kernels have; otherwise 0, or those of a
    /// run.
    pub identified: bool,
}

/// The longest [`End::Opaque`], bytes: libfabric's providers have addresses of 4 to some 60.
pub const MAX_ADDRESS: usize = 128;

/// Bytes that are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Garbage;

/// The longest message, bytes.
pub(crate) const MAX_MESSAGE: usize = 16 + MAX_ADDRESS;

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut to = Vec::with_capacity(MAX_MESSAGE);
        match self {
            Message::Offer(offer) => {
                to.push(1);
                to.extend(offer.service.0.to_be_bytes());
                to.push(offer.unreliable.into());
                to.extend(offer.epoch.to_be_bytes());
                offer.end.encode(&mut to);
            }
            Message::Ready { service, epoch } | Message::Withdraw { service, epoch } => {
                to.push(if matches!(self, Message::Ready { .. }) { 2 } else { 3 });
                to.extend(service.0.to_be_bytes());
                to.extend(epoch.to_be_bytes());
            }
            Message::Grant { purpose, key, base, bytes, access } => {
                to.push(4);
                to.extend(purpose.0.to_be_bytes());
                to.extend(key.to_be_bytes());
                to.extend(base.to_be_bytes());
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
            Message::Ask { set, generation } | Message::Left { set, generation } => {
                to.push(if matches!(self, Message::Ask { .. }) { 8 } else { 9 });
                to.extend(set.to_be_bytes());
                to.extend(generation.to_be_bytes());
            }
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
                end: End::decode(&mut from)?,
            }),
            2 => Message::Ready { service: Service(from.u16()?), epoch: from.u32()? },
            3 => Message::Withdraw { service: Service(from.u16()?), epoch: from.u32()? },
            4 => Message::Grant {
                purpose: Purpose(from.u16()?),
                key: from.u64()?,
                base: from.u64()?,
                bytes: from.u64()?,
                access: match from.take::<1>()?[0] {
                    0 => Access::Read,
                    1 => Access::Write,
                    2 => Access::Atomic,
                    _ => return Err(Garbage),
                },
            },
            5 => Message::Revoke { purpose: Purpose(from.u16()?), key: from.u64()? },
            6 => Message::Taken,
            7 => Message::Again,
            8 => Message::Ask { set: from.u16()?, generation: from.u64()? },
            9 => Message::Left { set: from.u16()?, generation: from.u64()? },
            _ => return Err(Garbage),
        };
        if from.0.is_empty() { Ok(message) } else { Err(Garbage) }
    }
}

impl End {
    fn encode(&self, to: &mut Vec<u8>) {
        match self {
            End::QueuePair(pair) => {
                to.push(1);
                to.extend(pair.number.to_be_bytes());
                to.extend(pair.psn.to_be_bytes());
                to.extend(pair.mtu.to_be_bytes());
                to.extend(pair.gid.octets());
                to.extend(pair.lid.to_be_bytes());
                to.push(pair.reads);
                to.push(pair.runs.into());
                to.push(pair.identified.into());
            }
            End::Opaque(address) => {
                assert!(address.len() <= MAX_ADDRESS, "an address of {} bytes: {MAX_ADDRESS} at most", address.len());
                to.push(2);
                to.extend(address);
            }
        }
    }

    fn decode(from: &mut Reader<'_>) -> Result<End, Garbage> {
        Ok(match from.take::<1>()?[0] {
            1 => End::QueuePair(Pair {
                number: from.u32()?,
                psn: from.u32()?,
                mtu: from.u16()?,
                gid: Ipv6Addr::from(*from.take::<16>()?),
                lid: from.u16()?,
                reads: from.take::<1>()?[0],
                runs: from.flag()?,
                identified: from.flag()?,
            }),
            2 if from.0.len() <= MAX_ADDRESS => End::Opaque(std::mem::take(&mut from.0).to_vec()),
            _ => return Err(Garbage),
        })
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

    pub(crate) fn u64(&mut self) -> Result<u64, Garbage> {
        Ok(u64::from_be_bytes(*self.take()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pair() -> End {
        let gid = Ipv6Addr::from([9; 16]);
        End::QueuePair(Pair { number: 2, psn: 3, mtu: 4096, gid, lid: 5, reads: 16, runs: true, identified: false })
    }

    #[test]
    fn messages_survive() {
        let service = Service(7);
        let offer = |end| Message::Offer(Offer { service, unreliable: true, epoch: 1, end });
        for message in [
            offer(pair()),
            offer(End::Opaque(vec![7; MAX_ADDRESS])),
            Message::Ready { service, epoch: 9 },
            Message::Withdraw { service, epoch: 9 },
            Message::Grant { purpose: Purpose(1), key: 5 << 40, base: 6 << 50, bytes: 1 << 40, access: Access::Atomic },
            Message::Revoke { purpose: Purpose(1), key: 5 },
            Message::Taken,
            Message::Again,
            Message::Ask { set: 258, generation: 1 << 63 | 7 },
            Message::Left { set: 258, generation: 1 << 63 | 7 },
        ] {
            let bytes = message.encode();
            assert!(bytes.len() <= MAX_MESSAGE);
            assert_eq!(Message::decode(&bytes).as_ref(), Ok(&message));
            assert_eq!(Message::decode(&[&bytes[..], &[0]].concat()), Err(Garbage), "{message:?}");
            let short = Message::decode(&bytes[..bytes.len() - 1]);
            assert_ne!(short, Ok(message), "cut short");
        }
        assert_eq!(Message::decode(&Message::Ready { service, epoch: 9 }.encode()[..6]), Err(Garbage));
    }

    #[test]
    fn an_address_has_a_limit() {
        let bytes = [&[1, 0, 7, 0, 0, 0, 0, 1, 2][..], &[0; MAX_ADDRESS + 1]].concat();
        assert_eq!(Message::decode(&bytes), Err(Garbage));
        assert!(Message::decode(&bytes[..bytes.len() - 1]).is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_garbage(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }

        /// Of random bytes hardly any is an offer: these nearly are.
        #[test]
        fn an_offer_that_was_changed_is_a_message_or_garbage(
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
            longer in 0..3_usize,
            opaque in any::<bool>(),
        ) {
            let end = if opaque { End::Opaque(vec![1; 60]) } else { pair() };
            let offer = Offer { service: Service(7), unreliable: false, epoch: 1, end };
            let mut bytes = Message::Offer(offer).encode();
            bytes.extend(vec![0; longer]);
            for (at, byte) in changes {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }
    }
}
