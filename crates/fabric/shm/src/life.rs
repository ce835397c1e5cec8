//! Detection of deaths: the kernel reports the death of a process to its peers.
//!
//! A process has a *life word* for each peer, at the end of its control page, which peers can only read. One of its
//! threads, the *life thread*, holds all of them as robust futexes (`set_robust_list(2)`). When that thread ends, for
//! whatever reason, the kernel marks each word and wakes its waiters. It does so before it frees the memory of the
//! process. Sockets and pidfds report the end only after that, which takes 10 ms for a process that has 256 MiB mapped.
//! Only a core dump precedes the mark, so mappings are excluded from core dumps.
//!
//! The life thread also waits for the life words of the peers, and wakes its own process when one is marked. A process
//! that is awake does not depend on that thread: it checks the words itself.
//!
//! # States of a life word
//! - 0: no life thread holds the word, and it will never be marked.
//! - The id of the thread: the thread lives.
//! - Marked: the thread has ended.
//!
//! A word changes from the first state to the second before a peer can see it, and from the second to the third. Other
//! changes do not occur; a peer whose word changes in another way is no longer watched.
//!
//! # Limits of a mark
//! Other threads of the process may run for some more microseconds, and their stores may land. A mark therefore starts
//! an election, which is correct whether or not the leader lives, but breaks no queue pair: queue pairs break with the
//! sockets.
//!
//! Without `futex_waitv(2)`, which exists since Linux 5.16, no process is woken, and a process sees a mark at its next
//! check. The same applies to peers beyond [`MOST_WATCHED`]. Peers with the smallest ids are watched first; members
//! have these.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io;
use rustix::thread::futex::{self, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::thread::{ClockId, gettid};
use stentor_fabric::memory::fence;
use stentor_fabric::{ProcessId, Waker};

use crate::bell::ring_event;
use crate::doorbell::{self, AWAKE, FUTEX};
use crate::mapping::{Mapping, ReadMapping};

/// Maximum number of entries of a robust list that the kernel processes (`ROBUST_LIST_LIMIT`).
const LONGEST_LIST: usize = 2048;
/// Maximum number of peers' words that the thread waits for: one less than the kernel's limit (`FUTEX_WAITV_MAX`),
/// because one word is the process's own.
const MOST_WATCHED: usize = 127;

/// An entry of a robust list. All entries have the same distance from their futexes.
#[repr(C)]
#[derive(Debug)]
struct Node {
    /// Address of the next entry, or of the head.
    next: AtomicUsize,
}

/// The argument of `set_robust_list(2)`.
#[repr(C)]
#[derive(Debug)]
struct Head {
    list: Node,
    /// Distance from a node to its futex, in bytes.
    futex_offset: isize,
    /// Entry of an operation in progress: always none.
    pending: usize,
}

/// The words of a page that the kernel marks when the thread ends that registered this list.
#[derive(Debug)]
pub(crate) struct RobustList {
    head: Box<Head>,
    /// Nodes with the same distance from each other as the words.
    nodes: Box<[Node]>,
    page: Arc<Mapping>,
    first: usize,
}

impl RobustList {
    /// Creates a list of the last `count` words of a page, or of the first [`LONGEST_LIST`] of these.
    pub(crate) fn new(page: Arc<Mapping>, count: usize) -> RobustList {
        let first = page.words().len() - count;
        let nodes: Box<[Node]> = (0..count.min(LONGEST_LIST)).map(|_| Node { next: AtomicUsize::new(0) }).collect();
        let futex_offset = match nodes.first() {
            Some(node) => address(page.futex_at(first)).wrapping_sub(address(node)).cast_signed(),
            None => 0,
        };
        let head = Box::new(Head { list: Node { next: AtomicUsize::new(0) }, futex_offset, pending: 0 });
        let mut next = address(&*head);
        for node in nodes.iter().rev() {
            node.next.store(next, Ordering::Relaxed);
            next = address(node);
        }
        head.list.next.store(next, Ordering::Relaxed);
        RobustList { head, nodes, page, first }
    }

    /// Makes the kernel mark the words when the calling thread ends. This list replaces any other one of the thread:
    /// that of its robust mutexes, or one of an earlier call.
    ///
    /// # Errors
    /// Returns the error of the system call. All words are then 0.
    ///
    /// # Safety
    /// The kernel reads this list when the thread ends. The caller must keep the value until then.
    pub(crate) unsafe fn hold(&self) -> io::Result<()> {
        let held = (gettid().as_raw_nonzero().get().cast_unsigned() & libc::FUTEX_TID_MASK) | libc::FUTEX_WAITERS;
        for word in &self.page.words()[self.first..self.first + self.nodes.len()] {
            word.store(u64::from(held), Ordering::Relaxed);
        }
        // SAFETY: the list has the form that the kernel requires: a ring of nodes from the head to the head. Its memory
        // does not move, and the caller keeps it until the thread has ended.
        let set = unsafe { libc::syscall(libc::SYS_set_robust_list, &raw const *self.head, size_of::<Head>()) };
        if set == 0 {
            return Ok(());
        }
        let error = std::io::Error::last_os_error();
        for word in &self.page.words()[self.first..] {
            word.store(0, Ordering::Relaxed);
        }
        Err(io::Errno::from_io_error(&error).unwrap_or(io::Errno::NOSYS))
    }

    /// Does what [`hold`](RobustList::hold) does, and never frees the list.
    pub(crate) fn hold_for_good(self) -> io::Result<()> {
        let list: &'static RobustList = Box::leak(Box::new(self));
        // SAFETY: the list is kept forever.
        unsafe { list.hold() }
    }
}

fn address<T>(of: &T) -> usize {
    (&raw const *of).expose_provenance()
}

/// The life word of a peer for this process.
#[derive(Clone, Debug)]
pub(crate) struct LifeWord {
    page: Arc<ReadMapping>,
    word: usize,
    /// Value of the word when it was found.
    held: u32,
}

impl LifeWord {
    /// Finds the word for `me` of `processes` at the end of a peer's page. Returns `None` if no thread holds it.
    pub(crate) fn find(page: &Arc<ReadMapping>, me: ProcessId, processes: u16) -> Option<LifeWord> {
        let first = page.words().checked_sub(usize::from(processes))?;
        let mut found = LifeWord { page: Arc::clone(page), word: first + me.index(), held: 0 };
        found.held = found.load();
        // The word of a peer that has died since it passed its page is marked, and therefore not 0.
        (found.held != 0).then_some(found)
    }

    #[inline]
    fn load(&self) -> u32 {
        self.page.load(self.word, Ordering::Acquire) as u32
    }

    /// Returns whether the kernel has marked the word.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.load() & libc::FUTEX_OWNER_DIED != 0
    }
}

