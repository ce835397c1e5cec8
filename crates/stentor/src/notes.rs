//! Notifications that a state machine sends while it is called.

use std::sync::{Mutex, PoisonError};

use crate::SessionId;

/// The notifications that the machine has sent at one position, in order. The buffer is reused.
#[derive(Debug, Default)]
pub(crate) struct Notes(Mutex<Sent>);

#[derive(Debug, Default)]
struct Sent {
    to: Vec<(SessionId, usize)>,
    /// The bytes of all notifications, concatenated.
    bytes: Vec<u8>,
}

impl Notes {
    pub(crate) fn push(&self, to: SessionId, bytes: &[u8]) {
        let mut sent = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        sent.to.push((to, bytes.len()));
        sent.bytes.extend_from_slice(bytes);
    }

    /// Returns the notifications without locking: the exclusive reference shows that no context exists.
    #[inline]
    fn sent(&mut self) -> &mut Sent {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn is_empty(&mut self) -> bool {
        self.sent().to.is_empty()
    }

    /// Passes all notifications to `each`, and removes them.
    pub(crate) fn take(&mut self, mut each: impl FnMut(SessionId, &[u8])) {
        let Sent { to, bytes } = self.sent();
        let mut rest = &bytes[..];
        for (session, length) in to.drain(..) {
            // `push` recorded the lengths, so they add up to the bytes.
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
    fn notifications_are_taken_once_and_in_order() {
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
