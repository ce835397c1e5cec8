//! Completion queues.
//!
//! A [`CompletionQueue`] returns successful operations in batches and failed ones singly. Reading it also drives
//! providers that make progress only when they are polled.

use std::ffi::{CStr, c_void};
use std::fmt;
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;

use crate::domain::{Domain, Fid, MakeError};
use crate::errno::Errno;
use crate::sys::{self, bit};

/// Maximum number of completions read in one call.
pub(crate) const BATCH: usize = 16;

/// A completion of an operation that succeeded.
#[derive(Clone, Copy, Debug)]
pub struct Success {
    /// Context with which the operation was posted; null for a peer's write with an immediate.
    pub context: *mut c_void,
    /// `true` for a receive of a plain or tagged message.
    pub received: bool,
    /// Number of bytes received.
    pub bytes: usize,
    /// Immediate value that arrived with a message or a write.
    pub immediate: Option<u64>,
    /// Tag of the received message.
    pub tag: u64,
}

/// A completion of an operation that failed.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Context with which the operation was posted; null if the provider does not report it.
    pub context: *mut c_void,
    /// Error code.
    pub errno: Errno,
    /// The provider's own error number, and its meaning.
    pub detail: (i32, String),
    /// Tag of the received message.
    pub tag: u64,
    /// Number of bytes that did not fit into the receive.
    pub excess: usize,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (provider: {}, {})", self.errno, self.detail.0, self.detail.1)
    }
}

/// Result of polling a completion queue.
#[derive(Debug)]
pub enum Polled {
    /// Number of operations that succeeded. Each was passed to the caller.
    Entries(usize),
    /// One operation failed.
    Failed(Failure),
    /// The queue is empty.
    Nothing,
}

/// Completions that one poll has read from a completion queue.
pub(crate) struct Batch {
    raw: [MaybeUninit<sys::fi_cq_tagged_entry>; BATCH],
    /// Number of valid entries.
    count: usize,
}

impl Batch {
    /// Creates an empty batch. The buffer stays uninitialized because most polls find nothing.
    #[inline]
    pub(crate) fn new() -> Batch {
        Batch { raw: [const { MaybeUninit::uninit() }; BATCH], count: 0 }
    }

    /// Returns the operations that succeeded.
    #[inline]
    pub(crate) fn entries(&self) -> impl Iterator<Item = Success> {
        // SAFETY: the provider has filled `count` entries.
        self.raw[..self.count].iter().map(|entry| Success::from_raw(unsafe { entry.assume_init_ref() }))
    }
}

/// A completion queue.
pub struct CompletionQueue {
    raw: Fid<sys::fid_cq>,
    domain: Arc<Domain>,
    read: unsafe extern "C" fn(*mut sys::fid_cq, *mut c_void, usize) -> isize,
    descriptor: Option<RawFd>,
}

impl fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionQueue").field("domain", &self.domain).finish_non_exhaustive()
    }
}

impl CompletionQueue {
    /// Creates a queue for at least `entries` completions. If `waits` is set and the provider supports it, the queue
    /// has a file descriptor to wait on. `shm` in Debian 12 does not support it.
    ///
    /// # Errors
    /// See [`MakeError`].
    pub fn new(domain: &Arc<Domain>, entries: usize, waits: bool) -> Result<CompletionQueue, MakeError> {
        if waits && let Ok(queue) = CompletionQueue::open(domain, entries, sys::FI_WAIT_FD) {
            return Ok(queue);
        }
        let what = || format!("a completion queue of {entries} entries");
        CompletionQueue::open(domain, entries, sys::FI_WAIT_NONE)
            .map_err(|errno| MakeError::new(domain.info(), what(), errno))
    }

    fn open(domain: &Arc<Domain>, entries: usize, wait: sys::fi_wait_obj) -> Result<CompletionQueue, Errno> {
        let mut attributes = sys::fi_cq_attr {
            size: entries,
            flags: 0,
            format: sys::FI_CQ_FORMAT_TAGGED,
            wait_obj: wait,
            signaling_vector: 0,
            wait_cond: sys::FI_CQ_COND_NONE,
            wait_set: ptr::null_mut(),
        };
        let mut raw = ptr::null_mut();
        // SAFETY: a live libfabric object has a valid function table.
        let open = unsafe { (*(*domain.raw()).ops).cq_open }.ok_or(Errno::NOT_SUPPORTED)?;
        // SAFETY: the domain lives as long as the `Arc`, which the queue keeps.
        let returned = unsafe { open(domain.raw(), &raw mut attributes, &raw mut raw, ptr::null_mut()) };
        // SAFETY: `fid_cq` begins with a `fid`, and the object was just created.
        let raw: Fid<sys::fid_cq> = unsafe { Fid::new(returned, raw) }?;
        // SAFETY: a live libfabric object has a valid function table.
        let read = unsafe { (*(*raw.raw()).ops).read }.ok_or(Errno::NOT_SUPPORTED)?;
        let mut descriptor = -1;
        if wait == sys::FI_WAIT_FD {
            // SAFETY: for a queue with `FI_WAIT_FD` this command writes one file descriptor.
            unsafe { raw.control(sys::FI_GETWAIT as i32, ptr::from_mut(&mut descriptor).cast()) }?;
        }
        Ok(CompletionQueue {
            raw,
            domain: Arc::clone(domain),
            read,
            descriptor: (descriptor >= 0).then_some(descriptor),
        })
    }

