//! The wait page of a peer, and the means to wake the peer.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::fs::{FileType, OFlags, fcntl_getfl, fstat};
use rustix::io;
use rustix::thread::futex;
use stentor_fabric::ProcessId;
use stentor_fabric::memory::Ordering;

use crate::doorbell::{self, AWAKE, FUTEX};
use crate::mapping::Mapping;

/// The means to wake one peer.
#[derive(Debug)]
pub(crate) struct Bell {
    pub(crate) word: Mapping,
    /// The peer's eventfd.
    event: OwnedFd,
}

impl Bell {
    /// Takes the pages and the eventfd that a peer has sent.
    ///
    /// # Errors
    /// Returns what is wrong with the eventfd. A write to another kind of file could block this process.
    pub(crate) fn new(word: Mapping, event: OwnedFd) -> Result<Bell, String> {
        let of = |error: io::Errno| format!("cannot be examined: {error}");
        let kind = FileType::from_raw_mode(fstat(&event).map_err(of)?.st_mode);
        // The kernel gives an eventfd no file type. Memory, pipes and sockets have one.
        if kind != FileType::Unknown || !fcntl_getfl(&event).map_err(of)?.contains(OFlags::NONBLOCK) {
            return Err("is no eventfd that never blocks".to_owned());
        }
        Ok(Bell { word, event })
    }

    /// Announces a flush to the peer, in this process's word of the peer's wait page. The caller must have made its
    /// stores before.
    #[inline]
    pub(crate) fn announce(&self, me: ProcessId, announcement: u64) {
        if let Some(word) = self.word.words().get(1 + me.index()) {
            word.store(announcement, Ordering::Release);
        }
    }

    /// Wakes the peer if it sleeps. The caller must have executed a full fence since its stores.
    #[inline]
    pub(crate) fn ring(&self) {
        let how = doorbell::ring(&self.word.words()[0]);
        if how != AWAKE {
            self.wake(how);
        }
    }

    #[cold]
    fn wake(&self, how: u64) {
        if how == FUTEX {
            // If no process waits on the word, or the page is unmapped, nothing needs to be done.
            let _ = futex::wake(self.word.futex(), futex::Flags::empty(), 1);
        } else {
            ring_event(self.event.as_fd());
        }
    }
}

/// Makes an eventfd readable, which wakes a process that waits for it. A failure means that nobody has read the eventfd
/// for 2^64 - 2 rings, so it is readable already.
pub(crate) fn ring_event(event: BorrowedFd<'_>) {
    let _ = io::write(event, &1_u64.to_ne_bytes());
}
