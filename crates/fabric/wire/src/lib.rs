//! RoCEv2 packets: views, parsers and the invariant CRC. No `std`, no allocation, no I/O, no `unsafe`.
//!
//! - [`Packet`] is a view of the payload of a UDP datagram to port 4791: base transport header, extension headers,
//!   payload, pad, ICRC. Only [`Packet::new_checked`] can fail; after it, no accessor panics.
//! - [`Repr`] is a packet as a value: an operation with exactly the headers that this operation has. [`Repr::parse`]
//!   and [`Repr::emit`] convert between the two.
//! - [`Envelope`] is the IP and UDP header around a packet, without which no ICRC can be computed; [`IpPacket`] is its
//!   view.
//! - [`icrc`] computes the CRC of a whole packet, or updates it when only headers change, without reading the payload.
//! - [`Psn`], [`Syndrome`], [`RnrTimer`] and [`Credits`] are the small numbers of the specification as types.
//!
//! Sources: InfiniBand Architecture Specification 1.4 volume 1, chapter 9 and annex A17 (RoCEv2). Where the
//! specification is ambiguous, the crate does what Linux does (`drivers/infiniband/sw/rxe`). All fields are big endian,
//! except the ICRC, which is sent with its least significant byte first.
#![no_std]
#![forbid(unsafe_code)]

mod display;
mod envelope;
mod error;
mod headers;
pub mod icrc;
mod opcode;
mod packet;
mod psn;
mod repr;
mod syndrome;

pub use envelope::{Envelope, IpPacket, IpRepr, Ipv4Repr, Ipv6Repr};
pub use error::Error;
pub use headers::{Aeth, AtomicEth, BTH_BYTES, Bth, Deth, Reth};
pub use opcode::{Opcode, Position, Service, Shape};
pub use packet::Packet;
pub use psn::Psn;
pub use repr::{Headers, Message, Repr, Response};
pub use syndrome::{Credits, NakCode, RnrTimer, Syndrome};

/// The UDP port of RoCEv2.
pub const UDP_PORT: u16 = 4791;
/// The default partition key, of which every port is a full member.
pub const DEFAULT_PKEY: u16 = 0xffff;
/// Length of the ICRC, which follows the payload, in bytes.
pub const ICRC_BYTES: usize = 4;
/// Maximum length of a message, in bytes (InfiniBand specification 9.4.3: 2^31).
pub const MAX_MESSAGE_BYTES: u32 = 1 << 31;
/// The path MTUs, in bytes of payload in one packet.
pub const PATH_MTUS: [u16; 5] = [256, 512, 1024, 2048, 4096];
/// Maximum length of the transport part, in bytes: headers, a payload of 4096 bytes, ICRC.
pub const MAX_TRANSPORT_BYTES: usize = BTH_BYTES + opcode::MAX_EXTENSION_BYTES + 4096 + ICRC_BYTES;
