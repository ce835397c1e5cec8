//! Plain shared words between processes, without the fabric: what benches measure the machine itself with, so that the
//! fabric has something to stand against.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::Timespec;
use rustix::io::Errno;
use rustix::thread::futex;
use stentor_fabric::memory::{Ordering, WORD, Word};

use crate::copy::store_bytes;
use crate::doorbell::{self, AWAKE, FUTEX};
use crate::life::RobustList;
use crate::mapping::Mapping;
use stentor_host::memfd;

/// Shared words of a fixed number.
///
/// Every word can also be slept on. [`arm`](BareMemory::arm), [`ring`](BareMemory::ring) and
/// [`doze`](BareMemory::doze) are the fabric's own way to sleep and wake.
#[derive(Debug)]
pub struct BareMemory {
    fd: OwnedFd,
    memory: Arc<Mapping>,
}

impl BareMemory {
    /// Zeroed words.
    ///
    /// # Errors
    /// What the system says.
    pub fn create(words: usize) -> io::Result<Self> {
        let fd = memfd::create("stentor-bare", (words * WORD) as u64)?;
        memfd::finish(&fd)?;
        let memory = Arc::new(Mapping::shared(fd.as_fd(), words, true)?);
        Ok(BareMemory { fd, memory })
    }

    /// The words that another process created and passed on.
    ///
    /// # Errors
    /// If the descriptor is not that memory, or what the system says.
    pub fn adopt(fd: OwnedFd, words: usize) -> io::Result<Self> {
        memfd::verify(fd.as_fd(), (words * WORD) as u64).map_err(io::Error::other)?;
        let memory = Arc::new(Mapping::shared(fd.as_fd(), words, true)?);
        Ok(BareMemory { fd, memory })
    }

    /// A descriptor to pass on.
    ///
    /// # Errors
    /// What the system says.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// The words.
    #[inline]
    #[must_use]
    pub fn words(&self) -> &[Word] {
        self.memory.words()
    }

    /// Stores whole words from `first` on, as the fabric stores a WRITE: word 1 of them last, with release.
    ///
    /// # Panics
    /// If they are not there, or `bytes` are not whole words.
    #[inline]
    pub fn store(&self, first: usize, bytes: &[u8]) {
        store_bytes(bytes, &self.words()[first..first + bytes.len() / WORD]);
    }

    /// Has the kernel mark the last word when the calling thread ends, and wake who sleeps on it. The word changes now, too. For good: what
    /// this needs is never freed. A thread calls it once, and takes no robust mutexes: the kernel keeps one list of each thread.
    ///
    /// # Errors
    /// What the system says.
    pub fn hold_last(&self) -> io::Result<()> {
        Ok(RobustList::new(Arc::clone(&self.memory), 1).hold_for_good()?)
    }

    /// Sleeps while the low half of a word is `seen`, until [`wake`](BareMemory::wake), or for `longest`.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// If there is no such word; so do all the following.
    pub fn sleep(&self, word: usize, seen: u32, longest: Duration) -> io::Result<()> {
        let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
        match futex::wait(self.memory.futex_at(word), futex::Flags::empty(), seen, Some(&longest)) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Wakes everybody who sleeps on a word.
    pub fn wake(&self, word: usize) {
        // Nobody waits there: nothing to do.
        let _ = futex::wake(self.memory.futex_at(word), futex::Flags::empty(), i32::MAX as u32);
    }

    /// Says in a word of one's own that this process is about to sleep; look at everything once more after this.
    pub fn arm(&self, word: usize) {
        doorbell::arm(&self.words()[word], FUTEX);
    }

    /// Sleeps on an armed word until it is rung, or for `longest`; it is not armed any more then.
    ///
    /// # Errors
    /// What the system says.
    pub fn doze(&self, word: usize, longest: Duration) -> io::Result<()> {
        let slept = if self.words()[word].load(Ordering::Acquire) == FUTEX {
            self.sleep(word, FUTEX as u32, longest)
        } else {
            Ok(())
        };
        doorbell::disarm(&self.words()[word]);
        slept
    }

    /// Wakes the process whose word this is if it sleeps; after a full fence.
    #[inline]
    pub fn ring(&self, word: usize) {
        if doorbell::ring(&self.words()[word]) != AWAKE {
            self.wake(word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    #[test]
    fn what_one_mapping_stores_the_other_loads() {
        let mine = BareMemory::create(64).unwrap();
        let theirs = BareMemory::adopt(mine.descriptor().unwrap(), 64).unwrap();
        mine.words()[63].store(7, Ordering::Release);
        assert_eq!(theirs.words()[63].load(Ordering::Acquire), 7);
        mine.store(60, &[1; 4 * WORD]);
        let stored: Vec<_> = theirs.words()[59..].iter().map(|word| word.load(Ordering::Relaxed)).collect();
        assert_eq!(
            stored,
            [0, 0x0101_0101_0101_0101, 0x0101_0101_0101_0101, 0x0101_0101_0101_0101, 0x0101_0101_0101_0101]
        );
        assert!(BareMemory::adopt(mine.descriptor().unwrap(), 65).is_err(), "of another size");
    }

    #[test]
    fn an_armed_sleeper_is_woken_by_a_ring_and_one_that_was_rung_does_not_sleep() {
        let mine = BareMemory::create(64).unwrap();
        let theirs = BareMemory::adopt(mine.descriptor().unwrap(), 64).unwrap();
        let long = Duration::from_secs(60);
        let since = Instant::now();
        mine.arm(8);
        theirs.ring(8);
        mine.doze(8, long).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                mine.arm(16);
                mine.doze(16, long).unwrap();
                mine.words()[24].store(1, Ordering::Release);
            });
            while mine.words()[24].load(Ordering::Acquire) == 0 {
                theirs.ring(16);
                std::thread::yield_now();
            }
        });
        assert!(since.elapsed() < long);
    }
}
