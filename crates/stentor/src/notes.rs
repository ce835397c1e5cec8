//! Notifications that a state machine sends while it is called.

use std::sync::{Mutex, PoisonError};

use crate::SessionId;

/// What one call of the machine has sent, in order. The buffer is used again.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Sent>);

#[derive(Debug, Default)]
struct Sent {
    to: Vec<(SessionId, usize)>,
    /// The bytes of all, one behind the other.
    bytes: Vec<u8>,
}

impl Notes {
    pub(crate) fn push(&self, to: SessionId, bytes: &[u8]) {
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sent.to.push((to, bytes.len()));
        sent.bytes.extend_from_slice(bytes);
    }

    /// Without the lock: nobody else has the context any more.
    #[inline]
    fn sent(&mut self) -> &mut Sent {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn is_empty(&mut self) -> bool {
        self.sent().to.is_empty()
    }

    /// Hands over all of them, and forgets them.
    pub(crate) fn take(&mut self, mut each: impl FnMut(SessionId, &[u8])) {
        let Sent { to, bytes } = self.sent();
        let mut rest = &bytes[..];
        for (session, length) in to.drain(..) {
            // The lengths are those of `push`.
            let (own, others) = rest.split_at(length);
            rest = others;
            each(session, own);
        }
        bytes.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_comes_out_once_and_in_order() {
        let session = |n| SessionId(stentor_session::SessionId(n));
        let mut notes = Notes::default();
        for _ in 0..2 {
            assert!(notes.is_empty());
            for (n, bytes) in [(1, &b"one"[..]), (2, b""), (1, b"three")] {
                notes.push(session(n), bytes);
            }
            assert!(!notes.is_empty());
            let mut taken = Vec::new();
            notes.take(|to, bytes| taken.push((to, bytes.to_vec())));
            assert_eq!(taken, [(session(1), b"one".to_vec()), (session(2), vec![]), (session(1), b"three".to_vec())]);
        }
    }
}
