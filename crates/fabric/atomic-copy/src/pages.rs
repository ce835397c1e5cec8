//! Memory that devices and peers write to.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use stentor_fabric::memory::{WORD, Word};

/// Devices register memory in pages.
const PAGE: usize = 4096;

/// Memory in pages of its own, zero at first, that a device may register. Devices and, with a key, peers write to it, so it is
/// only ever seen as atomic words.
pub struct PageMemory {
    words: NonNull<Word>,
    layout: Layout,
}

// SAFETY: the words are atomic, and the memory belongs to this value wherever it goes.
unsafe impl Send for PageMemory {}
// SAFETY: what `&PageMemory` gives are atomic words and addresses.
unsafe impl Sync for PageMemory {}

impl fmt::Debug for PageMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageMemory").field("bytes", &self.bytes()).finish_non_exhaustive()
    }
}

impl PageMemory {
    /// Allocates `bytes`. Returns `None` if that is no multiple of 8 above 0, or more than there is.
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

    /// Returns the memory.
    #[inline]
    #[must_use]
    pub fn words(&self) -> &[Word] {
        // SAFETY: allocated with this size, aligned, zeroed, and given back only when `self` is dropped; whoever writes to it
        // meanwhile, a device too, does so behind atomic words.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.layout.size() / WORD) }
    }

    /// Returns its size.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.layout.size() as u64
    }

    /// Returns where a place in it is.
    ///
    /// # Panics
    /// If the place is behind the end.
    #[inline]
    #[must_use]
    pub fn at(&self, offset: u64) -> NonNull<u8> {
        assert!(offset <= self.bytes(), "{offset} is behind {} bytes", self.bytes());
        // SAFETY: inside the allocation, or at its end.
        unsafe { self.words.cast::<u8>().add(offset as usize) }
    }

    /// Returns where it begins, as devices name it.
    #[inline]
    #[must_use]
    pub fn address(&self) -> u64 {
        self.words.addr().get() as u64
    }
}

impl Drop for PageMemory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout. Every registration holds an `Arc`, and keeps it for ever if the device does not
        // give it back, so no device knows this memory any more.
        unsafe { dealloc(self.words.as_ptr().cast(), self.layout) };
    }
}
