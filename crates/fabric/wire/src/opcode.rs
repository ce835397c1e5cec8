//! Opcodes and their headers.

use crate::Error;

/// Maximum length of the extension headers, in bytes. The longest is the AtomicETH.
pub(crate) const MAX_EXTENSION_BYTES: usize = 28;

/// The transport service.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Service {
    /// Reliable connection.
    Rc,
    /// Unreliable connection.
    Uc,
    /// Unreliable datagram.
    Ud,
    /// Congestion notification.
    Cnp,
}

/// The position of a packet in its message.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Position {
    /// The first of several packets.
    First,
    /// Neither the first nor the last packet.
    Middle,
    /// The last of several packets.
    Last,
    /// The only packet.
    Only,
}

impl Position {
    /// Returns whether a message begins with this packet.
    #[inline]
    #[must_use]
    pub const fn begins(self) -> bool {
        matches!(self, Position::First | Position::Only)
    }

    /// Returns whether a message ends with this packet.
    #[inline]
    #[must_use]
    pub const fn ends(self) -> bool {
        matches!(self, Position::Last | Position::Only)
    }

    /// Returns the position of packet `index` of `count`.
    #[inline]
    #[must_use]
    pub const fn of(index: u32, count: u32) -> Position {
        match (index == 0, index + 1 >= count) {
            (true, true) => Position::Only,
            (true, false) => Position::First,
            (false, true) => Position::Last,
            (false, false) => Position::Middle,
        }
    }
}

/// The extension headers of an opcode: each flag is `true` if the header is present.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(clippy::struct_excessive_bools)]
pub struct Shape {
    /// DETH, 8 bytes.
    pub deth: bool,
    /// RETH, 16 bytes.
    pub reth: bool,
    /// AETH, 4 bytes.
    pub aeth: bool,
    /// AtomicETH, 28 bytes.
    pub atomic: bool,
    /// AtomicAckETH, 8 bytes.
    pub atomic_ack: bool,
    /// Immediate, 4 bytes.
    pub imm: bool,
    /// IETH, 4 bytes.
    pub ieth: bool,
    /// The 16 zeros of a CNP.
    pub zeroes: bool,
    /// `true` if a payload may follow.
    pub payload: bool,
}

impl Shape {
    /// Returns the length of the extension headers, in bytes.
    #[inline]
    #[must_use]
    pub const fn bytes(self) -> usize {
        self.deth as usize * 8
            + self.reth as usize * 16
            + self.aeth as usize * 4
            + self.atomic as usize * 28
            + self.atomic_ack as usize * 8
            + self.imm as usize * 4
            + self.ieth as usize * 4
            + self.zeroes as usize * 16
    }
}

const NO: Shape = Shape {
    deth: false,
    reth: false,
    aeth: false,
    atomic: false,
    atomic_ack: false,
    imm: false,
    ieth: false,
    zeroes: false,
    payload: false,
};
const DATA: Shape = Shape { payload: true, ..NO };

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $code:literal $text:literal $shape:expr;)+) => {
        /// Every opcode of RC, UC and UD, and the congestion notification (InfiniBand specification table 38; A17).
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum Opcode {
            $($(#[$doc])* $name = $code,)+
        }

        impl Opcode {
            /// All opcodes.
            pub const ALL: &[Opcode] = &[$(Opcode::$name),+];

            /// Decodes an opcode.
            ///
            /// # Errors
            /// [`Error::UnknownOpcode`] if `byte` is no opcode.
            #[inline]
            pub const fn from_byte(byte: u8) -> Result<Opcode, Error> {
                match byte {
                    $($code => Ok(Opcode::$name),)+
                    other => Err(Error::UnknownOpcode(other)),
                }
            }

            /// Returns the name that Wireshark uses.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Opcode::$name => $text),+ }
            }

            /// Returns the extension headers of this opcode.
            #[inline]
            #[must_use]
            pub const fn shape(self) -> Shape {
                match self { $(Opcode::$name => $shape),+ }
            }
        }
    };
}

