//! Messages between hosts and the control plane of a switch, and their encoding.
//!
//! A host sends [`Join`] for a set, with two queue pairs that nobody has used yet. When all hosts have joined, or at
//! least two have and the first one has waited for some time, the switch creates a *generation* of the set. A
//! generation consists of the hosts that joined, has a `gid` that no older packet names, and is announced with
//! [`Ready`]. It never changes. When one of its hosts joins again, leaves or disconnects, when another host joins, or
//! when the set is poisoned, the switch sends [`ToHost::Renew`] to the remaining hosts of the generation. They discard
//! their queue pairs and join again with new ones.
//!
//! The switch does not know whether a packet of an older generation may still land at a host. The hosts exchange that
//! among themselves.

use core::net::Ipv4Addr;
use core::time::Duration;

use stentor_wire::{PATH_MTUS, Psn};
use thiserror::Error;

use crate::plane::Attachment;
use crate::registers::MOST;

/// Version of these messages. Both ends of a connection must use the same version.
pub const VERSION: u16 = 1;
/// Length of the longest message, in bytes.
pub const MAX_BYTES: usize = 64;

/// A host's request to join a set, with queue pairs that nobody has used yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Join {
    /// Number of the set in the cluster's configuration.
    pub number: u16,
    /// Number of hosts of the complete set, 2 to [`MOST`].
    pub size: u8,
    /// Rank of this host, below `size`.
    pub rank: u8,
    /// Number of this join: the host counts its joins to this set. The switch's answers carry the same number. A join
    /// ends the host's earlier lives.
    pub life: u32,
    /// Time for which the host may hold the set without sending. The longest lease of all hosts applies.
    pub lease: Duration,
    /// Largest packet payload that the host accepts, in bytes. The smallest MTU of all hosts applies.
    pub mtu: u16,
    /// `true` if the host numbers its packets in the IPv4 identification field, as NICs and kernels do.
    pub identified: bool,
    /// The queue pair that the host sends with.
    pub sends: Attachment,
    /// The queue pair that the host receives with.
    pub receives: Attachment,
}

/// Announcement of a generation of a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ready {
    /// Number of the set in the cluster's configuration.
    pub number: u16,
    /// The life in the [`Join`] that this message answers.
    pub life: u32,
    /// Id of the generation: a random number, which the switch draws at its start, and the number of the generation
    /// since then.
    pub generation: u64,
    /// Number of the set in packets: see [`Switch::vrqpn`](crate::Switch::vrqpn).
    pub gid: u16,
    /// Address that sending queue pairs are connected to.
    pub forward: Ipv4Addr,
    /// Address that receiving queue pairs are connected to.
    pub backward: Ipv4Addr,
    /// Largest payload of a packet, in bytes.
    pub mtu: u16,
    /// `true` if copies may have IPv4 identifications other than 0.
    pub identified: bool,
    /// Ranks of the generation, as a bit mask.
    pub who: u32,
}

/// A message from a host to the switch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ToSwitch {
    /// The host wants to join a set.
    Join(Join),
    /// The host has destroyed its queue pairs of this life and does not want to be in the set for now.
    Leave {
        /// Number of the set.
        number: u16,
        /// The life that has ended.
        life: u32,
    },
}

/// A message from the switch's control plane to a host.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ToHost {
    /// A generation of the set exists.
    Ready(Ready),
    /// The life has ended: the host must join again with new queue pairs.
    Renew {
        /// Number of the set.
        number: u16,
        /// The life that has ended.
        life: u32,
    },
    /// The switch does not admit this host to the set, with its current parameters.
    Refused {
        /// Number of the set.
        number: u16,
        /// The life in the [`Join`] that this message answers.
        life: u32,
        /// The reason.
        why: Refusal,
    },
}

/// Reason why a host is not admitted to a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum Refusal {
    /// The switch has no room for another set.
    #[error("the switch has no room for another set: raise `sets` in its configuration")]
    Full,
    /// Other hosts stated another size.
    #[error("the other hosts have joined this set with another size: start all of them with the same configuration")]
    Size,
    /// Another connection has joined with this rank.
    #[error("another connection has already joined with this rank: give each process an id of its own")]
    Taken,
    /// The switch cannot forward the host's packets because it does not see their identifications.
    #[error(
        "the switch runs on plain sockets, which cannot read the IPv4 identification of packets: start it with `mode = \"raw\"`"
    )]
    Identified,
}

