//! The view of a packet.

use zerocopy::byteorder::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::headers::{BTH_BYTES, RawAeth, RawAtomicEth, RawBth, RawDeth, RawReth, bytes24, u24};
use crate::{Aeth, AtomicEth, Bth, Deth, Error, ICRC_BYTES, Opcode, Psn, Reth};

/// A view of the payload of a UDP datagram to port 4791: from the base transport header to the ICRC.
///
/// [`new_checked`](Packet::new_checked) checks every length that an accessor relies on, so no accessor panics. It does
/// not check the ICRC, which needs the IP header: see [`Envelope::icrc`](crate::Envelope::icrc).
#[derive(Clone, Copy, Debug)]
pub struct Packet<T> {
    buffer: T,
    opcode: Opcode,
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks that the opcode and the transport version are known, and that all headers, the pad and the ICRC are
    /// present.
    ///
    /// # Errors
    /// [`Error::Truncated`], [`Error::UnknownOpcode`], [`Error::TransportVersion`].
    #[inline]
    pub fn new_checked(buffer: T) -> Result<Packet<T>, Error> {
        let have = buffer.as_ref().len();
        let Ok((bth, _)) = RawBth::ref_from_prefix(buffer.as_ref()) else {
            return Err(Error::Truncated { have, need: BTH_BYTES + ICRC_BYTES });
        };
        let opcode = Opcode::from_byte(bth.opcode)?;
        if bth.flags & 0xf != 0 {
            return Err(Error::TransportVersion(bth.flags & 0xf));
        }
        let need = BTH_BYTES + opcode.shape().bytes() + usize::from(bth.flags >> 4 & 3) + ICRC_BYTES;
        if have < need {
            return Err(Error::Truncated { have, need });
        }
        Ok(Packet { buffer, opcode })
    }

