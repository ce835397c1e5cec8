//! Completion queues.
//!
//! A [`CompletionQueue`] wraps an `ibv_cq` and translates its entries into [`WorkCompletion`].

use std::fmt;
use std::ptr;
use std::sync::Arc;

use stentor_fabric::Opcode;

use crate::channel::CompletionChannel;
use crate::context::{Context, Handle};
use crate::domain::MakeError;
use crate::{Errno, sys};

/// Maximum number of completions read in one call.
const BATCH: usize = 16;

/// Result of an operation: an `ibv_wc_status`. Not all values have a counterpart in the fabric contract.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct WorkStatus(pub u32);

impl WorkStatus {
    /// The operation succeeded.
    pub const SUCCESS: WorkStatus = WorkStatus(sys::IBV_WC_SUCCESS);
    /// The queue pair entered the error state before the operation completed.
    pub const FLUSHED: WorkStatus = WorkStatus(sys::IBV_WC_WR_FLUSH_ERR);
    /// The message is longer than the receive.
    pub const LOCAL_LENGTH: WorkStatus = WorkStatus(sys::IBV_WC_LOC_LEN_ERR);
    /// The request is invalid.
    pub const LOCAL_OPERATION: WorkStatus = WorkStatus(sys::IBV_WC_LOC_QP_OP_ERR);
    /// Local memory is not registered, or not for this access.
    pub const LOCAL_PROTECTION: WorkStatus = WorkStatus(sys::IBV_WC_LOC_PROT_ERR);
    /// The responder refused the request as invalid.
    pub const REMOTE_INVALID: WorkStatus = WorkStatus(sys::IBV_WC_REM_INV_REQ_ERR);
    /// The responder could not execute the request.
    pub const REMOTE_OPERATION: WorkStatus = WorkStatus(sys::IBV_WC_REM_OP_ERR);
    /// No acknowledgement arrived, even after all retries.
    pub const RETRY_EXCEEDED: WorkStatus = WorkStatus(sys::IBV_WC_RETRY_EXC_ERR);
    /// The responder had no receive for the request, even after all retries.
    pub const RNR_RETRY_EXCEEDED: WorkStatus = WorkStatus(sys::IBV_WC_RNR_RETRY_EXC_ERR);
    /// The responder refused the access.
    pub const REMOTE_ACCESS: WorkStatus = WorkStatus(sys::IBV_WC_REM_ACCESS_ERR);
}

impl fmt::Display for WorkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            sys::IBV_WC_SUCCESS => "success",
            sys::IBV_WC_LOC_LEN_ERR => "local length error",
            sys::IBV_WC_LOC_QP_OP_ERR => "local queue pair operation error",
            sys::IBV_WC_LOC_PROT_ERR => "local protection error",
            sys::IBV_WC_WR_FLUSH_ERR => "flushed",
            sys::IBV_WC_LOC_ACCESS_ERR => "local access error",
            sys::IBV_WC_REM_INV_REQ_ERR => "remote invalid request",
            sys::IBV_WC_REM_ACCESS_ERR => "remote access error",
            sys::IBV_WC_REM_OP_ERR => "remote operation error",
            sys::IBV_WC_RETRY_EXC_ERR => "retries exceeded",
            sys::IBV_WC_RNR_RETRY_EXC_ERR => "receiver-not-ready retries exceeded",
            sys::IBV_WC_FATAL_ERR => "fatal error",
            other => return write!(f, "work completion status {other}"),
        })
    }
}

impl fmt::Debug for WorkStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WorkStatus({}: {self})", self.0)
    }
}

/// A completion as the device reports it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkCompletion {
    /// Id with which the request was posted.
    pub id: u64,
    /// Number of the queue pair.
    pub qp_number: u32,
    /// Result of the operation.
    pub status: WorkStatus,
    /// Vendor-specific error code of the NIC.
    pub vendor_error: u32,
    /// Kind of the operation; `None` if the operation failed, because the device then does not report its kind, or if
    /// this crate does not know the kind.
    pub opcode: Option<Opcode>,
    /// Number of bytes received.
    pub bytes: u32,
    /// Immediate value, if the completion is that of a receive and the message contained one.
    pub imm: Option<u32>,
}

impl WorkCompletion {
    /// Placeholder for a completion in an output buffer.
    pub const NONE: WorkCompletion = WorkCompletion {
        id: 0,
        qp_number: 0,
        status: WorkStatus::FLUSHED,
        vendor_error: 0,
        opcode: None,
        bytes: 0,
        imm: None,
    };

    fn from_raw(raw: &sys::ibv_wc) -> Self {
        let status = WorkStatus(raw.status);
        let opcode = match raw.opcode {
            _ if status != WorkStatus::SUCCESS => None,
            sys::IBV_WC_SEND => Some(Opcode::Send),
            sys::IBV_WC_RDMA_WRITE => Some(Opcode::Write),
            sys::IBV_WC_RDMA_READ => Some(Opcode::Read),
            sys::IBV_WC_COMP_SWAP | sys::IBV_WC_FETCH_ADD => Some(Opcode::Atomic),
            sys::IBV_WC_RECV => Some(Opcode::Recv),
            sys::IBV_WC_RECV_RDMA_WITH_IMM => Some(Opcode::RecvWriteImm),
            _ => None,
        };
        let received = matches!(opcode, Some(Opcode::Recv | Opcode::RecvWriteImm));
        let has_imm = received && raw.wc_flags & sys::IBV_WC_WITH_IMM != 0;
        // SAFETY: both fields of the union are 32-bit numbers. If the flag is set, the field holds the immediate.
        let imm = unsafe { raw.__bindgen_anon_1.imm_data };
        WorkCompletion {
            id: raw.wr_id,
            qp_number: raw.qp_num,
            status,
            vendor_error: raw.vendor_err,
            opcode,
            bytes: if received { raw.byte_len } else { 0 },
            imm: has_imm.then(|| u32::from_be(imm)),
        }
    }
}

