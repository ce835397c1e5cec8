//! Queue pairs: their creation, state transitions and use.

mod attributes;
mod diagnose;
mod transition;
mod work;

use std::fmt;
use std::sync::Arc;

use stentor_fabric::QpKind;

pub use attributes::{Endpoint, Own, State, Tuning};
pub use transition::TransitionError;
pub use work::{Data, Local, Remote, Work, WorkError};

use crate::completions::CompletionQueue;
use crate::context::Handle;
use crate::domain::{Domain, MakeError};
use crate::{Errno, sys};

/// Requested properties of a queue pair.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Size {
    /// Kind of the connection: reliable or unreliable.
    pub kind: QpKind,
    /// Maximum number of outstanding work requests.
    pub send_depth: u32,
    /// Maximum number of posted receives.
    pub recv_depth: u32,
    /// Desired length of inline data, in bytes. [`QueuePair::inline_bytes`] returns the granted length.
    pub inline_bytes: u32,
}

/// A queue pair.
pub struct QueuePair {
    domain: Arc<Domain>,
    /// Completion queues, which must live as long as the queue pair.
    _queues: [Arc<CompletionQueue>; 2],
    raw: Handle<sys::ibv_qp>,
    kind: QpKind,
    inline_bytes: u32,
    post_send: work::PostSend,
    post_recv: work::PostRecv,
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut it = f.debug_struct("QueuePair");
        it.field("number", &self.number()).field("kind", &self.kind).field("inline_bytes", &self.inline_bytes);
        it.finish_non_exhaustive()
    }
}

/// Returns the length of inline data to request after `inline_bytes` was refused: half of it, or `None` if 0 was
/// refused.
fn lower(inline_bytes: u32) -> Option<u32> {
    (inline_bytes > 0).then_some(inline_bytes / 2)
}

impl QueuePair {
    /// Creates a queue pair in the state RESET. No device reports the length of inline data that it supports, so the
    /// length is reduced until the creation succeeds.
    ///
    /// # Errors
    /// See [`MakeError`]. Completion queues that belong to another device are also an error.
    pub fn new(
        domain: &Arc<Domain>,
        send: &Arc<CompletionQueue>,
        recv: &Arc<CompletionQueue>,
        size: Size,
    ) -> Result<QueuePair, MakeError> {
        let context = domain.context();
        let Size { kind, send_depth, recv_depth, .. } = size;
        let failed = |errno| {
            let what = format!("a queue pair of {send_depth} requests and {recv_depth} receives");
            MakeError::new(context, what, errno)
        };
        if [send, recv].iter().any(|queue| !Arc::ptr_eq(queue.context(), context)) {
            return Err(failed(Errno::INVALID));
        }
        // SAFETY: the context is open.
        let ops = unsafe { &(*context.raw()).ops };
        let (Some(post_send), Some(post_recv)) = (ops.post_send, ops.post_recv) else {
            return Err(failed(Errno::NOT_SUPPORTED));
        };
        let mut inline_bytes = size.inline_bytes;
        loop {
            match make(domain, send, recv, Size { inline_bytes, ..size }) {
                Ok((raw, inline_bytes)) => {
                    let (domain, _queues) = (Arc::clone(domain), [Arc::clone(send), Arc::clone(recv)]);
                    return Ok(QueuePair { domain, _queues, raw, kind, inline_bytes, post_send, post_recv });
                }
                Err(errno) => inline_bytes = lower(inline_bytes).ok_or_else(|| failed(errno))?,
            }
        }
    }

    /// Returns the number by which the peer addresses the queue pair.
    #[must_use]
    pub fn number(&self) -> u32 {
        // SAFETY: the queue pair is live, and its number does not change.
        unsafe { (*self.raw.raw()).qp_num }
    }

    /// Returns whether the device guarantees that the bytes of a peer's write land in ascending order. Returns `false`
    /// if the library is too old to query this.
    #[must_use]
    pub fn is_data_in_order(&self) -> bool {
        let Some(query) = self.domain.context().data_in_order() else { return false };
        // SAFETY: the queue pair is live. Without flags, the result is 1 if the guarantee holds for the whole message,
        // and 0 if there is none.
        unsafe { query(self.raw.raw(), sys::IBV_WR_RDMA_WRITE, 0) == 1 }
    }

    /// Returns the granted length of inline data, in bytes.
    #[must_use]
    pub fn inline_bytes(&self) -> u32 {
        self.inline_bytes
    }
}

/// Creates a queue pair. Returns it with the granted length of inline data, in bytes.
fn make(
    domain: &Domain,
    send: &CompletionQueue,
    recv: &CompletionQueue,
    size: Size,
) -> Result<(Handle<sys::ibv_qp>, u32), Errno> {
    let qp_type = match size.kind {
        QpKind::Reliable => sys::IBV_QPT_RC,
        QpKind::Unreliable => sys::IBV_QPT_UC,
    };
    let mut init = sys::ibv_qp_init_attr { send_cq: send.raw(), recv_cq: recv.raw(), qp_type, ..Default::default() };
    init.cap = sys::ibv_qp_cap {
        max_send_wr: size.send_depth,
        max_recv_wr: size.recv_depth,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: size.inline_bytes,
    };
    // SAFETY: domain and completion queues are live, and the queue pair keeps them alive. They belong to one device,
    // which the caller has checked. The call writes the granted sizes to `init`.
    let raw = Handle::new(unsafe { domain.context().symbols().ibv_create_qp(domain.raw(), &raw mut init) })?;
    Ok((raw, init.cap.max_inline_data))
}

impl Drop for QueuePair {
    fn drop(&mut self) {
        // SAFETY: the queue pair is destroyed only once, and nothing posts to it any more. Its posted receives are
        // destroyed, too.
        unsafe { self.domain.context().symbols().ibv_destroy_qp(self.raw.raw()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_length_is_halved_down_to_zero() {
        let mut asked = vec![200];
        while let Some(less) = lower(asked[asked.len() - 1]) {
            asked.push(less);
        }
        assert_eq!(asked, [200, 100, 50, 25, 12, 6, 3, 1, 0]);
    }
}
