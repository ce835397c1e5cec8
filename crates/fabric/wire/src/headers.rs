//! The transport headers, as bytes and as values.

use zerocopy::byteorder::big_endian::{U16, U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::{Psn, Syndrome};

/// Length of the base transport header, in bytes.
pub const BTH_BYTES: usize = 12;

/// The base transport header in its encoding.
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

/// A 24-bit field of a header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(crate) struct U24([u8; 3]);

impl U24 {
    #[inline]
    fn get(self) -> u32 {
        u24(self.0)
    }
}

impl From<u32> for U24 {
    #[inline]
    fn from(value: u32) -> U24 {
        U24(bytes24(value))
    }
}

/// The encoded syndrome of a header.
#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
#[repr(C)]
pub(crate) struct RawSyndrome(u8);

impl RawSyndrome {
    #[inline]
    fn get(self) -> Syndrome {
        Syndrome::from_byte(self.0)
    }
}

impl From<Syndrome> for RawSyndrome {
    #[inline]
    fn from(syndrome: Syndrome) -> RawSyndrome {
        RawSyndrome(syndrome.to_byte())
    }
}

/// Declares the encoding of headers, field by field. `reserved` names a byte without meaning that follows a field.
macro_rules! raw {
    ($($raw:ident of $header:ident { $($field:ident: $type:ty $(, $reserved:ident)?;)* })*) => {
        $(#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned, Clone, Copy)]
        #[repr(C)]
        pub(crate) struct $raw {
            $($field: $type, $($reserved: u8,)?)*
        }

        impl From<$raw> for $header {
            #[inline]
            fn from(raw: $raw) -> $header {
                $header { $($field: raw.$field.get()),* }
            }
        }

        impl From<$header> for $raw {
            #[inline]
            fn from(header: $header) -> $raw {
                $raw { $($field: header.$field.into(), $($reserved: 0,)?)* }
            }
        })*
    };
}

raw! {
    RawReth of Reth { va: U64; rkey: U32; bytes: U32; }
    RawAeth of Aeth { syndrome: RawSyndrome; msn: U24; }
    RawAtomicEth of AtomicEth { va: U64; rkey: U32; swap_add: U64; compare: U64; }
    RawDeth of Deth { qkey: U32, reserved; source_qp: U24; }
}

/// The fields of the base transport header that the operation does not determine.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[allow(clippy::struct_excessive_bools)]
pub struct Bth {
    /// SE: `true` to wake the responder if it waits for solicited events.
    pub solicited: bool,
    /// M: `true` if the migration state is "migrated". Linux sends 0, some NICs send 1.
    pub migreq: bool,
    /// Partition key.
    pub pkey: u16,
    /// FECN: `true` if the packet encountered congestion.
    pub fecn: bool,
    /// BECN: `true` if packets of the other direction encountered congestion.
    pub becn: bool,
    /// Destination queue pair, 24 bits.
    pub dest_qp: u32,
    /// A: `true` if the responder must acknowledge.
    pub ack_req: bool,
    /// Packet sequence number.
    pub psn: Psn,
}

impl Bth {
    /// Creates a header of the default partition without flags.
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

/// RDMA extended transport header: the remote memory of a READ or WRITE.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reth {
    /// Virtual address at the responder.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// Length of the whole message, in bytes.
    pub bytes: u32,
}

/// ACK extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// Kind and value of the acknowledgement.
    pub syndrome: Syndrome,
    /// Message sequence number: number of messages that the responder has completed, 24 bits.
    pub msn: u32,
}

/// Atomic extended transport header.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtomicEth {
    /// Virtual address at the responder, a multiple of 8.
    pub va: u64,
    /// Remote key.
    pub rkey: u32,
    /// The new value of a compare-and-swap, or the addend of a fetch-and-add.
    pub swap_add: u64,
    /// The expected value of a compare-and-swap; 0 for fetch-and-add.
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
