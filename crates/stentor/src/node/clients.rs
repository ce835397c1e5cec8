//! The clients that are embedded in a node: its loop turns them.
//!
//! # How an embedded client is connected
//! It is a client in one of the cluster's places, like any other, so groups and sessions know nothing of it. It connects on the thread that
//! asks for it, and is handed over to the node then. What it needs at the fabric is beside what the member has: on shared memory its own
//! socket in the directory; on `roce` it sends from the member's address, and the member's port hands over what comes for it.
//!
//! # Invariants
//! - Each client is turned in each round of the node, after the member: so it sees in the same round what the member's port has taken in.
//! - The node sleeps only when no client has anything to do, and on the descriptors of all of them. A call that comes later wakes it by the
//!   member's [waker](stentor_fabric::Fabric::waker), as all that other threads ask of a node does: the member has armed by then.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use crate::client::{Embedded, Turned};

/// The clients of a node.
#[derive(Default)]
pub(super) struct Clients {
    all: Vec<Box<dyn Embedded>>,
    /// Readable when the member or a client may have something to do. `None`: it is made before the next sleep.
    watch: Option<OwnedFd>,
    /// Whether no call comes any more.
    closed: bool,
}

impl Clients {
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    pub(super) fn add(&mut self, client: Box<dyn Embedded>) {
        if self.closed {
            client.close();
        }
        self.all.push(client);
        self.watch = None;
    }

    /// Turns each once. Returns whether there was anything.
    #[inline]
    pub(super) fn turn(&mut self) -> bool {
        if self.all.is_empty() { false } else { self.turn_all() }
    }

    fn turn_all(&mut self) -> bool {
        let (mut worked, before) = (false, self.all.len());
        self.all.retain_mut(|client| {
            let turned = client.turn();
            worked |= turned != Turned::Idle;
            turned != Turned::Ended
        });
        if self.all.len() < before {
            self.watch = None;
        }
        worked
    }

    pub(super) fn arm(&mut self) {
        self.all.iter_mut().for_each(|client| client.arm());
    }

    /// Returns for how long the node may sleep, which itself may for `longest`. `None`: not at all.
    pub(super) fn may_sleep(&mut self, longest: Duration) -> Option<Duration> {
        // All of them: whoever makes a call from here on wakes the node.
        self.all
            .iter_mut()
            .map(|client| client.may_sleep())
            .try_fold(longest, |least, may| may.map(|may| least.min(may)))
    }

    pub(super) fn woken(&mut self) {
        self.all.iter_mut().for_each(|client| client.woken());
    }

    /// Makes what tells of the member and of all clients. Does nothing if there is no client, or nothing has changed.
    pub(super) fn watch(&mut self, member: Option<BorrowedFd<'_>>) -> Result<(), Errno> {
        if self.all.is_empty() || self.watch.is_some() {
            return Ok(());
        }
        let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let add = |fd: BorrowedFd<'_>| epoll::add(&all, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN);
        self.all.iter().map(|client| client.descriptor()).chain([member]).flatten().try_for_each(add)?;
        self.watch = Some(all);
        Ok(())
    }

    /// The member is another one from here on.
    pub(super) fn forget_member(&mut self) {
        self.watch = None;
    }

    /// Returns what the node sleeps on, if it has clients.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Sleeps until anything has something to do, for at most so long.
    pub(super) fn sleep(&self, longest: Duration) -> Result<(), Errno> {
        let Some(watch) = &self.watch else { return Ok(()) };
        let time = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
        match poll(&mut [PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN)], Some(&time)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// The node is told to stop: no call comes any more, and the sessions end while it leaves.
    pub(super) fn close(&mut self) {
        if !std::mem::replace(&mut self.closed, true) {
            self.all.iter().for_each(|client| client.close());
        }
    }

    /// Ends all of them, with their calls.
    pub(super) fn end(&mut self) {
        self.closed = true;
        self.all.clear();
        self.watch = None;
    }
}

/// The number of a thread, for whoever compares: 0 is none.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.with(|own| *own)
}

/// The thread that turns a node now.
#[derive(Clone, Default)]
pub(super) struct Turner(Arc<AtomicU64>);

impl Turner {
    #[inline]
    pub(super) fn note(&self) {
        self.0.store(thread_number(), Ordering::Relaxed);
    }

    pub(super) fn is_this_thread(&self) -> bool {
        self.0.load(Ordering::Relaxed) == thread_number()
    }
}