    /// Returns all bytes of the packet.
    #[inline]
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.buffer.as_ref()
    }

    #[inline]
    fn read<H: FromBytes + KnownLayout + Immutable + Unaligned + Copy>(&self, at: usize) -> Option<H> {
        self.as_bytes().get(at..).and_then(|rest| H::ref_from_prefix(rest).ok()).map(|(header, _)| *header)
    }

    /// Returns the opcode.
    #[inline]
    #[must_use]
    pub fn opcode(&self) -> Opcode {
        self.opcode
    }

    /// Returns the fields of the base transport header.
    #[inline]
    #[must_use]
    pub fn bth(&self) -> Bth {
        let Some(raw) = self.read::<RawBth>(0) else { return Bth::new(0, Psn::new(0)) };
        Bth {
            solicited: raw.flags & 0x80 != 0,
            migreq: raw.flags & 0x40 != 0,
            pkey: raw.pkey.get(),
            fecn: raw.congestion & 0x80 != 0,
            becn: raw.congestion & 0x40 != 0,
            dest_qp: u24(raw.dest_qp),
            ack_req: raw.ack & 0x80 != 0,
            psn: Psn::from_bytes(raw.psn),
        }
    }

    /// Returns the number of bytes of padding after the payload, at most 3.
    #[inline]
    #[must_use]
    pub fn pad(&self) -> usize {
        self.read::<RawBth>(0).map_or(0, |raw| usize::from(raw.flags >> 4 & 3))
    }

    /// Returns the destination queue pair.
    #[inline]
    #[must_use]
    pub fn dest_qp(&self) -> u32 {
        self.read::<RawBth>(0).map_or(0, |raw| u24(raw.dest_qp))
    }

    /// Returns the packet sequence number.
    #[inline]
    #[must_use]
    pub fn psn(&self) -> Psn {
        self.read::<RawBth>(0).map_or(Psn::new(0), |raw| Psn::from_bytes(raw.psn))
    }

    /// Returns the length of the base transport header and all headers after it, in bytes.
    #[inline]
    #[must_use]
    pub fn header_bytes(&self) -> usize {
        BTH_BYTES + self.opcode.shape().bytes()
    }

    /// Returns the remote memory, if this opcode has a RETH.
    #[inline]
    #[must_use]
    pub fn reth(&self) -> Option<Reth> {
        let at = BTH_BYTES + if self.opcode.shape().deth { 8 } else { 0 };
        self.opcode.shape().reth.then(|| self.read::<RawReth>(at).map(Reth::from))?
    }

    /// Returns the acknowledgement, if this opcode carries one.
    #[inline]
    #[must_use]
    pub fn aeth(&self) -> Option<Aeth> {
        self.opcode.shape().aeth.then(|| self.read::<RawAeth>(BTH_BYTES).map(Aeth::from))?
    }

    /// Returns the operands, if this is an atomic.
    #[inline]
    #[must_use]
    pub fn atomic(&self) -> Option<AtomicEth> {
        self.opcode.shape().atomic.then(|| self.read::<RawAtomicEth>(BTH_BYTES).map(AtomicEth::from))?
    }

    /// Returns the old value, if this acknowledges an atomic.
    #[inline]
    #[must_use]
    pub fn atomic_ack(&self) -> Option<u64> {
        self.opcode.shape().atomic_ack.then(|| self.read::<U64>(BTH_BYTES + 4).map(|value| value.get()))?
    }

    /// Returns the datagram header, if this is a datagram.
    #[inline]
    #[must_use]
    pub fn deth(&self) -> Option<Deth> {
        self.opcode.shape().deth.then(|| self.read::<RawDeth>(BTH_BYTES).map(Deth::from))?
    }

    /// Returns the immediate, if this opcode carries one. It is the last header.
    #[inline]
    #[must_use]
    pub fn imm(&self) -> Option<u32> {
        self.opcode.shape().imm.then(|| self.read::<U32>(self.header_bytes() - 4).map(|value| value.get()))?
    }

    /// Returns the key to invalidate, if this opcode carries one. It is the last header.
    #[inline]
    #[must_use]
    pub fn invalidate(&self) -> Option<u32> {
        self.opcode.shape().ieth.then(|| self.read::<U32>(self.header_bytes() - 4).map(|value| value.get()))?
    }

    /// Returns the payload, without the pad.
    #[inline]
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        let end = self.as_bytes().len().saturating_sub(ICRC_BYTES + self.pad());
        self.as_bytes().get(self.header_bytes()..end).unwrap_or(&[])
    }

    /// Returns the invariant CRC that the packet carries.
    #[inline]
    #[must_use]
    pub fn icrc(&self) -> u32 {
        self.as_bytes().last_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
    }
}

/// Setters for the fields that a switch changes. They do not change lengths, and they do not update the ICRC: the
/// caller does that ([`icrc::changed`](crate::icrc::changed)).
impl<T: AsRef<[u8]> + AsMut<[u8]>> Packet<T> {
    #[inline]
    fn bth_mut(&mut self) -> Option<&mut RawBth> {
        RawBth::mut_from_prefix(self.buffer.as_mut()).ok().map(|(bth, _)| bth)
    }

    /// Sets the destination queue pair (24 bits).
    pub fn set_dest_qp(&mut self, qp: u32) {
        if let Some(bth) = self.bth_mut() {
            bth.dest_qp = bytes24(qp);
        }
    }

    /// Sets the packet sequence number.
    pub fn set_psn(&mut self, psn: Psn) {
        if let Some(bth) = self.bth_mut() {
            bth.psn = psn.to_bytes();
        }
    }

    /// Sets or clears the request for an acknowledgement.
    pub fn set_ack_req(&mut self, asked: bool) {
        if let Some(bth) = self.bth_mut() {
            bth.ack = bth.ack & 0x7f | u8::from(asked) << 7;
        }
    }

    /// Sets the remote memory. Does nothing if this opcode has no RETH.
    pub fn set_reth(&mut self, reth: Reth) {
        let at = BTH_BYTES + if self.opcode.shape().deth { 8 } else { 0 };
        if self.opcode.shape().reth
            && let Some(place) = self.buffer.as_mut().get_mut(at..)
        {
            // The length was checked, so the write fits.
            let _ = RawReth::from(reth).write_to_prefix(place);
        }
    }
}