/// Reason why bytes are not a valid message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EnrolError {
    /// The length does not match the kind of message.
    #[error("a message of kind {kind} has {have} bytes instead of {need}")]
    Length {
        /// Kind of message: the first byte.
        kind: u8,
        /// Actual length, in bytes.
        have: usize,
        /// Expected length, in bytes.
        need: usize,
    },
    /// The message is empty.
    #[error("the message is empty")]
    Empty,
    /// The kind of message is unknown.
    #[error("unknown kind {0} of message: hosts send kinds 1 and 2, switches kinds 3, 4 and 5")]
    Kind(u8),
    /// A field has a value that is out of its range.
    #[error("{field} is out of range: {value}")]
    Field {
        /// Name of the field.
        field: &'static str,
        /// Value of the field.
        value: u64,
    },
}

const JOIN: u8 = 1;
const LEAVE: u8 = 2;
const READY: u8 = 3;
const RENEW: u8 = 4;
const REFUSED: u8 = 5;

impl ToSwitch {
    /// Encodes the message. Returns an array and the number of its bytes that are used.
    #[must_use]
    pub fn encode(&self) -> ([u8; MAX_BYTES], usize) {
        let mut to = Writer::new();
        match self {
            ToSwitch::Join(join) => {
                to.put(&[JOIN]);
                to.put(&join.number.to_be_bytes());
                to.put(&[join.size, join.rank]);
                to.put(&join.life.to_be_bytes());
                to.put(&u32::try_from(join.lease.as_millis()).unwrap_or(u32::MAX).to_be_bytes());
                to.put(&join.mtu.to_be_bytes());
                to.put(&[join.identified.into()]);
                for attachment in [join.sends, join.receives] {
                    to.put(&attachment.ip.octets());
                    to.put(&attachment.qpn.to_be_bytes());
                    to.put(&attachment.first_psn.get().to_be_bytes());
                }
            }
            ToSwitch::Leave { number, life } => to.head(LEAVE, *number, *life),
        }
        to.done()
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// See [`EnrolError`].
    pub fn decode(bytes: &[u8]) -> Result<ToSwitch, EnrolError> {
        let mut from = Reader::new(bytes)?;
        match from.kind {
            JOIN => {
                from.must_have(40)?;
                let join = Join {
                    number: from.u16(),
                    size: from.u8(),
                    rank: from.u8(),
                    life: from.u32(),
                    lease: Duration::from_millis(from.u32().into()),
                    mtu: from.mtu()?,
                    identified: from.flag()?,
                    sends: from.attachment()?,
                    receives: from.attachment()?,
                };
                in_range("size", join.size, 2, MOST as u8)?;
                in_range("rank", join.rank, 0, join.size - 1)?;
                Ok(ToSwitch::Join(join))
            }
            LEAVE => {
                from.must_have(7)?;
                Ok(ToSwitch::Leave { number: from.u16(), life: from.u32() })
            }
            kind => Err(EnrolError::Kind(kind)),
        }
    }
}

impl ToHost {
    /// Encodes the message. Returns an array and the number of its bytes that are used.
    #[must_use]
    pub fn encode(&self) -> ([u8; MAX_BYTES], usize) {
        let mut to = Writer::new();
        match self {
            ToHost::Ready(ready) => {
                to.head(READY, ready.number, ready.life);
                to.put(&ready.generation.to_be_bytes());
                to.put(&ready.gid.to_be_bytes());
                to.put(&ready.forward.octets());
                to.put(&ready.backward.octets());
                to.put(&ready.mtu.to_be_bytes());
                to.put(&[ready.identified.into()]);
                to.put(&ready.who.to_be_bytes());
            }
            ToHost::Renew { number, life } => to.head(RENEW, *number, *life),
            ToHost::Refused { number, life, why } => {
                to.head(REFUSED, *number, *life);
                to.put(&[match why {
                    Refusal::Full => 1,
                    Refusal::Size => 2,
                    Refusal::Taken => 3,
                    Refusal::Identified => 4,
                }]);
            }
        }
        to.done()
    }

