//! RoCEv2 packets: views, parsers and the invariant CRC. No `std`, no allocation, no I/O, no `unsafe`.
//!
//! - [`Packet`] is a view of what a UDP datagram to port 4791 carries: base transport header, extension headers, payload,
//!   pad, ICRC. [`Packet::new_checked`] is the only place that can fail; no accessor panics after it.
//! - [`Repr`] is the same as a value: which operation with exactly the headers that this operation has. [`Repr::parse`]
//!   and [`Repr::emit`] go between the two.
//! - [`Envelope`] is the IP and UDP header around it, without which no ICRC can be computed; [`IpPacket`] is the view.
//! - [`icrc`] computes the CRC whole, or from the old one when only headers change: the payload is not touched then.
//! - [`Psn`], [`Syndrome`], [`RnrTimer`] and [`Credits`] are the specification's small numbers as types.
//!
//! Sources: InfiniBand Architecture Specification 1.4 volume 1, chapter 9 and annex A17 (RoCEv2); where Linux
//! (`drivers/infiniband/sw/rxe`) reads it in one of several ways, that way. All fields are big endian; the ICRC alone is
//! sent with its lowest byte first.
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
/// The partition that everybody is a full member of.
pub const DEFAULT_PKEY: u16 = 0xffff;
/// Bytes of the ICRC behind the payload.
pub const ICRC_BYTES: usize = 4;
/// The largest message, bytes (InfiniBand specification 9.4.3: 2^31).
pub const MAX_MESSAGE_BYTES: u32 = 1 << 31;
/// The path MTUs there are, bytes of payload in one packet.
pub const PATH_MTUS: [u16; 5] = [256, 512, 1024, 2048, 4096];
/// The longest transport part there is: headers, a payload of 4096 bytes, ICRC.
pub const MAX_TRANSPORT_BYTES: usize = BTH_BYTES + opcode::MAX_EXTENSION_BYTES + 4096 + ICRC_BYTES;
