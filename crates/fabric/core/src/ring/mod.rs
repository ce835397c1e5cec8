//! A ring of sealed records with one writer (a peer) and one reader (the owner of the memory).
//!
//! Records occupy consecutive cells of 64 bytes. Both ends compute the same locations: a record starts at the cell
//! after the last record, or at cell 0 of a new lap if it would otherwise start at or beyond `cells`. A tail after the
//! last cell holds the rest of a record that starts in the last cells, so no record is ever split and no filler is ever
//! written.
//!
//! Positions count cells since the first record, `cells + tail` to a lap. The credit is the position up to which the
//! reader has freed the ring: cumulative, never a delta.

mod geometry;
mod reader;
mod writer;

pub use geometry::Geometry;
pub use reader::{Record, RingReader};
pub use writer::{Place, RingWriter};

#[cfg(all(test, not(loom)))]
mod tests;