/// State that the life thread shares with its process.
#[derive(Debug)]
struct Shared {
    list: RobustList,
    /// The wait page, on which this process sleeps.
    wait_page: Arc<Mapping>,
    /// The eventfd that wakes this process while it sleeps on its epoll instance.
    event: Arc<OwnedFd>,
    watched: Mutex<Vec<(ProcessId, LifeWord)>>,
    /// Incremented when `watched` changes or the thread should end.
    changes: AtomicU32,
    ends: AtomicBool,
}

impl Shared {
    fn watched(&self) -> MutexGuard<'_, Vec<(ProcessId, LifeWord)>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        // If the thread does not wait, nothing needs to be done.
        let _ = futex::wake(&self.changes, futex::Flags::PRIVATE, 1);
    }

    /// Wakes this process if it sleeps, on the wait word or on the epoll instance.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if doorbell::ring(&self.wait_page.words()[0]) == FUTEX {
            let _ = futex::wake(self.wait_page.futex(), futex::Flags::empty(), 1);
        }
        ring_event(self.event.as_fd());
    }

    /// Waits for marks until the fabric is dropped.
    fn watch(&self) {
        loop {
            let changes = self.changes.load(Ordering::Acquire);
            if self.ends.load(Ordering::Acquire) {
                return;
            }
            let (words, marked) = self.look();
            if marked {
                self.ring();
            }
            self.sleep(changes, &words);
        }
    }

    /// Returns the words to wait for, and whether one of them was marked.
    fn look(&self) -> (Vec<LifeWord>, bool) {
        let (mut watched, mut marked) = (self.watched(), false);
        watched.retain(|(_, word)| {
            // The word is loaded only once. A mark between two loads would be missed.
            let now = word.load();
            let has_died = now & libc::FUTEX_OWNER_DIED != 0;
            marked |= has_died;
            now == word.held && !has_died
        });
        (watched.iter().take(MOST_WATCHED).map(|(_, word)| word.clone()).collect(), marked)
    }

    /// Sleeps until one of the words or the set of watched peers changes.
    fn sleep(&self, changes: u32, words: &[LifeWord]) {
        let wait = |word: &AtomicU32, value: u32, flags: WaitFlags| {
            let mut wait = Wait::new();
            wait.val = value.into();
            wait.uaddr = WaitPtr::new(word.as_ptr().cast());
            wait.flags = WaitFlags::SIZE_U32 | flags;
            wait
        };
        let own = wait(&self.changes, changes, WaitFlags::PRIVATE);
        let others = words.iter().map(|word| wait(word.page.futex_at(word.word), word.held, WaitFlags::empty()));
        let all: Vec<Wait> = std::iter::once(own).chain(others).collect();
        match futex::waitv(&all, WaitvFlags::empty(), None, ClockId::Monotonic) {
            Ok(_) | Err(io::Errno::AGAIN | io::Errno::INTR) => {}
            // The kernel lacks this call, or denies it to this process.
            Err(_) => {
                let _ = futex::wait(&self.changes, futex::Flags::PRIVATE, changes, None);
            }
        }
    }
}

