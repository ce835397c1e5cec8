//! A peer's wait word and what rings when it sleeps.

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
    /// Tells the peer that something landed, in the word that is this process's there; after the stores.
    #[inline]
    pub(crate) fn announce(&self, me: ProcessId, announcement: u64) {
        if let Some(word) = self.word.words().get(1 + me.index()) {
            word.store(announcement, Ordering::Release);
        }
    }

    /// Wakes the peer if it sleeps; after a full fence.
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
            // Nobody waits there, or the page is gone: nothing to do about either.
            let _ = futex::wake(self.word.futex(), futex::Flags::empty(), 1);
        } else {
            socket::send_wake(&self.socket);
        }
    }
}
