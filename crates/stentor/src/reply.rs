//! The reply of a state machine to a command.

use std::io::{self, Write};

/// The reply to one command, which [`StateMachine::apply`](crate::StateMachine::apply) writes. It has at most
/// `reply_bytes` of `[limits]`. The buffer is reused for the next command.
#[derive(Debug)]
pub struct Reply {
    bytes: Vec<u8>,
    most: usize,
    overflowed: bool,
}

impl Reply {
    /// Creates an empty reply of at most `most` bytes.
    pub(crate) fn new(most: usize) -> Self {
        Reply { bytes: Vec::new(), most, overflowed: false }
    }

    /// Appends bytes. If they do not all fit, none is appended, and the client's call ends with
    /// [`CallError::ReplyTooLong`](crate::CallError::ReplyTooLong).
    #[inline]
    pub fn extend(&mut self, bytes: &[u8]) {
        if bytes.len() > self.room() {
            self.overflowed = true;
        } else {
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Returns the number of bytes that still fit.
    #[inline]
    #[must_use]
    pub fn room(&self) -> usize {
        self.most - self.bytes.len()
    }

    /// Clears the reply for the next command.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.overflowed = false;
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn has_overflowed(&self) -> bool {
        self.overflowed
    }
}

impl Write for Reply {
    /// Appends as many of the bytes as fit.
    ///
    /// # Errors
    /// Returns [`io::ErrorKind::StorageFull`] if no byte fits.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let part = &bytes[..bytes.len().min(self.room())];
        if part.is_empty() && !bytes.is_empty() {
            self.overflowed = true;
            let most = self.most;
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                format!("a reply has at most {most} bytes: write a shorter reply, or raise `reply_bytes`"),
            ));
        }
        self.bytes.extend_from_slice(part);
        Ok(part.len())
    }

    /// Does nothing: written bytes need no flush.
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_bounded_and_reports_an_overflow() {
        let mut reply = Reply::new(4);
        assert!(reply.room() == 4);
        reply.extend(b"abc");
        assert!(!reply.has_overflowed() && reply.room() == 1);
        reply.extend(b"de");
        assert!(reply.has_overflowed() && reply.as_bytes() == b"abc");
        reply.clear();
        assert!(reply.as_bytes().is_empty() && !reply.has_overflowed());
        let error = write!(reply, "{}", 12_345).expect_err("the reply is too long");
        assert!(error.kind() == io::ErrorKind::StorageFull && error.to_string().contains("4 bytes"), "{error}");
        assert!(reply.has_overflowed() && reply.as_bytes() == b"1234");
        reply.clear();
        write!(reply, "1234").expect("the bytes fit into the reply");
        assert!(!reply.has_overflowed() && reply.room() == 0);
    }
}
