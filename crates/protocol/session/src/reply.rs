//! The buffer into which a state machine writes its reply.

use std::fmt;

/// A bounded reply. Writing beyond the limit makes the whole reply an overflow, which every member detects at the same
/// byte. The command stays applied, and the caller gets [`Outcome::Overflow`](crate::Outcome::Overflow) without bytes.
#[derive(Debug)]
pub struct Reply<'a> {
    bytes: &'a mut Vec<u8>,
    limit: usize,
    overflows: bool,
}

impl<'a> Reply<'a> {
    /// Returns an empty reply of at most `limit` bytes, which overwrites `bytes`.
    #[must_use]
    pub fn new(bytes: &'a mut Vec<u8>, limit: usize) -> Self {
        bytes.clear();
        Reply { bytes, limit, overflows: false }
    }

    /// Appends all of the bytes or none. Beyond the limit the reply becomes an overflow.
    pub fn extend(&mut self, bytes: &[u8]) {
        if self.overflows || bytes.len() > self.room() {
            self.overflows = true;
            self.bytes.clear();
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Returns the number of bytes that may still be written, or 0 after an overflow.
    #[must_use]
    pub fn room(&self) -> usize {
        if self.overflows { 0 } else { self.limit - self.bytes.len() }
    }

    /// Makes the reply an overflow, as if it had become too long.
    pub fn overflow(&mut self) {
        self.overflows = true;
        self.bytes.clear();
    }

    /// Returns whether the reply is an overflow.
    #[must_use]
    pub fn overflows(&self) -> bool {
        self.overflows
    }
}

/// Text is appended with [`Reply::extend`]. On overflow, an error is returned.
impl fmt::Write for Reply<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.extend(text.as_bytes());
        if self.overflows { Err(fmt::Error) } else { Ok(()) }
    }
}
