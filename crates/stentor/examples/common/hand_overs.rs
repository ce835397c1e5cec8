//! Measures the cost of passing a value to another thread.

use std::hint::spin_loop;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;

use stentor::WaitMode;

use super::nodes::Result;

/// Passes a value to another thread and back: two hand-overs, each through a queue whose reader waits in the same mode.
pub(crate) struct HandOvers {
    there: SyncSender<u64>,
    back: Receiver<u64>,
    wait: WaitMode,
}

impl HandOvers {
    pub(crate) fn start(wait: WaitMode) -> Self {
        let ((there, work), (done, back)) = (sync_channel(1), sync_channel(1));
        thread::spawn(move || while receive(&work, wait).is_some_and(|value| done.send(value).is_ok()) {});
        HandOvers { there, back, wait }
    }

    /// Passes a value to the thread, and receives it back.
    pub(crate) fn two(&mut self) -> Result<()> {
        self.there.send(1)?;
        receive(&self.back, self.wait).ok_or("the thread has ended")?;
        Ok(())
    }
}

fn receive(queue: &Receiver<u64>, wait: WaitMode) -> Option<u64> {
    for round in 0..wait.spins.saturating_add(wait.yields) {
        match queue.try_recv() {
            Ok(value) => return Some(value),
            Err(TryRecvError::Disconnected) => return None,
            Err(TryRecvError::Empty) if round < wait.spins => spin_loop(),
            Err(TryRecvError::Empty) => thread::yield_now(),
        }
    }
    queue.recv().ok()
}