/// A completion queue.
pub struct CompletionQueue {
    context: Arc<Context>,
    /// Channel of the queue, which must live as long as the queue.
    _channel: Option<Arc<CompletionChannel>>,
    raw: Handle<sys::ibv_cq>,
    poll: unsafe extern "C" fn(*mut sys::ibv_cq, i32, *mut sys::ibv_wc) -> i32,
    request: unsafe extern "C" fn(*mut sys::ibv_cq, i32) -> i32,
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("context", &self.context).finish_non_exhaustive()
    }
}

impl CompletionQueue {
    /// Creates a queue for at least `entries` completions. If more completions are pending, the queue overruns and
    /// breaks.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn new(context: &Arc<Context>, entries: u32) -> Result<Arc<CompletionQueue>, MakeError> {
        Self::make(context, entries, None)
    }

    /// Creates a queue that reports completions on `channel`.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn with_channel(channel: &Arc<CompletionChannel>, entries: u32) -> Result<Arc<CompletionQueue>, MakeError> {
        Self::make(channel.context(), entries, Some(Arc::clone(channel)))
    }

    fn make(
        context: &Arc<Context>,
        entries: u32,
        channel: Option<Arc<CompletionChannel>>,
    ) -> Result<Arc<CompletionQueue>, MakeError> {
        let failed = |errno| MakeError::new(context, format!("a completion queue of {entries} entries"), errno);
        let count = i32::try_from(entries).map_err(|_| failed(Errno::INVALID))?;
        // SAFETY: the context is open.
        let ops = unsafe { &(*context.raw()).ops };
        let (Some(poll), Some(request)) = (ops.poll_cq, ops.req_notify_cq) else {
            return Err(failed(Errno::NOT_SUPPORTED));
        };
        let raw_channel = channel.as_ref().map_or(ptr::null_mut(), |channel| channel.raw());
        // SAFETY: the queue keeps the context and the channel, if any, so both stay open. No user context is passed.
        let raw = unsafe { context.symbols().ibv_create_cq(context.raw(), count, ptr::null_mut(), raw_channel, 0) };
        let raw = Handle::new(raw).map_err(failed)?;
        Ok(Arc::new(CompletionQueue { context: Arc::clone(context), _channel: channel, raw, poll, request }))
    }

    /// Requests a notification of the next completion. The caller must poll once more afterwards, because earlier
    /// completions are not reported.
    ///
    /// # Errors
    /// Returns the provider's error.
    pub fn request_notification(&self) -> Result<(), Errno> {
        // SAFETY: the queue is live.
        Errno::check(unsafe { (self.request)(self.raw.raw(), 0) })
    }

    /// Polls completions into `out` and returns their number.
    ///
    /// # Errors
    /// Returns the provider's error if the queue is broken.
    pub fn poll(&self, out: &mut [WorkCompletion]) -> Result<usize, Errno> {
        let mut taken = 0;
        while taken < out.len() {
            let mut raw = [sys::ibv_wc::default(); BATCH];
            let room = BATCH.min(out.len() - taken);
            // SAFETY: the queue is live, and the buffer has room for `room` entries.
            let count = unsafe { (self.poll)(self.raw.raw(), room as i32, raw.as_mut_ptr()) };
            let count = usize::try_from(count).map_err(|_| Errno(count.abs()))?;
            for (to, from) in out[taken..].iter_mut().zip(&raw[..count]) {
                *to = WorkCompletion::from_raw(from);
            }
            taken += count;
            if count < room {
                break;
            }
        }
        Ok(taken)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_cq {
        self.raw.raw()
    }
}

impl Drop for CompletionQueue {
    fn drop(&mut self) {
        // SAFETY: every queue pair holds an `Arc` of its queues, so none is left, and the queue is destroyed only once.
        unsafe { self.context.symbols().ibv_destroy_cq(self.raw.raw()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw(opcode: sys::ibv_wc_opcode, status: sys::ibv_wc_status, flags: u32) -> WorkCompletion {
        let mut raw = sys::ibv_wc { opcode, status, wc_flags: flags, byte_len: 9, ..sys::ibv_wc::default() };
        raw.__bindgen_anon_1.imm_data = 7_u32.to_be();
        WorkCompletion::from_raw(&raw)
    }

    #[test]
    fn immediate_is_returned_only_if_the_device_flags_it() {
        assert_eq!(raw(sys::IBV_WC_RECV, 0, sys::IBV_WC_WITH_IMM).imm, Some(7));
        assert_eq!(raw(sys::IBV_WC_RECV, 0, 0).imm, None);
        assert_eq!(raw(sys::IBV_WC_RECV_RDMA_WITH_IMM, 0, sys::IBV_WC_WITH_IMM).bytes, 9);
        assert_eq!((raw(sys::IBV_WC_SEND, 0, 0).bytes, raw(sys::IBV_WC_SEND, 0, 0).opcode), (0, Some(Opcode::Send)));
    }

    #[test]
    fn only_id_and_status_are_valid_after_an_error() {
        let failed = raw(sys::IBV_WC_RECV, sys::IBV_WC_WR_FLUSH_ERR, sys::IBV_WC_WITH_IMM);
        assert_eq!((failed.opcode, failed.imm, failed.bytes), (None, None, 0));
        assert_eq!((failed.status, failed.status.to_string().as_str()), (WorkStatus::FLUSHED, "flushed"));
    }
}
