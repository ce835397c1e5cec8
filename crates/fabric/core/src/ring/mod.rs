//! A ring of sealed records with one writer (a peer) and one reader (the owner of the memory).
//!
//! Records follow each other in cells of 64 bytes. Both sides compute the same places: a record starts at the cell after
//! the last one; a record that would start at or beyond `cells` starts a new lap at cell 0 instead. A tail behind the
//! last cell holds what overhangs, so no record is ever split and no filler is ever written. Positions count cells since
//! the beginning of time, `cells + tail` to a lap; so does the credit, the position up to which the reader has freed the
//! ring: cumulative, never a delta.

mod geometry;
mod reader;
mod writer;

pub use geometry::Geometry;
pub use reader::{Record, RingReader};
pub use writer::{Place, RingWriter};

#[cfg(all(test, not(loom)))]
mod tests;
