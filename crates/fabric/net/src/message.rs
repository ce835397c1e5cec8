//! The messages on the control connection and their encoding.

use std::net::Ipv6Addr;

use stentor_fabric::codec::{BigEndian, ByteOrder, Field};
use stentor_fabric::{Access, Purpose, Service, fields, variants};

/// A control message. A `connection_id` counts the lives of a queue pair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Message {
    /// A queue pair is ready to be connected.
    Offer(Offer),
    /// The sender accepts requests from the peer's queue pair with this connection id.
    Ready { service: Service, connection_id: u32 },
    /// A queue pair is broken.
    Withdraw { service: Service, connection_id: u32 },
    /// The peer may use a region.
    Grant { purpose: Purpose, key: u64, base: u64, bytes: u64, access: Access },
    /// The peer may no longer use a region.
    Revoke { purpose: Purpose, key: u64 },
    /// Another process with the peer's id is connected; the sender closes this connection.
    Taken,
    /// The peer was restarted, which the sender's configuration forbids; the sender closes this connection.
    Again,
    /// The sender of a set has left a generation of it, and asks whether the peer has left it, too.
    Ask { set: u16, generation: u64 },
    /// No write of this generation of the set lands at the sender of this message any more.
    Left { set: u16, generation: u64 },
}

/// One end of a connection that is to be established.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Offer {
    /// The service, which both ends use to find each other.
    pub service: Service,
    /// `true` for an unreliable connection.
    pub unreliable: bool,
    /// Number of the life of this end.
    pub connection_id: u32,
    /// Address of the end.
    pub end: End,
}

/// The address of one life of an end, in the format of its fabric.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// A queue pair of InfiniBand's transport, over any network.
    QueuePair(Pair),
    /// An address that only fabrics of the same kind understand: at most [`MAX_ADDRESS`] bytes.
    Opaque(Vec<u8>),
}

/// One end of InfiniBand's transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pair {
    /// Number of the queue pair, 24 bits.
    pub number: u32,
    /// Sequence number of the queue pair's first packet, 24 bits.
    pub psn: u32,
    /// Maximum payload of a packet that the queue pair accepts, in bytes. The smaller value of both ends counts.
    pub mtu: u16,
    /// GID of the end; an IPv4 address is mapped.
    pub gid: Ipv6Addr,
    /// Address (LID) of the end inside an InfiniBand subnet; 0 elsewhere.
    pub lid: u16,
    /// Maximum number of outstanding READs and atomics of the peer.
    pub reads: u8,
    /// `true` if this end accepts runs: packets that the sender's kernel splits from one buffer, with IPv4
    /// identifications that count from 0.
    pub runs: bool,
    /// `true` if the IPv4 packets of this end have individual identifications, like packets from cards and kernels.
    /// Otherwise the identifications are 0, or those of a run.
    pub identified: bool,
}

/// Maximum length of an [`End::Opaque`], in bytes: addresses of libfabric's providers have 4 to about 60 bytes.
pub const MAX_ADDRESS: usize = 128;

/// The error for bytes that are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Garbage;

variants! { Message {
    1 => Offer(offer),
    2 => Ready { service, connection_id },
    3 => Withdraw { service, connection_id },
    4 => Grant { purpose, key, base, bytes, access },
    5 => Revoke { purpose, key },
    6 => Taken,
    7 => Again,
    8 => Ask { set, generation },
    9 => Left { set, generation },
} }
fields! { Offer { service, unreliable, connection_id, end } }
fields! { Pair { number, psn, mtu, gid, lid, reads, runs, identified } }

impl Message {
    pub(crate) fn encode(&self) -> Vec<u8> {
        self.to_message::<BigEndian>()
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Message, Garbage> {
        Message::of_message::<BigEndian>(bytes).ok_or(Garbage)
    }
}

/// An [`End::Opaque`] is the last field of its message, so its length is not encoded.
impl Field for End {
    fn put<O: ByteOrder>(&self, to: &mut Vec<u8>) {
        match self {
            End::QueuePair(pair) => {
                to.push(1);
                pair.put::<O>(to);
            }
            End::Opaque(address) => {
                assert!(address.len() <= MAX_ADDRESS, "an address of {} bytes: {MAX_ADDRESS} at most", address.len());
                to.push(2);
                to.extend(address);
            }
        }
    }

    fn take<O: ByteOrder>(from: &mut &[u8]) -> Option<End> {
        match u8::take::<O>(from)? {
            1 => Pair::take::<O>(from).map(End::QueuePair),
            2 if from.len() <= MAX_ADDRESS => Some(End::Opaque(std::mem::take(from).to_vec())),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Upper bound of the length of a message, in bytes.
    const MAX_MESSAGE: usize = 16 + MAX_ADDRESS;

    fn pair() -> End {
        let gid = Ipv6Addr::from([9; 16]);
        End::QueuePair(Pair { number: 2, psn: 3, mtu: 4096, gid, lid: 5, reads: 16, runs: true, identified: false })
    }

    #[test]
    fn messages_round_trip() {
        let service = Service(7);
        let offer = |end| Message::Offer(Offer { service, unreliable: true, connection_id: 1, end });
        for message in [
            offer(pair()),
            offer(End::Opaque(vec![7; MAX_ADDRESS])),
            Message::Ready { service, connection_id: 9 },
            Message::Withdraw { service, connection_id: 9 },
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
        assert_eq!(Message::decode(&Message::Ready { service, connection_id: 9 }.encode()[..6]), Err(Garbage));
    }

    #[test]
    fn an_address_has_a_limit() {
        let bytes = [&[1, 0, 7, 0, 0, 0, 0, 1, 2][..], &[0; MAX_ADDRESS + 1]].concat();
        assert_eq!(Message::decode(&bytes), Err(Garbage));
        assert!(Message::decode(&bytes[..bytes.len() - 1]).is_ok());
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_are_a_message_or_garbage(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(message) = Message::decode(&bytes) {
                prop_assert_eq!(message.encode(), bytes);
            }
        }

        /// Random bytes are hardly ever an offer, so this test changes a valid one.
        #[test]
        fn a_changed_offer_is_a_message_or_garbage(
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
            longer in 0..3_usize,
            opaque in any::<bool>(),
        ) {
            let end = if opaque { End::Opaque(vec![1; 60]) } else { pair() };
            let offer = Offer { service: Service(7), unreliable: false, connection_id: 1, end };
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
