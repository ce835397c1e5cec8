//! Probe of a device's resources. The limits that a device reports show neither how much this process may use nor the
//! length of inline data.

use std::sync::Arc;

use stentor_fabric::QpKind;

use crate::qp::{QueuePair, Size};
use crate::{CompletionQueue, Context, Domain, Limits, MakeError, Region};

/// Depth of the queues of the probing queue pairs, which is a common depth.
const DEPTH: u32 = 256;
/// Length of the memory that is registered for the probe, in bytes. On many systems a user may lock only 64 KiB, which
/// must also suffice for the queues.
const MEMORY_BYTES: usize = 16 << 10;

/// Resources that a device grants to this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Granted {
    /// Length of inline data of every queue pair, in bytes; at most the requested length.
    pub inline_bytes: u32,
    /// `true` if the bytes of a peer's write land in ascending order.
    pub ordered_bytes: bool,
    /// `true` if unreliable connections are available.
    pub unreliable: bool,
}

impl Granted {
    /// Creates a queue pair of each kind, registers a little memory, and releases all of it again.
    ///
    /// # Errors
    /// See [`MakeError`], which names the object that the device did not create, the reason and a remedy.
    pub fn by(context: &Arc<Context>, limits: &Limits, inline_bytes: u32) -> Result<Granted, MakeError> {
        let depth = DEPTH.min(limits.queue_depth);
        let (domain, queue) = (Domain::new(context)?, CompletionQueue::new(context, 2 * depth)?);
        Region::register(&domain, MEMORY_BYTES, None)?;
        let size = |kind| Size { kind, send_depth: depth, recv_depth: depth, inline_bytes };
        let pair = QueuePair::new(&domain, &queue, &queue, size(QpKind::Reliable))?;
        let unreliable = QueuePair::new(&domain, &queue, &queue, size(QpKind::Unreliable));
        let least = unreliable.as_ref().map_or(u32::MAX, QueuePair::inline_bytes);
        Ok(Granted {
            inline_bytes: pair.inline_bytes().min(least).min(inline_bytes),
            ordered_bytes: pair.is_data_in_order(),
            unreliable: unreliable.is_ok(),
        })
    }
}
