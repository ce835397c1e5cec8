//! Packets as values: each operation has exactly the headers that belong to it.

use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::{U32, U64};

use crate::headers::{BTH_BYTES, RawAeth, RawAtomicEth, RawBth, RawDeth, RawReth, bytes24};
use crate::{Aeth, AtomicEth, Bth, Deth, Error, ICRC_BYTES, Opcode, Packet, Reth, Service};

/// A packet of a SEND or WRITE, which reliable and unreliable connections both have.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Message {
    /// The first packet of a SEND.
    SendFirst,
    /// A packet in the middle of a SEND.
    SendMiddle,
    /// The last packet of a SEND.
    SendLast,
    /// The last packet of a SEND, with an immediate.
    SendLastImm(u32),
    /// A SEND in one packet.
    SendOnly,
    /// A SEND in one packet, with an immediate.
    SendOnlyImm(u32),
    /// The first packet of a WRITE.
    WriteFirst(Reth),
    /// A packet in the middle of a WRITE.
    WriteMiddle,
    /// The last packet of a WRITE.
    WriteLast,
    /// The last packet of a WRITE, with an immediate.
    WriteLastImm(u32),
    /// A WRITE in one packet.
    WriteOnly(Reth),
    /// A WRITE in one packet, with an immediate.
    WriteOnlyImm(Reth, u32),
}

/// A packet that the responder of a reliable connection sends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Response {
    /// The first packet of a READ's data.
    ReadFirst(Aeth),
    /// A packet in the middle of a READ's data.
    ReadMiddle,
    /// The last packet of a READ's data.
    ReadLast(Aeth),
    /// A READ's data in one packet.
    ReadOnly(Aeth),
    /// An acknowledgement, positive or negative.
    Acknowledge(Aeth),
    /// The old value of an atomic.
    Atomic(Aeth, u64),
}

/// The operation, with its extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Headers {
    /// A SEND or WRITE on a reliable connection.
    Rc(Message),
    /// A SEND or WRITE on an unreliable connection.
    Uc(Message),
    /// The last packet of a SEND that invalidates a key.
    SendLastInvalidate(u32),
    /// A SEND in one packet that invalidates a key.
    SendOnlyInvalidate(u32),
    /// A READ request.
    ReadRequest(Reth),
    /// Compare-and-swap.
    CompareSwap(AtomicEth),
    /// Fetch-and-add.
    FetchAdd(AtomicEth),
    /// A response of a reliable connection.
    Response(Response),
    /// A datagram, optionally with an immediate.
    Datagram(Deth, Option<u32>),
    /// Congestion notification.
    Cnp,
}

impl Message {
    const fn opcode(self) -> Opcode {
        match self {
            Message::SendFirst => Opcode::RcSendFirst,
            Message::SendMiddle => Opcode::RcSendMiddle,
            Message::SendLast => Opcode::RcSendLast,
            Message::SendLastImm(_) => Opcode::RcSendLastImm,
            Message::SendOnly => Opcode::RcSendOnly,
            Message::SendOnlyImm(_) => Opcode::RcSendOnlyImm,
            Message::WriteFirst(_) => Opcode::RcWriteFirst,
            Message::WriteMiddle => Opcode::RcWriteMiddle,
            Message::WriteLast => Opcode::RcWriteLast,
            Message::WriteLastImm(_) => Opcode::RcWriteLastImm,
            Message::WriteOnly(_) => Opcode::RcWriteOnly,
            Message::WriteOnlyImm(..) => Opcode::RcWriteOnlyImm,
        }
    }

    /// Returns the opcode for an unreliable connection. RC and UC use the same low five bits for the same operation.
    #[inline]
    const fn unreliable_opcode(self) -> Opcode {
        match Opcode::from_byte(self.opcode().to_byte() | Opcode::UcSendFirst.to_byte()) {
            Ok(opcode) => opcode,
            Err(_) => Opcode::UcSendOnly,
        }
    }
}

impl Response {
    const fn opcode(self) -> Opcode {
        match self {
            Response::ReadFirst(_) => Opcode::RcReadResponseFirst,
            Response::ReadMiddle => Opcode::RcReadResponseMiddle,
            Response::ReadLast(_) => Opcode::RcReadResponseLast,
            Response::ReadOnly(_) => Opcode::RcReadResponseOnly,
            Response::Acknowledge(_) => Opcode::RcAcknowledge,
            Response::Atomic(..) => Opcode::RcAtomicAcknowledge,
        }
    }
}