    /// Decodes a message.
    ///
    /// # Errors
    /// See [`EnrolError`].
    pub fn decode(bytes: &[u8]) -> Result<ToHost, EnrolError> {
        let mut from = Reader::new(bytes)?;
        match from.kind {
            READY => {
                from.must_have(32)?;
                let ready = Ready {
                    number: from.u16(),
                    life: from.u32(),
                    generation: from.u64(),
                    gid: from.u16(),
                    forward: from.ip()?,
                    backward: from.ip()?,
                    mtu: from.mtu()?,
                    identified: from.flag()?,
                    who: from.u32(),
                };
                let odd = EnrolError::Field { field: "who", value: ready.who.into() };
                if ready.who.count_ones() < 2 { Err(odd) } else { Ok(ToHost::Ready(ready)) }
            }
            RENEW => {
                from.must_have(7)?;
                Ok(ToHost::Renew { number: from.u16(), life: from.u32() })
            }
            REFUSED => {
                from.must_have(8)?;
                let (number, life) = (from.u16(), from.u32());
                let why = match from.u8() {
                    1 => Refusal::Full,
                    2 => Refusal::Size,
                    3 => Refusal::Taken,
                    4 => Refusal::Identified,
                    other => return Err(EnrolError::Field { field: "why", value: other.into() }),
                };
                Ok(ToHost::Refused { number, life, why })
            }
            kind => Err(EnrolError::Kind(kind)),
        }
    }
}

fn in_range(field: &'static str, value: u8, min: u8, max: u8) -> Result<(), EnrolError> {
    if (min..=max).contains(&value) { Ok(()) } else { Err(EnrolError::Field { field, value: value.into() }) }
}

struct Writer {
    bytes: [u8; MAX_BYTES],
    len: usize,
}

impl Writer {
    fn new() -> Writer {
        Writer { bytes: [0; MAX_BYTES], len: 0 }
    }

    fn put(&mut self, what: &[u8]) {
        self.bytes[self.len..self.len + what.len()].copy_from_slice(what);
        self.len += what.len();
    }

    fn head(&mut self, kind: u8, number: u16, life: u32) {
        self.put(&[kind]);
        self.put(&number.to_be_bytes());
        self.put(&life.to_be_bytes());
    }

