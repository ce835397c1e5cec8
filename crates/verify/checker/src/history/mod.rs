//! Histories as files: JSON Lines with one event per line, after a first line with the cluster. The schema is in
//! `docs/history.md`.

mod encoder;
mod error;
mod files;
mod line;
mod lives;
mod reader;
mod writer;

pub use encoder::Encoder;
pub use error::{Fault, HistoryError};
pub use files::{Told, check_files, check_inputs, check_inputs_told};
pub use reader::Reader;
pub use writer::{Author, HistoryWriter};

/// The version of the schema that this crate reads and writes.
pub const VERSION: u64 = 1;
/// Maximum length of a line, in bytes. Longer lines are errors.
pub const MAX_LINE_BYTES: u64 = 16 << 20;
/// The prefix of a clock's name that names a host.
const HOST_CLOCK: &str = "host:";