impl Headers {
    /// Returns the opcode.
    #[inline]
    #[must_use]
    pub const fn opcode(self) -> Opcode {
        match self {
            Headers::Rc(message) => message.opcode(),
            Headers::Uc(message) => message.unreliable_opcode(),
            Headers::SendLastInvalidate(_) => Opcode::RcSendLastInvalidate,
            Headers::SendOnlyInvalidate(_) => Opcode::RcSendOnlyInvalidate,
            Headers::ReadRequest(_) => Opcode::RcReadRequest,
            Headers::CompareSwap(_) => Opcode::RcCompareSwap,
            Headers::FetchAdd(_) => Opcode::RcFetchAdd,
            Headers::Response(response) => response.opcode(),
            Headers::Datagram(_, None) => Opcode::UdSendOnly,
            Headers::Datagram(_, Some(_)) => Opcode::UdSendOnlyImm,
            Headers::Cnp => Opcode::Cnp,
        }
    }

    /// Writes the extension headers to a slice of exactly their length.
    #[inline]
    fn emit(self, to: &mut [u8]) {
        // Every write fits, because `to` has the length of the opcode's shape.
        match self {
            Headers::Rc(message) | Headers::Uc(message) => match message {
                Message::WriteFirst(reth) | Message::WriteOnly(reth) => put(to, &RawReth::from(reth)),
                Message::WriteOnlyImm(reth, imm) => {
                    put(to, &RawReth::from(reth));
                    put(&mut to[16..], &U32::new(imm));
                }
                Message::SendLastImm(imm) | Message::SendOnlyImm(imm) | Message::WriteLastImm(imm) => {
                    put(to, &U32::new(imm));
                }
                _ => {}
            },
            Headers::SendLastInvalidate(key) | Headers::SendOnlyInvalidate(key) => put(to, &U32::new(key)),
            Headers::ReadRequest(reth) => put(to, &RawReth::from(reth)),
            Headers::CompareSwap(atomic) | Headers::FetchAdd(atomic) => put(to, &RawAtomicEth::from(atomic)),
            Headers::Response(response) => match response {
                Response::ReadFirst(aeth)
                | Response::ReadLast(aeth)
                | Response::ReadOnly(aeth)
                | Response::Acknowledge(aeth) => put(to, &RawAeth::from(aeth)),
                Response::Atomic(aeth, value) => {
                    put(to, &RawAeth::from(aeth));
                    put(&mut to[4..], &U64::new(value));
                }
                Response::ReadMiddle => {}
            },
            Headers::Datagram(deth, imm) => {
                put(to, &RawDeth::from(deth));
                if let Some(imm) = imm {
                    put(&mut to[8..], &U32::new(imm));
                }
            }
            Headers::Cnp => to.fill(0),
        }
    }
}

#[inline]
fn put<H: IntoBytes + zerocopy::Immutable>(to: &mut [u8], header: &H) {
    let fits = header.write_to_prefix(to);
    debug_assert!(fits.is_ok());
}

/// The headers of a packet, and the length of its payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Repr {
    /// The base transport header.
    pub bth: Bth,
    /// The operation.
    pub headers: Headers,
    /// Length of the payload without the pad, in bytes.
    pub payload_bytes: usize,
}

impl Repr {
    /// Parses the headers of a packet. Payload and ICRC are read from the view.
    ///
    /// # Errors
    /// Returns [`Error::Truncated`] if the length of the view's buffer has changed since the packet was checked.
    #[inline]
    pub fn parse<T: AsRef<[u8]>>(packet: &Packet<T>) -> Result<Repr, Error> {
        let headers = headers(packet)
            .ok_or(Error::Truncated { have: packet.as_bytes().len(), need: packet.header_bytes() + ICRC_BYTES })?;
        Ok(Repr { bth: packet.bth(), headers, payload_bytes: packet.payload().len() })
    }

    /// Returns the length of the headers, in bytes.
    #[inline]
    #[must_use]
    pub const fn header_bytes(&self) -> usize {
        BTH_BYTES + self.headers.opcode().shape().bytes()
    }

    /// Returns the number of bytes that pad the payload to a multiple of 4.
    #[inline]
    #[must_use]
    pub const fn pad(&self) -> usize {
        self.payload_bytes.wrapping_neg() & 3
    }

