//! What a device really gives, tried out: it tells its limits, but not who may have what, nor how much inline data.

use std::sync::Arc;

use stentor_fabric::QpKind;

use crate::qp::{QueuePair, Size};
use crate::{CompletionQueue, Context, Domain, Limits, MakeError, Region};

/// Queues of the queue pairs that show what the device grants: as deep as common ones.
const DEPTH: u32 = 256;
/// Memory that is registered, bytes: as much as many systems let every user lock, 64 KiB, has to hold the queues, too.
const MEMORY_BYTES: usize = 16 << 10;

/// What a device grants to this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Granted {
    /// Bytes of inline data of every queue pair, at most as many as were asked for.
    pub inline_bytes: u32,
    /// Whether the bytes of what a peer writes land in rising order.
    pub ordered_bytes: bool,
    /// Whether there are unreliable connections.
    pub unreliable: bool,
}

impl Granted {
    /// Makes a queue pair of each kind and registers a little memory, to see. All of it is given back.
    ///
    /// # Errors
    /// What the device does not make, why, and what to do: see [`MakeError`].
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
