//! The work items in the queue to the apply thread.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;

use super::batch::Batch;
use crate::node::state_writer::StateWriter;

/// A work item of the apply thread. Items are processed in order.
pub(super) enum Work {
    Commands(Batch),
    /// Freezes the value and sends it through this channel.
    Freeze(SyncSender<StateWriter>),
    /// Restores a state of `number` commands.
    Restore {
        number: u64,
        chunks: VecDeque<Vec<u8>>,
    },
    /// Wakes the thread, because a look is pending.
    Look,
    /// Ends the thread after all earlier items.
    Stop,
}
