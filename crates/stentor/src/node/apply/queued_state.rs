//! The frozen state of a machine on the apply thread, before and after that thread has frozen it.

use std::sync::mpsc::{Receiver, TryRecvError};

use stentor_multicast::{Frozen, Readiness};

use crate::node::state_writer::StateWriter;

/// A state that is pending until the apply thread has frozen it, and is a [`StateWriter`] afterwards.
pub(super) struct QueuedState {
    frozen: Receiver<StateWriter>,
    writer: Option<StateWriter>,
}

impl QueuedState {
    /// Creates a pending state, which arrives through `frozen`. If the sender is dropped first, the state fails.
    pub(super) fn new(frozen: Receiver<StateWriter>) -> Self {
        QueuedState { frozen, writer: None }
    }
}

impl Frozen for QueuedState {
    fn read(&mut self, out: &mut Vec<u8>, most: usize) {
        if let Some(writer) = &mut self.writer {
            writer.read(out, most);
        }
    }

    /// Returns `Pending` in the first call after the freeze, so that the size can be checked before the state is
    /// written.
    fn readiness(&mut self) -> Readiness {
        if let Some(writer) = &mut self.writer {
            return writer.readiness();
        }
        match self.frozen.try_recv() {
            Ok(writer) => self.writer = Some(writer),
            Err(TryRecvError::Empty) => {}
            Err(TryRecvError::Disconnected) => return Readiness::Failed,
        }
        Readiness::Pending
    }

    fn bytes_hint(&self) -> Option<u64> {
        self.writer.as_ref()?.bytes_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};
    use std::sync::mpsc::sync_channel;

    use super::*;
    use crate::node::journal::logged;

    struct Huge;

    impl crate::Frozen for Huge {
        fn write(self, _: &mut dyn Write) -> io::Result<()> {
            panic!("the state is refused before it is written")
        }

        fn bytes_hint(&self) -> Option<u64> {
            Some(u64::MAX)
        }
    }

    #[test]
    fn the_size_of_a_state_is_known_before_it_is_written() {
        let (freezes, frozen) = sync_channel(1);
        let mut state = QueuedState::new(frozen);
        assert_eq!((state.readiness(), state.bytes_hint()), (Readiness::Pending, None));
        assert!(freezes.send(StateWriter::begin(("a", &logged("a")), Huge)).is_ok());
        assert_eq!((state.readiness(), state.bytes_hint()), (Readiness::Pending, Some(u64::MAX)));
    }

    #[test]
    fn a_state_that_is_never_frozen_fails() {
        let (freezes, frozen) = sync_channel(1);
        drop(freezes);
        assert_eq!(QueuedState::new(frozen).readiness(), Readiness::Failed);
    }
}
