//! Completion channels, which notify a process of a completion so that it need not poll.

use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr;
use std::sync::Arc;

use crate::context::{Context, Handle, non_blocking};
use crate::domain::MakeError;
use crate::{Errno, sys};

/// A channel on which completion queues report completions: one notification after each
/// [`request`](crate::CompletionQueue::request_notification).
pub struct CompletionChannel {
    context: Arc<Context>,
    raw: Handle<sys::ibv_comp_channel>,
}

impl fmt::Debug for CompletionChannel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionChannel").field("context", &self.context).finish_non_exhaustive()
    }
}

impl CompletionChannel {
    /// Creates a channel for completion queues of this device. Reading the channel never blocks.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn new(context: &Arc<Context>) -> Result<Arc<CompletionChannel>, MakeError> {
        let failed = |errno| MakeError::new(context, "a completion channel".into(), errno);
        // SAFETY: the context is open as long as the `Arc`, which the channel keeps.
        let raw = Handle::new(unsafe { context.symbols().ibv_create_comp_channel(context.raw()) }).map_err(failed)?;
        let channel = CompletionChannel { context: Arc::clone(context), raw };
        non_blocking(channel.as_fd()).map_err(failed)?;
        Ok(Arc::new(channel))
    }

    /// Reads and acknowledges all notifications. Returns their number.
    pub fn take(&self) -> u32 {
        let symbols = self.context.symbols();
        let mut taken = 0;
        loop {
            let (mut queue, mut own) = (ptr::null_mut(), ptr::null_mut());
            // SAFETY: the channel is live; the call writes both pointers if it returns 0.
            let returned = unsafe { symbols.ibv_get_cq_event(self.raw.raw(), &raw mut queue, &raw mut own) };
            if returned != 0 {
                return taken;
            }
            // SAFETY: `queue` is the queue that sent the notification. A queue is not destroyed before its
            // notifications are acknowledged.
            unsafe { symbols.ibv_ack_cq_events(queue, 1) };
            taken += 1;
        }
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn raw(&self) -> *mut sys::ibv_comp_channel {
        self.raw.raw()
    }
}

impl AsFd for CompletionChannel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the channel is live, and its descriptor is open as long as the channel.
        unsafe { BorrowedFd::borrow_raw((*self.raw.raw()).fd) }
    }
}

impl Drop for CompletionChannel {
    fn drop(&mut self) {
        // SAFETY: every queue holds an `Arc` of its channel, so no queue is left, and the channel is destroyed only
        // once.
        let returned = unsafe { self.context.symbols().ibv_destroy_comp_channel(self.raw.raw()) };
        debug_assert_eq!(Errno::check(returned), Ok(()));
    }
}
