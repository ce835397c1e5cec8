//! The parsed form of an arrived packet.

use stentor_wire::{Opcode, Packet, Psn};

/// An arrived packet and its parsed fields.
#[derive(Clone, Copy)]
pub(crate) struct Parsed<'a> {
    /// The packet, which begins with its IP header, as words: a pipeline handles headers as words.
    pub(crate) words: &'a [[u8; 4]],
    pub(crate) source: u32,
    pub(crate) port: u16,
    pub(crate) packet: Packet<&'a [u8]>,
    pub(crate) opcode: Opcode,
    pub(crate) gid: u16,
    /// Low byte of the destination queue pair: a rank, if it is below [`MOST`](crate::registers::MOST).
    pub(crate) rank: u8,
    pub(crate) psn: Psn,
    pub(crate) now: u32,
}