opcodes! {
    /// RC SEND First.
    RcSendFirst = 0x00 "RC Send First" DATA;
    /// RC SEND Middle.
    RcSendMiddle = 0x01 "RC Send Middle" DATA;
    /// RC SEND Last.
    RcSendLast = 0x02 "RC Send Last" DATA;
    /// RC SEND Last with immediate.
    RcSendLastImm = 0x03 "RC Send Last Immediate" Shape { imm: true, ..DATA };
    /// RC SEND Only.
    RcSendOnly = 0x04 "RC Send Only" DATA;
    /// RC SEND Only with immediate.
    RcSendOnlyImm = 0x05 "RC Send Only Immediate" Shape { imm: true, ..DATA };
    /// RC WRITE First.
    RcWriteFirst = 0x06 "RC RDMA Write First" Shape { reth: true, ..DATA };
    /// RC WRITE Middle.
    RcWriteMiddle = 0x07 "RC RDMA Write Middle" DATA;
    /// RC WRITE Last.
    RcWriteLast = 0x08 "RC RDMA Write Last" DATA;
    /// RC WRITE Last with immediate.
    RcWriteLastImm = 0x09 "RC RDMA Write Last Immediate" Shape { imm: true, ..DATA };
    /// RC WRITE Only.
    RcWriteOnly = 0x0a "RC RDMA Write Only" Shape { reth: true, ..DATA };
    /// RC WRITE Only with immediate.
    RcWriteOnlyImm = 0x0b "RC RDMA Write Only Immediate" Shape { reth: true, imm: true, ..DATA };
    /// RC READ request.
    RcReadRequest = 0x0c "RC RDMA Read Request" Shape { reth: true, ..NO };
    /// RC READ response First.
    RcReadResponseFirst = 0x0d "RC RDMA Read Response First" Shape { aeth: true, ..DATA };
    /// RC READ response Middle.
    RcReadResponseMiddle = 0x0e "RC RDMA Read Response Middle" DATA;
    /// RC READ response Last.
    RcReadResponseLast = 0x0f "RC RDMA Read Response Last" Shape { aeth: true, ..DATA };
    /// RC READ response Only.
    RcReadResponseOnly = 0x10 "RC RDMA Read Response Only" Shape { aeth: true, ..DATA };
    /// RC acknowledge.
    RcAcknowledge = 0x11 "RC Acknowledge" Shape { aeth: true, ..NO };
    /// RC ATOMIC acknowledge.
    RcAtomicAcknowledge = 0x12 "RC Atomic Acknowledge" Shape { aeth: true, atomic_ack: true, ..NO };
    /// RC compare-and-swap.
    RcCompareSwap = 0x13 "RC Cmp Swap" Shape { atomic: true, ..NO };
    /// RC fetch-and-add.
    RcFetchAdd = 0x14 "RC Fetch Add" Shape { atomic: true, ..NO };
    /// RC SEND Last with invalidate.
    RcSendLastInvalidate = 0x16 "RC Send Last Invalidate" Shape { ieth: true, ..DATA };
    /// RC SEND Only with invalidate.
    RcSendOnlyInvalidate = 0x17 "RC Send Only Invalidate" Shape { ieth: true, ..DATA };
    /// UC SEND First.
    UcSendFirst = 0x20 "UC Send First" DATA;
    /// UC SEND Middle.
    UcSendMiddle = 0x21 "UC Send Middle" DATA;
    /// UC SEND Last.
    UcSendLast = 0x22 "UC Send Last" DATA;
    /// UC SEND Last with immediate.
    UcSendLastImm = 0x23 "UC Send Last Immediate" Shape { imm: true, ..DATA };
    /// UC SEND Only.
    UcSendOnly = 0x24 "UC Send Only" DATA;
    /// UC SEND Only with immediate.
    UcSendOnlyImm = 0x25 "UC Send Only Immediate" Shape { imm: true, ..DATA };
    /// UC WRITE First.
    UcWriteFirst = 0x26 "UC RDMA Write First" Shape { reth: true, ..DATA };
    /// UC WRITE Middle.
    UcWriteMiddle = 0x27 "UC RDMA Write Middle" DATA;
    /// UC WRITE Last.
    UcWriteLast = 0x28 "UC RDMA Write Last" DATA;
    /// UC WRITE Last with immediate.
    UcWriteLastImm = 0x29 "UC RDMA Write Last Immediate" Shape { imm: true, ..DATA };
    /// UC WRITE Only.
    UcWriteOnly = 0x2a "UC RDMA Write Only" Shape { reth: true, ..DATA };
    /// UC WRITE Only with immediate.
    UcWriteOnlyImm = 0x2b "UC RDMA Write Only Immediate" Shape { reth: true, imm: true, ..DATA };
    /// UD SEND Only.
    UdSendOnly = 0x64 "UD Send Only" Shape { deth: true, ..DATA };
    /// UD SEND Only with immediate.
    UdSendOnlyImm = 0x65 "UD Send Only Immediate" Shape { deth: true, imm: true, ..DATA };
    /// Congestion notification packet.
    Cnp = 0x81 "CNP" Shape { zeroes: true, ..NO };
}

impl Opcode {
    /// Returns the encoding of the opcode.
    #[inline]
    #[must_use]
    pub const fn to_byte(self) -> u8 {
        self as u8
    }

    /// Returns the transport service: the high three bits.
    #[inline]
    #[must_use]
    pub const fn service(self) -> Service {
        match self.to_byte() >> 5 {
            0 => Service::Rc,
            1 => Service::Uc,
            3 => Service::Ud,
            _ => Service::Cnp,
        }
    }

    /// Returns whether responders send this opcode: READ responses and acknowledgements.
    #[inline]
    #[must_use]
    pub const fn is_response(self) -> bool {
        matches!(self.to_byte(), 0x0d..=0x12)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_opcode_round_trips_and_other_bytes_are_refused() {
        let mut known = 0;
        for byte in 0..=255 {
            match Opcode::from_byte(byte) {
                Ok(opcode) => {
                    assert_eq!(opcode.to_byte(), byte);
                    known += 1;
                }
                Err(error) => assert_eq!(error, Error::UnknownOpcode(byte)),
            }
        }
        assert_eq!(known, Opcode::ALL.len());
        assert_eq!(known, 23 + 12 + 2 + 1);
        assert!(Opcode::ALL.iter().all(|opcode| opcode.shape().bytes() <= MAX_EXTENSION_BYTES));
    }

    #[test]
    fn positions() {
        assert_eq!([0, 1, 2].map(|i| Position::of(i, 3)), [Position::First, Position::Middle, Position::Last]);
        assert_eq!(Position::of(0, 1), Position::Only);
    }
}
