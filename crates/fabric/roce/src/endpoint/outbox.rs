//! Batches of outgoing packets.

use stentor_wire::{Envelope, MAX_TRANSPORT_BYTES, Repr};

/// Number of bytes in front of a packet.
const FRONT: usize = 36;

/// A buffer for a packet. After headers of 12 or 28 bytes, the payload begins at a multiple of 16. Some processors need
/// twice as long for long copies to other addresses.
#[derive(Debug)]
#[repr(C, align(64))]
struct Room {
    _front: [u8; FRONT],
    packet: [u8; MAX_TRANSPORT_BYTES],
}

#[derive(Debug)]
struct Slot {
    envelope: Envelope,
    bytes: Box<Room>,
    len: usize,
    again: bool,
}

/// A bounded batch of packets. It allocates memory only when it is created.
#[derive(Debug)]
pub struct Outbox {
    slots: Vec<Slot>,
    used: usize,
}

impl Outbox {
    /// Creates a batch with room for `packets` packets.
    #[must_use]
    pub fn new(packets: usize) -> Outbox {
        let nowhere = Envelope::plain([0; 4].into(), 0, [0; 4].into()).expect("both addresses have one family");
        let slot = || Slot {
            envelope: nowhere,
            bytes: Box::new(Room { _front: [0; FRONT], packet: [0; MAX_TRANSPORT_BYTES] }),
            len: 0,
            again: false,
        };
        Outbox { slots: (0..packets).map(|_| slot()).collect(), used: 0 }
    }

    /// Returns the number of packets that still fit.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.slots.len() - self.used
    }

    /// Returns whether the batch is empty.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Returns the packets, each from its base transport header to its ICRC, with the headers around it.
    pub fn packets(&self) -> impl ExactSizeIterator<Item = (&Envelope, &[u8])> + Clone {
        self.slots[..self.used].iter().map(|slot| (&slot.envelope, &slot.bytes.packet[..slot.len]))
    }

    /// Returns the packets, each with a flag that is `true` if the packet was sent before.
    pub(crate) fn told(&self) -> impl Iterator<Item = (&Envelope, &[u8], bool)> {
        self.slots[..self.used].iter().map(|slot| (&slot.envelope, &slot.bytes.packet[..slot.len], slot.again))
    }

    /// Marks the newest packet as sent before.
    #[inline]
    pub(crate) fn again(&mut self) {
        if let Some(slot) = self.used.checked_sub(1).and_then(|newest| self.slots.get_mut(newest)) {
            slot.again = true;
        }
    }

    /// Empties the batch.
    #[inline]
    pub fn clear(&mut self) {
        self.used = 0;
    }

    /// Adds a packet. `fill` writes its payload. The batch must have room.
    #[inline]
    pub(crate) fn push(&mut self, envelope: &Envelope, repr: &Repr, fill: impl FnOnce(&mut [u8])) {
        let slot = &mut self.slots[self.used];
        let len = repr.packet_bytes();
        fill(repr.emit(&mut slot.bytes.packet[..]).expect("a payload of at most 4096 bytes"));
        (slot.envelope, slot.len, slot.again) = (*envelope, len, false);
        envelope.seal(&mut slot.bytes.packet[..len]);
        self.used += 1;
    }
}
