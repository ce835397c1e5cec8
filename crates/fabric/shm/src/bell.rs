//! The wait page of a peer, and the means to wake the peer.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::thread::futex;
use stentor_fabric::ProcessId;
use stentor_fabric::memory::Ordering;

use crate::doorbell::{self, AWAKE, FUTEX};
use crate::mapping::Mapping;
use crate::socket;

/// The means to wake one peer.
#[derive(Debug)]
pub(crate) struct Bell {
    pub(crate) word: Mapping,
    pub(crate) socket: Arc<OwnedFd>,
}

impl Bell {
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
            socket::send_wake(&self.socket);
        }
    }
}
