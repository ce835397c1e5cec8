//! Histories as files: JSON Lines, one event per line, the cluster first. The schema is in `docs/history.md`.

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
/// The longest line that is read, bytes.
pub const MAX_LINE_BYTES: u64 = 16 << 20;
/// What names a clock begins with when it is a host's.
const HOST_CLOCK: &str = "host:";
