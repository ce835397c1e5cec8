//! A packet that came in, taken apart.

use stentor_wire::{Opcode, Packet, Psn};

/// A packet, taken apart.
#[derive(Clone, Copy)]
pub(crate) struct Parsed<'a> {
    /// From the IP header on: headers of a pipeline are words.
    pub(crate) words: &'a [[u8; 4]],
    pub(crate) source: u32,
    pub(crate) port: u16,
    pub(crate) packet: Packet<&'a [u8]>,
    pub(crate) opcode: Opcode,
    pub(crate) gid: u16,
    /// The low byte of the queue pair: a rank, if it is below [`MOST`](crate::registers::MOST).
    pub(crate) rank: u8,
    pub(crate) psn: Psn,
    pub(crate) now: u32,
}
