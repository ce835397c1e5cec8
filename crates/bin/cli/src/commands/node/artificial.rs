//! A state of any size that needs no memory, for measurements of state transfers.

use std::io::{self, Read, Write};

use stentor::{Context, Frozen, Reply, StateMachine};

/// Number of bytes that are written or compared at a time.
const PART: usize = 64 << 10;
/// First byte of a state.
const BEGUN: u8 = 1;

/// A state of one byte and then `bytes` bytes. It is empty if `bytes` is 0. It is also empty before the first command,
/// so that the state with which a group begins takes no memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Artificial {
    bytes: u64,
    has_begun: bool,
}

impl Artificial {
    pub(super) fn new(bytes: u64) -> Self {
        Artificial { bytes, has_begun: false }
    }

    /// Returns the byte at an offset.
    fn byte(at: u64) -> u8 {
        ((at / 8) ^ (at >> 17)) as u8
    }
}

impl StateMachine for Artificial {
    type Frozen = Artificial;

    /// Returns no reply, because clients wait only for the delivery.
    fn apply(&mut self, _: &Context<'_>, _: &[u8], _: &mut Reply) {
        self.has_begun = self.bytes > 0;
    }

    fn freeze(&self) -> Artificial {
        *self
    }

    /// Reads a state to its end and checks its bytes.
    fn restore(&mut self, from: &mut dyn Read) -> io::Result<()> {
        let mut part = vec![0; PART];
        self.has_begun = from.read(&mut part[..1])? > 0;
        let expected = if self.has_begun { self.bytes } else { 0 };
        let mut at = 0;
        while let filled @ 1.. = from.read(&mut part)? {
            let wrong = (at..).zip(&part[..filled]).find(|(at, byte)| **byte != Artificial::byte(*at));
            if let Some((at, _)) = wrong {
                return Err(invalid(&format!("byte {at} of the artificial state is wrong")));
            }
            at += filled as u64;
        }
        if at == expected {
            return Ok(());
        }
        Err(invalid(&format!("the artificial state has {at} bytes, this process keeps {expected}")))
    }
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl Frozen for Artificial {
    fn write(self, out: &mut dyn Write) -> io::Result<()> {
        if !self.has_begun {
            return Ok(());
        }
        out.write_all(&[BEGUN])?;
        let (mut part, mut at) = (Vec::with_capacity(PART), 0);
        while at < self.bytes {
            let end = self.bytes.min(at + PART as u64);
            part.clear();
            part.extend((at..end).map(Artificial::byte));
            out.write_all(&part)?;
            at = end;
        }
        Ok(())
    }

    fn bytes_hint(&self) -> Option<u64> {
        Some(if self.has_begun { 1 + self.bytes } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes of a state of this size.
    fn written(bytes: u64) -> Vec<u8> {
        let state = Artificial { bytes, has_begun: true };
        let mut out = Vec::new();
        state.write(&mut out).expect("a Vec takes everything");
        assert_eq!(state.bytes_hint(), Some(out.len() as u64));
        out
    }

    fn restored(bytes: u64, state: &[u8]) -> io::Result<bool> {
        let mut machine = Artificial::new(bytes);
        machine.restore(&mut &*state).map(|()| machine.has_begun)
    }

    #[test]
    fn state_is_restored_exactly_and_a_wrong_or_missing_byte_is_found() {
        let bytes = 3 * PART as u64 + 5;
        let mut state = written(bytes);
        assert!(restored(bytes, &state).expect("the state is valid"));
        assert!(restored(bytes, &state[1..]).is_err() && restored(bytes, &state[..state.len() - 1]).is_err());
        let error = restored(bytes + 1, &state).expect_err("the state is too short").to_string();
        assert_eq!(error, "the artificial state has 196613 bytes, this process keeps 196614");
        *state.last_mut().expect("a byte") ^= 1;
        let error = restored(bytes, &state).expect_err("its last byte is wrong");
        assert!(error.to_string().contains(&format!("byte {}", bytes - 1)), "{error}");
    }

    #[test]
    fn a_group_begins_without_the_bytes() {
        let mut first = Vec::new();
        Artificial::new(1 << 40).write(&mut first).expect("a Vec takes everything");
        assert!(first.is_empty());
        assert!(!restored(1 << 40, &first).expect("a group may begin without the bytes"));
    }
}