    pub(crate) fn fid(&self) -> &Fid<sys::fid_cq> {
        &self.raw
    }

    /// Returns the queue's domain.
    #[must_use]
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Returns the file descriptor that becomes readable when a completion arrives, if the queue has one. Before each
    /// wait, [`may_wait`](Self::may_wait) must have returned `true`.
    #[must_use]
    pub fn descriptor(&self) -> Option<RawFd> {
        self.descriptor
    }

    /// Returns whether the caller may wait on the descriptor. If not, there is no descriptor, or completions are
    /// already queued and must be read first (`fi_trywait`).
    #[must_use]
    pub fn may_wait(&self) -> bool {
        let fabric = self.domain.fabric();
        // SAFETY: a live libfabric object has a valid function table.
        let Some(try_wait) = (unsafe { (*(*fabric).ops).trywait }) else { return false };
        let mut fids = [self.raw.fid()];
        // SAFETY: fabric and queue are live.
        self.descriptor.is_some() && unsafe { try_wait(fabric, fids.as_mut_ptr(), 1) } == 0
    }

    /// Drives the provider and passes up to 16 completions to `each`.
    #[inline]
    pub fn poll(&self, each: impl FnMut(Success)) -> Polled {
        let mut batch = Batch::new();
        let polled = self.take(&mut batch);
        batch.entries().for_each(each);
        polled
    }

    /// Polls like [`poll`](Self::poll), but replaces the contents of `batch`.
    #[inline]
    pub(crate) fn take(&self, batch: &mut Batch) -> Polled {
        batch.count = 0;
        // SAFETY: the queue is live, and the buffer has room for `BATCH` entries of the queue's format.
        let count = unsafe { (self.read)(self.raw.raw(), batch.raw.as_mut_ptr().cast(), BATCH) };
        if count > 0 {
            batch.count = (count as usize).min(BATCH);
            return Polled::Entries(batch.count);
        }
        match Errno::posted(count) {
            Ok(()) | Err(Errno::AGAIN) => Polled::Nothing,
            Err(Errno::AVAILABLE) => self.failure().map_or(Polled::Nothing, Polled::Failed),
            Err(errno) => Polled::Failed(Failure::of_queue(errno)),
        }
    }

    #[cold]
    fn failure(&self) -> Option<Failure> {
        let mut raw = sys::fi_cq_err_entry::default();
        // SAFETY: a live libfabric object has a valid function table.
        let ops = unsafe { &*(*self.raw.raw()).ops };
        let read_error = ops.readerr?;
        // SAFETY: the queue is live. No buffer for error data is offered, so the provider lends its own until the next
        // read.
        let count = unsafe { read_error(self.raw.raw(), &raw mut raw, 0) };
        if count != 1 {
            return (Errno::posted(count) != Err(Errno::AGAIN) && count != 0)
                .then(|| Failure::of_queue(Errno(count.unsigned_abs() as i32)));
        }
        let meaning = ops.strerror.map(|describe| {
            let mut buffer = [0; 128];
            // SAFETY: the queue is live, the error data is the provider's and no read has replaced it, and the buffer
            // has this size.
            let text =
                unsafe { describe(self.raw.raw(), raw.prov_errno, raw.err_data, buffer.as_mut_ptr(), buffer.len()) };
            // SAFETY: the pointer is null or a string that is valid at least until the next call.
            (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned())
        });
        Some(Failure {
            context: raw.op_context,
            // `shm` in Debian 12 returns some error codes negated.
            errno: Errno(raw.err.saturating_abs()),
            detail: (raw.prov_errno, meaning.flatten().unwrap_or_default()),
            tag: raw.tag,
            excess: raw.olen,
        })
    }
}

impl Failure {
    fn of_queue(errno: Errno) -> Failure {
        Failure {
            context: ptr::null_mut(),
            errno,
            detail: (0, "the completion queue itself failed".into()),
            tag: 0,
            excess: 0,
        }
    }
}

impl Success {
    #[inline]
    fn from_raw(raw: &sys::fi_cq_tagged_entry) -> Success {
        Success {
            context: raw.op_context,
            received: raw.flags & bit::RECV != 0,
            bytes: raw.len,
            immediate: (raw.flags & bit::REMOTE_CQ_DATA != 0).then_some(raw.data),
            tag: raw.tag,
        }
    }
}
