//! What hosts and the control plane of a switch say to each other, as bytes.
//!
//! A host [`Join`]s a set with two queue pairs that nobody has used yet. When everybody has joined, or enough have and no more
//! come for a while, the switch makes a *generation* of the set of those who are there, under a `gid` that no older packet
//! names, and says so ([`Ready`]). A generation never changes: when one of its hosts comes, goes or has a queue pair that
//! broke, the others are told to come again ([`ToHost::Renew`]). They throw their queue pairs away and join with new ones.
//!
//! Whether something of an older generation may land at a host still is nothing that the switch knows; hosts tell that each
//! other.

use core::net::Ipv4Addr;
use core::time::Duration;

use stentor_wire::{PATH_MTUS, Psn};
use thiserror::Error;

use crate::plane::Attachment;
use crate::registers::MOST;

/// Version of these messages; both ends of a line have the same.
pub const VERSION: u16 = 1;
/// The longest message, bytes.
pub const MAX_BYTES: usize = 64;

/// A host is there, with queue pairs that nobody has used yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Join {
    /// The set, as the cluster counts.
    pub number: u16,
    /// Hosts that the set has when all are there: 2 to [`MOST`].
    pub size: u8,
    /// Which of them this is; below `size`.
    pub rank: u8,
    /// Counts how often this host has joined this set; comes back in the answers. What it joined as before is over.
    pub life: u32,
    /// How long it may hold the set without being heard of. The longest of all hosts counts.
    pub lease: Duration,
    /// Payload of a packet that it takes, bytes. The smallest of all hosts counts.
    pub mtu: u16,
    /// Whether its packets have IPv4 identifications of their own, as those of cards and of kernels have.
    pub identified: bool,
    /// What it sends with.
    pub sends: Attachment,
    /// What it receives with.
    pub receives: Attachment,
}

/// A generation of a set is there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ready {
    /// The set, as the cluster counts.
    pub number: u16,
    /// What [`Join::life`] said.
    pub life: u32,
    /// Names the generation; no other one of any set, nor of any other switch or start of a switch, has the same.
    pub generation: u64,
    /// The set, as packets name it: see [`Switch::vrqpn`](crate::Switch::vrqpn).
    pub gid: u16,
    /// The address that sending queue pairs are connected to.
    pub forward: Ipv4Addr,
    /// The address that receiving queue pairs are connected to.
    pub backward: Ipv4Addr,
    /// Payload of a packet, bytes.
    pub mtu: u16,
    /// Whether copies may have IPv4 identifications other than 0.
    pub identified: bool,
    /// The ranks that it has.
    pub who: u32,
}

/// What a host says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ToSwitch {
    /// It wants to be in a set.
    Join(Join),
    /// Its queue pairs of this life are gone, and it does not want to be in the set for now.
    Leave {
        /// The set.
        number: u16,
        /// The life that is over.
        life: u32,
    },
}

/// What the control plane says.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ToHost {
    /// The set is there.
    Ready(Ready),
    /// This life is over: join anew, with new queue pairs.
    Renew {
        /// The set.
        number: u16,
        /// The life.
        life: u32,
    },
    /// The set is not for this host, as it is now.
    Refused {
        /// The set.
        number: u16,
        /// What [`Join::life`] said.
        life: u32,
        /// Why.
        why: Refusal,
    },
}

/// Why a host is not let into a set.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Error)]
pub enum Refusal {
    /// No room.
    #[error("the switch has no room for another set: raise `sets` in its configuration")]
    Full,
    /// Another size than others said.
    #[error("the other hosts say that the set has another size: start all of them with the same configuration")]
    Size,
    /// Another connection is there for this rank.
    #[error("this rank is there already on another connection: give each process an id of its own")]
    Taken,
    /// Its packets cannot be taken in.
    #[error(
        "the switch runs on plain sockets, which do not see identifications of packets: start it with `mode = \"raw\"`"
    )]
    Identified,
}

/// Why bytes are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
pub enum EnrolError {
    /// Not as long as such a message is.
    #[error("{have} bytes, and a message of kind {kind} has {need}")]
    Length {
        /// The first byte.
        kind: u8,
        /// Bytes that there are.
        have: usize,
        /// Bytes that there should be.
        need: usize,
    },
    /// Nothing at all.
    #[error("an empty message")]
    Empty,
    /// No such message.
    #[error("a message of kind {0}: a host says 1 or 2, a switch 3, 4 or 5")]
    Kind(u8),
    /// A field with a value that it cannot have.
    #[error("{field} is {value}")]
    Field {
        /// Which.
        field: &'static str,
        /// What it is.
        value: u64,
    },
}

const JOIN: u8 = 1;
const LEAVE: u8 = 2;
const READY: u8 = 3;
const RENEW: u8 = 4;
const REFUSED: u8 = 5;

impl ToSwitch {
    /// Writes it; the bytes are the first of the array, so many.
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

    /// Reads it.
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
    /// Writes it; the bytes are the first of the array, so many.
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

    /// Reads it.
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

/// Takes bytes from the front. Their number is checked once, before.
struct Reader<'a> {
    kind: u8,
    bytes: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Reader<'a>, EnrolError> {
        let (kind, bytes) = bytes.split_first().ok_or(EnrolError::Empty)?;
        Ok(Reader { kind: *kind, bytes })
    }

    /// All bytes of a message, its first one among them.
    fn must_have(&self, need: usize) -> Result<(), EnrolError> {
        let (kind, have) = (self.kind, self.bytes.len() + 1);
        if have == need { Ok(()) } else { Err(EnrolError::Length { kind, have, need }) }
    }

    /// Zeros behind the end: [`must_have`](Reader::must_have) has seen to it that there is none.
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
    fn what_is_written_is_read_and_nothing_shorter_or_longer() {
        for message in from_hosts() {
            let (bytes, len) = message.encode();
            assert_eq!(ToSwitch::decode(&bytes[..len]), Ok(message));
            for other in (0..MAX_BYTES).filter(|other| *other != len) {
                assert!(ToSwitch::decode(&bytes[..other]).is_err(), "{message:?}: {other} bytes");
            }
            assert_eq!(ToHost::decode(&bytes[..len]), Err(EnrolError::Kind(bytes[0])), "of the other end");
        }
        for message in from_switch() {
            let (bytes, len) = message.encode();
            assert_eq!(ToHost::decode(&bytes[..len]), Ok(message));
            for other in (0..MAX_BYTES).filter(|other| *other != len) {
                assert!(ToHost::decode(&bytes[..other]).is_err(), "{message:?}: {other} bytes");
            }
            assert_eq!(ToSwitch::decode(&bytes[..len]), Err(EnrolError::Kind(bytes[0])), "of the other end");
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
        assert_eq!(ToHost::decode(&bytes[..len]), Err(field("who", 1)), "one alone is no set");
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

        /// Of random bytes hardly any is a message: these nearly are.
        #[test]
        fn a_message_that_was_changed_is_one_or_an_error(
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
