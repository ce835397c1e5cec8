//! Mapped memory. Only this file and `stentor_host::memfd` deal with the fact that it is not ordinary memory.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::os::fd::BorrowedFd;
use std::ptr::{self, NonNull};
use std::sync::atomic::AtomicU32;

use rustix::io;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use stentor_fabric::memory::{Ordering, WORD, Word};

/// Pages that are mapped shared. The memory that they map cannot shrink during their lifetime: it is anonymous, or a
/// memfd whose seals were checked.
#[derive(Debug)]
struct Pages {
    start: NonNull<Word>,
    words: usize,
}

// SAFETY: `Pages` owns its mapping, which belongs to the process and to no thread. References to it exist only through
// a borrow of the value.
unsafe impl Send for Pages {}
// SAFETY: through a shared borrow the memory is only accessed as atomics.
unsafe impl Sync for Pages {}

impl Pages {
    fn map(fd: Option<BorrowedFd<'_>>, words: usize, protection: ProtFlags, populate: bool) -> io::Result<Self> {
        let bytes = words.checked_mul(WORD).ok_or(io::Errno::NOMEM)?;
        let flags = if populate { MapFlags::SHARED | MapFlags::POPULATE } else { MapFlags::SHARED };
        // SAFETY: the kernel chooses an address range that nothing else uses.
        let start = unsafe {
            match fd {
                Some(fd) => mmap(ptr::null_mut(), bytes, protection, flags, fd, 0)?,
                None => mmap_anonymous(ptr::null_mut(), bytes, protection, flags)?,
            }
        };
        let pages = Pages { start: NonNull::new(start.cast::<Word>()).ok_or(io::Errno::NOMEM)?, words };
        // A core dump of this memory would delay the mark of the process's death. SAFETY: the range was mapped above,
        // and its contents do not change.
        let left_out = unsafe { madvise(start, bytes, Advice::LinuxDontDump) };
        debug_assert!(left_out.is_ok());
        Ok(pages)
    }

    #[inline]
    fn words(&self) -> &[Word] {
        // SAFETY: the range is mapped, page-aligned and `words` long until drop, and any bytes are a valid `Word`.
        // Other processes change it, which atomics permit.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }

    fn futex_at(&self, word: usize) -> &AtomicU32 {
        const { assert!(cfg!(target_endian = "little"), "a word's low half comes first") }
        let word = &raw const self.words()[word];
        // SAFETY: the pointer is valid and aligned while `self` is borrowed. Nothing in this program accesses the
        // memory through this reference; only the kernel compares it.
        unsafe { &*word.cast::<AtomicU32>() }
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: this is the range from `map`, and no borrow of it is left.
        let unmapped = unsafe { munmap(self.start.as_ptr().cast::<c_void>(), self.words * WORD) };
        debug_assert!(unmapped.is_ok());
    }
}

/// Memory that may be read and written.
#[derive(Debug)]
pub(crate) struct Mapping(Pages);

impl Mapping {
    /// Maps memory that no other process sees.
    pub(crate) fn private(words: usize, populate: bool) -> io::Result<Self> {
        Pages::map(None, words, ProtFlags::READ | ProtFlags::WRITE, populate).map(Mapping)
    }

    /// Maps the memory of a memfd that cannot shrink: see [`memfd`](stentor_host::memfd).
    pub(crate) fn shared(fd: BorrowedFd<'_>, words: usize, populate: bool) -> io::Result<Self> {
        Pages::map(Some(fd), words, ProtFlags::READ | ProtFlags::WRITE, populate).map(Mapping)
    }

    #[inline]
    pub(crate) fn words(&self) -> &[Word] {
        self.0.words()
    }

    /// Returns the low half of the first word, for the kernel's futex calls only.
    pub(crate) fn futex(&self) -> &AtomicU32 {
        self.futex_at(0)
    }

    /// Returns the low half of a word, for the kernel's futex calls only.
    pub(crate) fn futex_at(&self, word: usize) -> &AtomicU32 {
        self.0.futex_at(word)
    }
}

/// Memory that may only be read. A store would fault, so this type has no method that stores.
#[derive(Debug)]
pub(crate) struct ReadMapping(Pages);

impl ReadMapping {
    /// Maps the memory of a memfd that cannot shrink: see [`memfd`](stentor_host::memfd).
    pub(crate) fn shared(fd: BorrowedFd<'_>, words: usize) -> io::Result<Self> {
        Pages::map(Some(fd), words, ProtFlags::READ, false).map(ReadMapping)
    }

    #[inline]
    pub(crate) fn load(&self, word: usize, order: Ordering) -> u64 {
        self.0.words()[word].load(order)
    }

    pub(crate) fn words(&self) -> usize {
        self.0.words
    }

    /// Returns the low half of a word, for the kernel's futex calls only. The caller must not store to it.
    pub(crate) fn futex_at(&self, word: usize) -> &AtomicU32 {
        self.0.futex_at(word)
    }
}