/// Blocks signals in the calling thread until it is dropped. A thread that is spawned meanwhile never receives any:
/// signals of the process are for the program's own threads.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn block() -> BlockedSignals {
        // SAFETY: a signal set is plain data, and both calls write it.
        unsafe {
            let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            BlockedSignals(before)
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is the previous one of this thread.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// The life thread of this process.
#[derive(Debug)]
pub(crate) struct Life {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Life {
    /// Starts the life thread, with the last `processes` words of the control page. If the operating system refuses a
    /// thread, peers notice the end of this process by its sockets, and this process notices theirs when it checks.
    ///
    /// # Errors
    /// Returns an error if the eventfd cannot be created.
    pub(crate) fn begin(control: &Arc<Mapping>, wait: &Arc<Mapping>, processes: u16) -> io::Result<Life> {
        let shared = Arc::new(Shared {
            list: RobustList::new(Arc::clone(control), usize::from(processes)),
            wait_page: Arc::clone(wait),
            event: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
            watched: Mutex::default(),
            changes: AtomicU32::new(0),
            ends: AtomicBool::new(false),
        });
        let (tell, held) = mpsc::sync_channel(1);
        let own = Arc::clone(&shared);
        let watch = move || {
            // SAFETY: `drop` joins this thread, and `own` lives until the thread ends in any case.
            let holds = unsafe { own.list.hold() };
            // `begin` waits for this message.
            let _ = tell.send(());
            if holds.is_ok() {
                own.watch();
            }
        };
        let blocked = BlockedSignals::block();
        let spawned = thread::Builder::new().name("stentor-life".into()).stack_size(64 << 10).spawn(watch);
        drop(blocked);
        if spawned.is_ok() {
            let _ = held.recv();
        }
        Ok(Life { shared, thread: spawned.ok() })
    }

    /// Returns the eventfd that becomes readable when a peer has died, or when a peer or another thread wakes this
    /// process while it sleeps on its epoll instance.
    pub(crate) fn event(&self) -> &Arc<OwnedFd> {
        &self.shared.event
    }

    /// Returns a waker with which another thread of this process ends its sleep. It rings the wait word; [`doorbell`]
    /// explains why no ring is lost.
    pub(crate) fn waker(&self) -> Waker {
        let (page, event) = (Arc::clone(&self.shared.wait_page), Arc::clone(&self.shared.event));
        Waker::new(move || {
            fence(Ordering::SeqCst);
            match doorbell::ring(&page.words()[0]) {
                AWAKE => {}
                // If the process no longer waits, nothing needs to be done.
                FUTEX => _ = futex::wake(page.futex(), futex::Flags::empty(), 1),
                _ => ring_event(event.as_fd()),
            }
        })
    }

    /// Watches a peer's word, so that the mark on that word wakes this process.
    pub(crate) fn watch(&self, peer: ProcessId, word: LifeWord) {
        let mut watched = self.shared.watched();
        let at = watched.partition_point(|(other, _)| *other < peer);
        watched.insert(at, (peer, word));
        drop(watched);
        self.shared.change();
    }

    /// Returns the number of words that the thread waits for.
    #[cfg(test)]
    pub(crate) fn waits_for(&self) -> usize {
        self.shared.watched().len()
    }

    /// Stops watching a peer.
    pub(crate) fn forget(&self, peer: ProcessId) {
        self.shared.watched().retain(|(watched, _)| *watched != peer);
        self.shared.change();
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.shared.ends.store(true, Ordering::Release);
        self.shared.change();
        if let Some(thread) = self.thread.take() {
            // The thread has no result.
            let _ = thread.join();
        }
    }
}
