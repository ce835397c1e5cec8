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

#[cfg(test)]
mod tests {
    use super::*;

    /// As a donor reads it, in pieces of an odd size.
    fn read(bytes: u64) -> Vec<u8> {
        let (mut state, mut all) = (Artificial::new(bytes), Vec::new());
        while (all.len() as u64) < bytes {
            let before = all.len();
            state.read(&mut all, 1001);
            assert!((1..=1001).contains(&(all.len() - before)));
        }
        all
    }

    fn restore(bytes: u64, state: &[u8]) -> Result<(), RestoreError> {
        Artificial::new(bytes).restore(&mut StateReader::new(&mut [state.to_vec()].into()))
    }

    #[test]
    fn a_state_is_taken_as_it_was_given_and_a_wrong_or_missing_byte_is_found() {
        let bytes = 3 * CHECKED as u64 + 5;
        let mut state = read(bytes);
        assert!(restore(bytes, &state).is_ok());
        assert!(restore(bytes, &state[1..]).is_err() && restore(bytes, &state[..state.len() - 1]).is_err());
        *state.last_mut().expect("a byte") ^= 1;
        let error = restore(bytes, &state).expect_err("its last byte is wrong");
        assert!(error.to_string().contains(&format!("byte {}", bytes - 1)), "{error}");
    }
}
