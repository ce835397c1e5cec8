//! Page-aligned memory that devices and peers write to.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use stentor_fabric::memory::{WORD, Word};

/// Alignment of registered memory, in bytes: devices register memory in pages.
const PAGE: usize = 4096;

/// Zeroed, page-aligned memory that a device may register. Devices write to it, and so do peers that have a key, so it
/// is only accessed as atomic words.
pub struct PageMemory {
    words: NonNull<Word>,
    layout: Layout,
}

// SAFETY: the words are atomic, and the value owns its allocation, whichever thread holds it.
unsafe impl Send for PageMemory {}
// SAFETY: `&PageMemory` provides only atomic words and addresses.
unsafe impl Sync for PageMemory {}

impl fmt::Debug for PageMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageMemory").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl PageMemory {
    /// Allocates `bytes` (a non-zero multiple of 8). Returns `None` for another size, or if allocation fails.
    #[must_use]
    pub fn zeroed(bytes: usize) -> Option<Arc<PageMemory>> {
        if bytes == 0 || !bytes.is_multiple_of(WORD) {
            return None;
        }
        let layout = Layout::from_size_align(bytes, PAGE).ok()?;
        // SAFETY: the size is not zero.
        let memory = NonNull::new(unsafe { alloc_zeroed(layout) })?;
        Some(Arc::new(PageMemory { words: memory.cast(), layout }))
    }

    /// Returns the memory as atomic words.
    #[inline]
    #[must_use]
    pub fn words(&self) -> &[Word] {
        // SAFETY: the memory was allocated with this size and alignment and zeroed, and it is freed only when `self` is
        // dropped. Concurrent writers, including devices, also access it only as whole aligned words.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.layout.size() / WORD) }
    }

    /// Returns the size in bytes.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.layout.size() as u64
    }

    /// Returns a pointer to the byte at `offset`.
    ///
    /// # Panics
    /// Panics if `offset` is larger than the size.
    #[inline]
    #[must_use]
    pub fn at(&self, offset: u64) -> NonNull<u8> {
        assert!(offset <= self.bytes(), "offset {offset} is beyond the end of {} bytes", self.bytes());
        // SAFETY: the result is inside the allocation, or at its end.
        unsafe { self.words.cast::<u8>().add(offset as usize) }
    }

    /// Returns the address of the first byte, as devices use it in requests.
    #[inline]
    #[must_use]
    pub fn address(&self) -> u64 {
        self.words.addr().get() as u64
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        // SAFETY: the memory was allocated with this layout. No device accesses the memory any more: every registration
        // holds an `Arc` of it, and never drops that `Arc` if the device fails to release the registration.
        unsafe { dealloc(self.words.as_ptr().cast(), self.layout) };
    }
}
