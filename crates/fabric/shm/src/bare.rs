//! Plain shared words between processes, without the fabric. Benches measure the bare machine with them, as a baseline
//! for the fabric.

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

/// A fixed number of shared words.
///
/// A process can sleep on every word. [`arm`](BareMemory::arm), [`ring`](BareMemory::ring) and
/// [`doze`](BareMemory::doze) sleep and wake in the same way as the fabric.
#[derive(Debug)]
pub struct BareMemory {
    fd: OwnedFd,
    memory: Arc<Mapping>,
}

impl BareMemory {
    /// Allocates zeroed words.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn create(words: usize) -> io::Result<Self> {
        let fd = memfd::create("stentor-bare", (words * WORD) as u64)?;
        memfd::finish(&fd)?;
        let memory = Arc::new(Mapping::shared(fd.as_fd(), words, true)?);
        Ok(BareMemory { fd, memory })
    }

    /// Maps words that another process created and whose descriptor it passed on.
    ///
    /// # Errors
    /// Returns an error if the descriptor does not refer to `words` words of such memory, or the error of the system
    /// call.
    pub fn adopt(fd: OwnedFd, words: usize) -> io::Result<Self> {
        memfd::verify(fd.as_fd(), (words * WORD) as u64).map_err(io::Error::other)?;
        let memory = Arc::new(Mapping::shared(fd.as_fd(), words, true)?);
        Ok(BareMemory { fd, memory })
    }

    /// Returns a descriptor of the memory, which can be passed to another process.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.fd.try_clone()
    }

    /// Returns the words.
    #[inline]
    #[must_use]
    pub fn words(&self) -> &[Word] {
        self.memory.words()
    }

    /// Stores whole words, the first of them at index `first`, as the fabric stores a WRITE. The second word is stored
    /// last, with release order. Bytes after the last whole word are ignored.
    ///
    /// # Panics
    /// Panics if the words do not exist.
    #[inline]
    pub fn store(&self, first: usize, bytes: &[u8]) {
        store_bytes(bytes, &self.words()[first..first + bytes.len() / WORD]);
    }

    /// Makes the kernel mark the last word when the calling thread ends, and wake a process that sleeps on it. This
    /// call also changes the word. The list that it registers with the kernel is never freed. A thread may call this
    /// once, and must not use robust mutexes, because the kernel keeps one list for each thread.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn hold_last(&self) -> io::Result<()> {
        Ok(RobustList::new(Arc::clone(&self.memory), 1).hold_for_good()?)
    }

    /// Sleeps while the low half of a word equals `seen`, until [`wake`](BareMemory::wake) is called, but at most for
    /// `longest`.
    ///
    /// # Errors
    /// Returns the error of the system call.
    ///
    /// # Panics
    /// Panics if the word does not exist, as do [`wake`](BareMemory::wake), [`arm`](BareMemory::arm) and
    /// [`doze`](BareMemory::doze).
    pub fn sleep(&self, word: usize, seen: u32, longest: Duration) -> io::Result<()> {
        let longest = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: longest.subsec_nanos().into() };
        match futex::wait(self.memory.futex_at(word), futex::Flags::empty(), seen, Some(&longest)) {
            Ok(()) | Err(Errno::AGAIN | Errno::INTR | Errno::TIMEDOUT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Wakes all processes that sleep on a word.
    pub fn wake(&self, word: usize) {
        // If no process waits on the word, nothing needs to be done.
        let _ = futex::wake(self.memory.futex_at(word), futex::Flags::empty(), i32::MAX as u32);
    }

    /// Announces in a word of this process that the process is about to sleep. After this call, the caller must check
    /// for work once more before it sleeps.
    pub fn arm(&self, word: usize) {
        doorbell::arm(&self.words()[word], FUTEX);
    }

    /// Sleeps on an armed word until it is rung, or for at most `longest`, then disarms it.
    ///
    /// # Errors
    /// Returns the error of the system call.
    pub fn doze(&self, word: usize, longest: Duration) -> io::Result<()> {
        let slept = if self.words()[word].load(Ordering::Acquire) == FUTEX {
            self.sleep(word, FUTEX as u32, longest)
        } else {
            Ok(())
        };
        doorbell::disarm(&self.words()[word]);
        slept
    }

    /// Wakes the process that owns the word, if it sleeps. The caller must have executed a full fence since its stores.
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
    fn stores_to_one_mapping_are_seen_in_the_other() {
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
    fn ring_wakes_an_armed_sleeper_or_prevents_its_sleep() {
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
