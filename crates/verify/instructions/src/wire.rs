//! The paths of encoding and decoding a 64-byte WRITE, including the ICRC.

use std::hint::black_box;
use std::net::Ipv4Addr;

use stentor_wire::{Bth, Envelope, Headers, Message, Packet, Psn, Repr, Reth};

use crate::{WARM_UP, counted_if};

/// The operation whose instructions are counted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Encoding: headers, a copy of the payload, the ICRC.
    Encode,
    /// Decoding: headers and the ICRC.
    Decode,
}

const PAYLOAD: [u8; 64] = [0x5a; 64];

/// A buffer for one packet.
#[derive(Debug)]
pub struct Place {
    envelope: Envelope,
    repr: Repr,
    bytes: Vec<u8>,
}

impl Place {
    /// Allocates the buffer and runs the warm-up.
    ///
    /// # Panics
    /// Panics if a decoded packet differs from the encoded one.
    #[must_use]
    pub fn ready() -> Self {
        let (a, b) = (Ipv4Addr::new(10, 9, 0, 1), Ipv4Addr::new(10, 9, 0, 2));
        let reth = Reth { va: 0x1000, rkey: 7, bytes: PAYLOAD.len() as u32 };
        let repr = Repr {
            bth: Bth::new(17, Psn::new(1)),
            headers: Headers::Rc(Message::WriteOnly(reth)),
            payload_bytes: PAYLOAD.len(),
        };
        let envelope = Envelope::plain(a.into(), 0xc000, b.into()).expect("both addresses have one family");
        let mut place = Place { envelope, repr, bytes: vec![0; repr.packet_bytes()] };
        place.pass(None, WARM_UP);
        place
    }

    /// Encodes and decodes `messages`, and counts the instructions of `role`.
    ///
    /// # Panics
    /// Panics if a decoded packet differs from the encoded one.
    pub fn run(&mut self, role: Role, messages: u64) {
        self.pass(Some(role), messages);
    }

    fn pass(&mut self, role: Option<Role>, messages: u64) {
        let Place { envelope, repr, bytes } = self;
        for psn in 0..messages as u32 {
            counted_if(role == Some(Role::Encode), || {
                repr.bth.psn = Psn::new(psn);
                repr.emit(bytes).expect("the buffer has room").copy_from_slice(black_box(&PAYLOAD));
                envelope.seal(bytes);
            });
            let read = counted_if(role == Some(Role::Decode), || {
                let packet = Packet::new_checked(black_box(&bytes[..])).expect("a packet");
                assert_eq!(envelope.icrc(packet.as_bytes()), packet.icrc());
                Repr::parse(&packet).expect("a packet")
            });
            assert_eq!(read, *repr);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_packet_is_read_as_it_was_written() {
        let mut place = Place::ready();
        for role in [Role::Encode, Role::Decode] {
            place.run(role, 10);
        }
    }
}
