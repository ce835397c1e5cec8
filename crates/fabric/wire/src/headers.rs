//! The headers, as bytes and as values.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Psn, Syndrome};

/// Bytes of the base transport header.
pub const BTH_BYTES: usize = 12;

/// The base transport header as it lies in a packet.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawBth {
    pub(crate) opcode: u8,
    /// SE, M, pad count (2 bits), transport version (4 bits).
    pub(crate) flags: u8,
    pub(crate) pkey: U16,
    /// FECN, BECN, 6 reserved bits: not covered by the ICRC.
    pub(crate) congestion: u8,
    pub(crate) dest_qp: [u8; 3],
    /// AckReq, 7 reserved bits.
    pub(crate) ack: u8,
    pub(crate) psn: [u8; 3],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawReth {
    pub(crate) va: U64,
    pub(crate) rkey: U32,
    pub(crate) bytes: U32,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawAeth {
    pub(crate) syndrome: u8,
    pub(crate) msn: [u8; 3],
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawAtomicEth {
    pub(crate) va: U64,
    pub(crate) rkey: U32,
    pub(crate) swap_add: U64,
    pub(crate) compare: U64,
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawDeth {
    pub(crate) qkey: U32,
    pub(crate) reserved: u8,
    pub(crate) source_qp: [u8; 3],
}

/// The fields of the base transport header that do not follow from the operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(clippy::struct_excessive_bools)]
pub struct Bth {
    /// SE: wake the responder if it waits for solicited events.
    pub solicited: bool,
    /// M: the migration state is "migrated". Linux sends 0, some NICs 1.
    pub migreq: bool,
    /// Partition.
    pub pkey: u16,
    /// FECN: the packet met congestion.
    pub fecn: bool,
    /// BECN: packets of the other direction met congestion.
    pub becn: bool,
    /// Destination queue pair, 24 bits.
    pub dest_qp: u32,
    /// A: the responder is to acknowledge.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// A header without flags, of the default partition.
    #[must_use]
    pub const fn new(dest_qp: u32, psn: Psn) -> Bth {
        Bth {
            solicited: false,
            migreq: false,
            pkey: crate::DEFAULT_PKEY,
            fecn: false,
            becn: false,
            dest_qp,
            ack_req: false,
            psn,
        }
    }
}

/// RDMA extended transport header: remote memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reth {
    /// Virtual address at the responder.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Length of the whole message, bytes.
    pub bytes: u32,
}

/// ACK extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// What is said.
    pub syndrome: Syndrome,
    /// Message sequence number: messages that the responder has completed, 24 bits.
    pub msn: u32,
}

/// Atomic extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicEth {
    /// Virtual address at the responder, a multiple of 8.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// The new value, or what is added.
    pub swap_add: u64,
    /// What the memory is compared with; 0 for fetch-and-add.
    pub compare: u64,
}

/// Datagram extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Deth {
    /// Queue key.
    pub qkey: u32,
    /// Source queue pair, 24 bits.
    pub source_qp: u32,
}

#[inline]
pub(crate) const fn u24([a, b, c]: [u8; 3]) -> u32 {
    u32::from_be_bytes([0, a, b, c])
}

#[inline]
pub(crate) const fn bytes24(value: u32) -> [u8; 3] {
    let [_, a, b, c] = value.to_be_bytes();
    [a, b, c]
}

impl From<RawReth> for Reth {
    #[inline]
    fn from(raw: RawReth) -> Reth {
        Reth { va: raw.va.get(), rkey: raw.rkey.get(), bytes: raw.bytes.get() }
    }
}

impl From<Reth> for RawReth {
    #[inline]
    fn from(reth: Reth) -> RawReth {
        RawReth { va: reth.va.into(), rkey: reth.rkey.into(), bytes: reth.bytes.into() }
    }
}

impl From<RawAeth> for Aeth {
    #[inline]
    fn from(raw: RawAeth) -> Aeth {
        Aeth { syndrome: Syndrome::from_byte(raw.syndrome), msn: u24(raw.msn) }
    }
}

impl From<Aeth> for RawAeth {
    #[inline]
    fn from(aeth: Aeth) -> RawAeth {
        RawAeth { syndrome: aeth.syndrome.to_byte(), msn: bytes24(aeth.msn) }
    }
}

impl From<RawAtomicEth> for AtomicEth {
    #[inline]
    fn from(raw: RawAtomicEth) -> AtomicEth {
        AtomicEth { va: raw.va.get(), rkey: raw.rkey.get(), swap_add: raw.swap_add.get(), compare: raw.compare.get() }
    }
}

impl From<AtomicEth> for RawAtomicEth {
    #[inline]
    fn from(atomic: AtomicEth) -> RawAtomicEth {
        RawAtomicEth {
            va: atomic.va.into(),
            rkey: atomic.rkey.into(),
            swap_add: atomic.swap_add.into(),
            compare: atomic.compare.into(),
        }
    }
}

impl From<RawDeth> for Deth {
    #[inline]
    fn from(raw: RawDeth) -> Deth {
        Deth { qkey: raw.qkey.get(), source_qp: u24(raw.source_qp) }
    }
}

impl From<Deth> for RawDeth {
    #[inline]
    fn from(deth: Deth) -> RawDeth {
        RawDeth { qkey: deth.qkey.into(), reserved: 0, source_qp: bytes24(deth.source_qp) }
    }
}
