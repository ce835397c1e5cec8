//! Code that the commands of Stentor share: arguments, streams, signals, failures, output, histories and captures.
#![forbid(unsafe_code)]

pub mod args;
mod device;
mod failure;
mod janitor;
pub mod live;
mod output;
mod properties;
pub mod streams;
mod style;
pub mod unique;

pub use device::{rdma_address, rdma_choice};
pub use failure::{Failure, Verdict, remedy_of};
pub use janitor::{JANITOR, Janitor};
pub use output::{Digits, Human, Level, Output, hex, log_line, print, unprinted};
pub use properties::{Verdicts, in_order, title, verdict_lines, verdicts};
pub use style::{Style, bytes, columns, counted, table};

/// Largest piece of a channel message on fabrics with tags, in bytes.
///
/// `ofi_rxm` of libfabric copies messages shorter than 128 KiB in parts and sends a request for each part. With pieces
/// of 1 MiB, the two ends do not copy at the same time.
pub const TAGGED_PIECE_BYTES: u32 = 512 << 10;
