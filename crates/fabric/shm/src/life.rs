//! The death of a process, as the kernel tells it to its peers.
//!
//! A process has a *life word* for each peer, at the end of its control page, which peers can only read. A thread of it, the *life
//! thread*, holds all of them as robust futexes (`set_robust_list(2)`). When that thread ends, by whatever cause, the kernel marks each
//! word and wakes whoever waits for it. It does so before it takes the memory of the process apart; sockets and pidfds tell only after
//! that, which takes 10 ms where a process has 256 MiB mapped. Only a core dump comes before the mark, so mappings are left out of
//! core dumps.
//!
//! The life thread also waits for the life words of the peers, and wakes its own process when one is marked. A process that is awake
//! need not wait for that thread: it looks at the words itself.
//!
//! # States of a life word
//! 0: no life thread holds it, and its mark will never come. The thread's id: it lives. Marked: it has ended. A word goes from the first
//! to the second before a peer can see it, from the second to the third, and nowhere else; a peer whose word does anything else is not
//! waited for any more.
//!
//! # What a mark does not say
//! Other threads of the process may run for some microseconds yet, and what they store may land. So a mark starts an election, which
//! holds whether or not the leader lives, and breaks no queue pair: those break with the sockets.
//!
//! Without `futex_waitv(2)`, which came with Linux 5.16, nobody is woken, and a process sees a mark when it looks next. The same holds
//! for the peers beyond [`MOST_WATCHED`]; those with the smallest ids are waited for, which members have.
#![allow(unsafe_code)]

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, eventfd};
use rustix::io;
use rustix::thread::futex::{self, Wait, WaitFlags, WaitPtr, WaitvFlags};
use rustix::thread::{ClockId, gettid};
use stentor_fabric::memory::fence;
use stentor_fabric::{ProcessId, Waker};

use crate::doorbell::{self, AWAKE, FUTEX};
use crate::mapping::{Mapping, ReadMapping};

/// The kernel walks no longer list (`ROBUST_LIST_LIMIT`).
const LONGEST_LIST: usize = 2048;
/// The kernel waits for no more words at once (`FUTEX_WAITV_MAX`), of which one is this process's own.
const MOST_WATCHED: usize = 127;

/// An entry of a robust list, at the same distance from its futex as every other.
#[repr(C)]
#[derive(Debug)]
struct Node {
    /// The address of the next one, or of the head.
    next: AtomicUsize,
}

/// What `set_robust_list(2)` takes.
#[repr(C)]
#[derive(Debug)]
struct Head {
    list: Node,
    /// From a node to its futex, bytes.
    futex_offset: isize,
    /// Of an operation that is under way: none ever.
    pending: usize,
}

/// The words of a page that the kernel marks when the thread ends that gave it this list.
#[derive(Debug)]
pub(crate) struct RobustList {
    head: Box<Head>,
    /// As far from each other as the words are.
    nodes: Box<[Node]>,
    page: Arc<Mapping>,
    first: usize,
}

impl RobustList {
    /// The last `count` words of a page.
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

    /// Has the kernel mark the words when the calling thread ends. This list takes the place of any other that the thread has: of robust
    /// mutexes, or of an earlier call.
    ///
    /// # Errors
    /// What the kernel says. The words are 0 then.
    ///
    /// # Safety
    /// The kernel reads this list when the thread ends: the value must be kept until then.
    pub(crate) unsafe fn hold(&self) -> io::Result<()> {
        let held = (gettid().as_raw_nonzero().get().cast_unsigned() & libc::FUTEX_TID_MASK) | libc::FUTEX_WAITERS;
        for word in &self.page.words()[self.first..self.first + self.nodes.len()] {
            word.store(u64::from(held), Ordering::Relaxed);
        }
        // SAFETY: the list is as the kernel wants it: a ring of nodes from the head to the head, in memory that stays where it is and
        // that the caller keeps until the thread has ended.
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

    /// Does the same. The list is never freed.
    pub(crate) fn hold_for_good(self) -> io::Result<()> {
        let list: &'static RobustList = Box::leak(Box::new(self));
        // SAFETY: it is kept for ever.
        unsafe { list.hold() }
    }
}

fn address<T>(of: &T) -> usize {
    (&raw const *of).expose_provenance()
}

/// The life word of a peer that is for this process.
#[derive(Clone, Debug)]
pub(crate) struct LifeWord {
    page: Arc<ReadMapping>,
    word: usize,
    /// As it was at first.
    held: u32,
}

impl LifeWord {
    /// Finds the word for `me` of `processes` at the end of a peer's page. `None` if nobody holds it.
    pub(crate) fn find(page: &Arc<ReadMapping>, me: ProcessId, processes: u16) -> Option<LifeWord> {
        let first = page.words().checked_sub(usize::from(processes))?;
        let mut found = LifeWord { page: Arc::clone(page), word: first + me.index(), held: 0 };
        found.held = found.load();
        // A peer that has died since it passed its page has a marked word, which is not 0.
        (found.held != 0).then_some(found)
    }

