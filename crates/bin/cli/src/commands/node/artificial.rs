//! A state of any size, which costs nothing to keep: for measurements of how states are transferred.

use stentor::runtime::{Frozen, RestoreError, StateReader};

/// Bytes that are compared at once.
const CHECKED: usize = 64 << 10;

/// A state of so many bytes after so many deliveries.
#[derive(Clone, Copy, Debug)]
pub(super) struct Artificial {
    pub(super) bytes: u64,
    /// Bytes that were read.
    read: u64,
}

impl Artificial {
    pub(super) fn new(bytes: u64) -> Self {
        Artificial { bytes, read: 0 }
    }

    /// The byte at a place.
    fn byte(at: u64) -> u8 {
        ((at / 8) ^ (at >> 17)) as u8
    }

    /// Reads a state to its end, and checks that it is one.
    pub(super) fn restore(self, state: &mut StateReader<'_>) -> Result<(), RestoreError> {
        let (mut part, mut at) = (vec![0; CHECKED], 0);
        while let filled @ 1.. = state.read(&mut part) {
            let wrong = (at..).zip(&part[..filled]).find(|(at, byte)| **byte != Artificial::byte(*at));
            if let Some((at, _)) = wrong {
                return Err(RestoreError(format!("byte {at} of the artificial state is wrong")));
            }
            at += filled as u64;
        }
        if at == self.bytes {
            return Ok(());
        }
        Err(RestoreError(format!("the artificial state has {at} bytes, this process keeps {}", self.bytes)))
    }
}

impl Frozen for Artificial {
    fn read(&mut self, out: &mut Vec<u8>, most: usize) {
        let end = self.bytes.min(self.read + most as u64);
        out.extend((self.read..end).map(Artificial::byte));
        self.read = end;
    }

    fn bytes_hint(&self) -> Option<u64> {
        Some(self.bytes)
    }
}
