//! What goes through the queue to the apply thread.

use std::collections::VecDeque;
use std::sync::mpsc::SyncSender;

use super::batch::Batch;
use crate::node::state_writer::StateWriter;

/// What the apply thread does, in this order.
pub(super) enum Work {
    Commands(Batch),
    /// Freezes the value, and sends it here.
    Freeze(SyncSender<StateWriter>),
    /// Takes over a state of so many commands.
    Restore {
        number: u64,
        chunks: VecDeque<Vec<u8>>,
    },
    /// Somebody asks something.
    Look,
    /// Ends, having done everything before.
    Stop,
}
