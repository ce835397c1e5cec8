//! An application's state, frozen at one moment.

/// The availability of the next bytes of a frozen state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Readiness {
    /// The next bytes are available, or all have been read.
    Ready,
    /// The next bytes are not written yet.
    Pending,
    /// The state cannot be written. The receiver is notified.
    Failed,
}

/// An application's state as it was when it was frozen. Later deliveries do not change it.
pub trait Frozen: Send {
    /// Appends the next bytes, at most `most`. If it appends none, all bytes have been read. It is called only while
    /// the state is [ready](Readiness::Ready).
    fn read(&mut self, out: &mut Vec<u8>, most: usize);

    /// Returns whether the next bytes can be read without waiting. A state that another thread writes may be pending;
    /// the transfer is given up after 30 s without progress, or after 0.5 s if another member waits for a state (with
    /// ticks of 2 ms).
    fn readiness(&mut self) -> Readiness {
        Readiness::Ready
    }

    /// Returns the total number of bytes, if it is known before they are read. A state that is too large is then
    /// refused before its first byte is sent.
    fn bytes_hint(&self) -> Option<u64> {
        None
    }
}

/// A frozen state whose bytes are all available at once.
#[derive(Debug)]
pub(super) struct FrozenBytes {
    bytes: Vec<u8>,
    read: usize,
}

impl FrozenBytes {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        FrozenBytes { bytes, read: 0 }
    }
}

impl Frozen for FrozenBytes {
    fn read(&mut self, out: &mut Vec<u8>, most: usize) {
        let left = &self.bytes[self.read..];
        let part = &left[..left.len().min(most)];
        out.extend_from_slice(part);
        self.read += part.len();
    }

    fn bytes_hint(&self) -> Option<u64> {
        Some(self.bytes.len() as u64)
    }
}