    fn done(self) -> ([u8; MAX_BYTES], usize) {
        (self.bytes, self.len)
    }
}

/// Reads fields from the front of a message. The length is checked once, before the first field.
struct Reader<'a> {
    kind: u8,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Reader<'a>, EnrolError> {
        let (kind, bytes) = bytes.split_first().ok_or(EnrolError::Empty)?;
        Ok(Reader { kind: *kind, bytes })
    }

    /// Checks the length of the whole message, its first byte included.
    fn must_have(&self, need: usize) -> Result<(), EnrolError> {
        let (kind, have) = (self.kind, self.bytes.len() + 1);
        if have == need { Ok(()) } else { Err(EnrolError::Length { kind, have, need }) }
    }

    /// Returns the next `N` bytes, or zeros at the end of the message. [`must_have`](Reader::must_have) ensures that
    /// the end is not reached.
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((first, rest)) = self.bytes.split_first_chunk() else { return [0; N] };
        self.bytes = rest;
        *first
    }

    fn u8(&mut self) -> u8 {
        self.take::<1>()[0]
    }

    fn u16(&mut self) -> u16 {
        u16::from_be_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_be_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_be_bytes(self.take())
    }

    fn flag(&mut self) -> Result<bool, EnrolError> {
        match self.u8() {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(EnrolError::Field { field: "a flag", value: other.into() }),
        }
    }

    fn mtu(&mut self) -> Result<u16, EnrolError> {
        let mtu = self.u16();
        let odd = EnrolError::Field { field: "mtu", value: mtu.into() };
        if PATH_MTUS.contains(&mtu) { Ok(mtu) } else { Err(odd) }
    }

    fn ip(&mut self) -> Result<Ipv4Addr, EnrolError> {
        let ip = Ipv4Addr::from(self.take::<4>());
        let odd = EnrolError::Field { field: "address", value: ip.to_bits().into() };
        let is_host = !ip.is_unspecified() && !ip.is_multicast() && !ip.is_broadcast();
        if is_host { Ok(ip) } else { Err(odd) }
    }

    fn u24(&mut self, field: &'static str) -> Result<u32, EnrolError> {
        let value = self.u32();
        if value <= 0xff_ffff { Ok(value) } else { Err(EnrolError::Field { field, value: value.into() }) }
    }

    fn attachment(&mut self) -> Result<Attachment, EnrolError> {
        let (ip, qpn) = (self.ip()?, self.u24("queue pair")?);
        Ok(Attachment { ip, qpn, first_psn: Psn::new(self.u24("first PSN")?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn join() -> Join {
        let attachment =
            |last, qpn, psn| Attachment { ip: Ipv4Addr::new(127, 0, 0, last), qpn, first_psn: Psn::new(psn) };
        Join {
            number: 0x0102,
            size: 32,
            rank: 31,
            life: 7,
            lease: Duration::from_millis(2500),
            mtu: 1024,
            identified: true,
            sends: attachment(9, 0xff_ffff, 1),
            receives: attachment(10, 17, 0xff_fffe),
        }
    }

    fn ready() -> Ready {
        Ready {
            number: 3,
            life: 1 << 31,
            generation: 1 << 63 | 5,
            gid: 0xfffe,
            forward: Ipv4Addr::new(127, 0, 1, 1),
            backward: Ipv4Addr::new(127, 0, 1, 2),
            mtu: 4096,
            identified: false,
            who: 0b101,
        }
    }

    fn from_hosts() -> [ToSwitch; 2] {
        [ToSwitch::Join(join()), ToSwitch::Leave { number: 5, life: 6 }]
    }

    fn from_switch() -> [ToHost; 6] {
        let refused = |why| ToHost::Refused { number: 5, life: 6, why };
        [
            ToHost::Ready(ready()),
            ToHost::Renew { number: 5, life: 6 },
            refused(Refusal::Full),
            refused(Refusal::Size),
            refused(Refusal::Taken),
            refused(Refusal::Identified),
        ]
    }

    #[test]
    fn messages_round_trip_and_other_lengths_are_refused() {
        for message in from_hosts() {
            let (bytes, len) = message.encode();
            assert_eq!(ToSwitch::decode(&bytes[..len]), Ok(message));
            for other in (0..MAX_BYTES).filter(|other| *other != len) {
                assert!(ToSwitch::decode(&bytes[..other]).is_err(), "{message:?}: {other} bytes");
            }
            assert_eq!(ToHost::decode(&bytes[..len]), Err(EnrolError::Kind(bytes[0])), "a message of the other end");
        }
        for message in from_switch() {
            let (bytes, len) = message.encode();
            assert_eq!(ToHost::decode(&bytes[..len]), Ok(message));
            for other in (0..MAX_BYTES).filter(|other| *other != len) {
                assert!(ToHost::decode(&bytes[..other]).is_err(), "{message:?}: {other} bytes");
            }
            assert_eq!(ToSwitch::decode(&bytes[..len]), Err(EnrolError::Kind(bytes[0])), "a message of the other end");
        }
        assert_eq!(ToSwitch::decode(&[]), Err(EnrolError::Empty));
    }

    #[test]
    fn a_field_out_of_its_range_is_named() {
        let refused = |change: &dyn Fn(&mut [u8])| {
            let (mut bytes, len) = ToSwitch::Join(join()).encode();
            change(&mut bytes);
            ToSwitch::decode(&bytes[..len]).unwrap_err()
        };
        let field = |field, value| EnrolError::Field { field, value };
        assert_eq!(refused(&|b| b[3] = 1), field("size", 1));
        assert_eq!(refused(&|b| b[3] = 33), field("size", 33));
        assert_eq!(refused(&|b| b[4] = 32), field("rank", 32));
        assert_eq!(refused(&|b| b[13] = 3), field("mtu", 0x300));
        assert_eq!(refused(&|b| b[15] = 2), field("a flag", 2));
        assert_eq!(refused(&|b| b[16..20].fill(0)), field("address", 0));
        assert_eq!(refused(&|b| b[16] = 224), field("address", 0xe000_0009));
        assert_eq!(refused(&|b| b[20] = 1), field("queue pair", 0x1ff_ffff));
        assert_eq!(refused(&|b| b[24] = 1), field("first PSN", 0x100_0001));
        let (mut bytes, len) = ToHost::Ready(ready()).encode();
        bytes[len - 1] = 1;
        assert_eq!(ToHost::decode(&bytes[..len]), Err(field("who", 1)), "a set has at least two hosts");
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_message_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..MAX_BYTES)) {
            if let Ok(message) = ToSwitch::decode(&bytes) {
                let (again, len) = message.encode();
                prop_assert_eq!(&again[..len], &bytes);
            }
            if let Ok(message) = ToHost::decode(&bytes) {
                let (again, len) = message.encode();
                prop_assert_eq!(&again[..len], &bytes);
            }
        }

        /// Random bytes are rarely a message, so this test changes a few bytes of valid ones.
        #[test]
        fn changed_message_is_valid_or_an_error(
            changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 0..4),
            which in any::<proptest::sample::Index>(),
        ) {
            let hosts = from_hosts().map(|message| message.encode());
            let switch = from_switch().map(|message| message.encode());
            let all = [&hosts[..], &switch[..]].concat();
            let (mut bytes, len) = all[which.index(all.len())];
            for (at, byte) in changes {
                bytes[at.index(len)] = byte;
            }
            let bytes = &bytes[..len];
            let again = ToSwitch::decode(bytes).map(|message| message.encode());
            let again = again.or_else(|_| ToHost::decode(bytes).map(|message| message.encode()));
            if let Ok((again, len)) = again {
                prop_assert_eq!(&again[..len], bytes);
            }
        }
    }
}