    #[inline]
    fn load(&self) -> u32 {
        self.page.load(self.word, Ordering::Acquire) as u32
    }

    /// Whether the kernel has marked it.
    #[inline]
    pub(crate) fn is_marked(&self) -> bool {
        self.load() & libc::FUTEX_OWNER_DIED != 0
    }
}

/// What the life thread shares with its process.
#[derive(Debug)]
struct Shared {
    list: RobustList,
    /// On which this process sleeps.
    wait_page: Arc<Mapping>,
    /// What wakes it while it sleeps on its control sockets.
    signal: Arc<OwnedFd>,
    watched: Mutex<Vec<(ProcessId, LifeWord)>>,
    /// Rises when `watched` changes or the thread is to end.
    changes: AtomicU32,
    ends: AtomicBool,
}

impl Shared {
    fn watched(&self) -> MutexGuard<'_, Vec<(ProcessId, LifeWord)>> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self) {
        self.changes.fetch_add(1, Ordering::Release);
        // Nobody waits there: nothing to do about that.
        let _ = futex::wake(&self.changes, futex::Flags::PRIVATE, 1);
    }

    /// Wakes this process if it sleeps, however it does.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if doorbell::ring(&self.wait_page.words()[0]) == FUTEX {
            let _ = futex::wake(self.wait_page.futex(), futex::Flags::empty(), 1);
        }
        let _ = io::write(&self.signal, &1_u64.to_ne_bytes());
    }

    /// Waits for marks until this process ends its fabric.
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
            // Loaded once: a mark that came between two loads would ring nobody.
            let now = word.load();
            let has_died = now & libc::FUTEX_OWNER_DIED != 0;
            marked |= has_died;
            now == word.held && !has_died
        });
        (watched.iter().take(MOST_WATCHED).map(|(_, word)| word.clone()).collect(), marked)
    }

    /// Until one of the words, or what is watched, is not as it was.
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
            // The kernel has no such call, or this process may not make it.
            Err(_) => {
                let _ = futex::wait(&self.changes, futex::Flags::PRIVATE, changes, None);
            }
        }
    }
}

/// Signals are blocked in the calling thread until this is dropped. A thread that begins meanwhile never has any: those of the process
/// are for the threads of its program.
struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    fn block() -> BlockedSignals {
        // SAFETY: a set of signals is plain data, which both calls write.
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
        // SAFETY: the set is the one that the thread had.
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
    /// Begins the life of this process with the last `processes` words of its control page. If the system refuses a thread, its peers hear
    /// of its end by its sockets, and it of theirs when it looks.
    ///
    /// # Errors
    /// If the eventfd cannot be made.
    pub(crate) fn begin(control: &Arc<Mapping>, wait: &Arc<Mapping>, processes: u16) -> io::Result<Life> {
        let shared = Arc::new(Shared {
            list: RobustList::new(Arc::clone(control), usize::from(processes)),
            wait_page: Arc::clone(wait),
            signal: Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?),
            watched: Mutex::default(),
            changes: AtomicU32::new(0),
            ends: AtomicBool::new(false),
        });
        let (tell, held) = mpsc::sync_channel(1);
        let own = Arc::clone(&shared);
        let watch = move || {
            // SAFETY: `drop` joins this thread, and `own` is kept until it ends in any case.
            let holds = unsafe { own.list.hold() };
            // Whoever began this waits for it.
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

    /// What becomes readable when a peer has died while this process sleeps on its control sockets.
    pub(crate) fn signal(&self) -> BorrowedFd<'_> {
        self.shared.signal.as_fd()
    }

    /// Returns what ends this process's sleep from another of its threads. It rings the wait word: [`doorbell`] argues that no ring is lost.
    pub(crate) fn waker(&self) -> Waker {
        let (page, signal) = (Arc::clone(&self.shared.wait_page), Arc::clone(&self.shared.signal));
        Waker::new(move || {
            fence(Ordering::SeqCst);
            match doorbell::ring(&page.words()[0]) {
                AWAKE => {}
                // Nobody waits there any more: nothing to do about that.
                FUTEX => _ = futex::wake(page.futex(), futex::Flags::empty(), 1),
                _ => _ = io::write(&signal, &1_u64.to_ne_bytes()),
            }
        })
    }

    /// From here on this process is woken when the peer's word is marked.
    pub(crate) fn watch(&self, peer: ProcessId, word: LifeWord) {
        let mut watched = self.shared.watched();
        let at = watched.partition_point(|(other, _)| *other < peer);
        watched.insert(at, (peer, word));
        drop(watched);
        self.shared.change();
    }

    /// How many words the thread waits for.
    #[cfg(test)]
    pub(crate) fn waits_for(&self) -> usize {
        self.shared.watched().len()
    }

    /// The peer is gone.
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
            // The thread returns nothing.
            let _ = thread.join();
        }
    }
}