    /// Returns the length of the whole packet in bytes: headers, payload, pad, ICRC.
    #[inline]
    #[must_use]
    pub const fn packet_bytes(&self) -> usize {
        self.header_bytes() + self.payload_bytes + self.pad() + ICRC_BYTES
    }

    /// Writes the headers and the pad, and returns the slice for the payload. The caller fills the payload, then writes
    /// the ICRC with [`Envelope::seal`](crate::Envelope::seal). `to` must have at least
    /// [`packet_bytes`](Repr::packet_bytes).
    ///
    /// # Errors
    /// [`Error::NoRoom`] if `to` is too short.
    #[inline]
    pub fn emit<'a>(&self, to: &'a mut [u8]) -> Result<&'a mut [u8], Error> {
        let (have, need) = (to.len(), self.packet_bytes());
        let to = to.get_mut(..need).ok_or(Error::NoRoom { have, need })?;
        let (head, rest) = to.split_at_mut(self.header_bytes());
        let (base, extension) = head.split_at_mut(BTH_BYTES);
        let bth = &self.bth;
        let raw = RawBth {
            opcode: self.headers.opcode().to_byte(),
            flags: u8::from(bth.solicited) << 7 | u8::from(bth.migreq) << 6 | (self.pad() as u8) << 4,
            pkey: bth.pkey.into(),
            congestion: u8::from(bth.fecn) << 7 | u8::from(bth.becn) << 6,
            dest_qp: bytes24(bth.dest_qp),
            ack: u8::from(bth.ack_req) << 7,
            psn: bth.psn.to_bytes(),
        };
        put(base, &raw);
        self.headers.emit(extension);
        let (payload, tail) = rest.split_at_mut(self.payload_bytes);
        tail.fill(0);
        Ok(payload)
    }
}

#[inline]
fn headers<T: AsRef<[u8]>>(packet: &Packet<T>) -> Option<Headers> {
    let opcode = packet.opcode();
    Some(match opcode {
        Opcode::RcSendLastInvalidate => Headers::SendLastInvalidate(packet.invalidate()?),
        Opcode::RcSendOnlyInvalidate => Headers::SendOnlyInvalidate(packet.invalidate()?),
        Opcode::RcReadRequest => Headers::ReadRequest(packet.reth()?),
        Opcode::RcCompareSwap => Headers::CompareSwap(packet.atomic()?),
        Opcode::RcFetchAdd => Headers::FetchAdd(packet.atomic()?),
        Opcode::RcReadResponseFirst => Headers::Response(Response::ReadFirst(packet.aeth()?)),
        Opcode::RcReadResponseMiddle => Headers::Response(Response::ReadMiddle),
        Opcode::RcReadResponseLast => Headers::Response(Response::ReadLast(packet.aeth()?)),
        Opcode::RcReadResponseOnly => Headers::Response(Response::ReadOnly(packet.aeth()?)),
        Opcode::RcAcknowledge => Headers::Response(Response::Acknowledge(packet.aeth()?)),
        Opcode::RcAtomicAcknowledge => Headers::Response(Response::Atomic(packet.aeth()?, packet.atomic_ack()?)),
        Opcode::UdSendOnly | Opcode::UdSendOnlyImm => Headers::Datagram(packet.deth()?, packet.imm()),
        Opcode::Cnp => Headers::Cnp,
        _ if opcode.service() == Service::Rc => Headers::Rc(message(packet)?),
        _ => Headers::Uc(message(packet)?),
    })
}

/// Returns the SEND or WRITE of a packet. RC and UC use the same low five bits for the same operation.
#[inline]
fn message<T: AsRef<[u8]>>(packet: &Packet<T>) -> Option<Message> {
    Some(match packet.opcode().to_byte() & 0x1f {
        0x00 => Message::SendFirst,
        0x01 => Message::SendMiddle,
        0x02 => Message::SendLast,
        0x03 => Message::SendLastImm(packet.imm()?),
        0x04 => Message::SendOnly,
        0x05 => Message::SendOnlyImm(packet.imm()?),
        0x06 => Message::WriteFirst(packet.reth()?),
        0x07 => Message::WriteMiddle,
        0x08 => Message::WriteLast,
        0x09 => Message::WriteLastImm(packet.imm()?),
        0x0a => Message::WriteOnly(packet.reth()?),
        0x0b => Message::WriteOnlyImm(packet.reth()?, packet.imm()?),
        _ => return None,
    })
}
