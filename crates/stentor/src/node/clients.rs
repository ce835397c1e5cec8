//! The clients that are embedded in a node, which the node's loop runs.
//!
//! # Connections of an embedded client
//! An embedded client has one of the cluster's client ids like any other client, so groups and sessions do not
//! distinguish it. It connects on the thread that requests it, and is then handed over to the node. Its fabric endpoint
//! exists beside the member's. On shared memory it has its own socket in the directory. On `roce` it sends from the
//! member's address, and the member's port forwards the client's packets to it.
//!
//! # Invariants
//! - Each client runs in each round of the node, after the member. So it sees in the same round what the member's port
//!   has received.
//! - The node sleeps only when no client has any work, and then sleeps on the descriptors of all. A later call wakes
//!   the node through the member's [waker](stentor_fabric::Fabric::waker), as every request of another thread does.
//!   This works because the member arms its fabric before the node checks for calls.

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
    /// An epoll descriptor of the member and all clients. `None` if it must be created before the next sleep.
    watch: Option<OwnedFd>,
    /// `true` if clients accept no more calls.
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

    /// Runs one round of each client. Returns whether there was any work.
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

    /// Returns for how long the node may sleep. Its own limit is `longest`. Returns `None` if it must not sleep.
    pub(super) fn may_sleep(&mut self, longest: Duration) -> Option<Duration> {
        // `may_sleep` makes later calls of a client wake the node. The node therefore sleeps only if it has called
        // `may_sleep` for every client.
        self.all
            .iter_mut()
            .map(|client| client.may_sleep())
            .try_fold(longest, |least, may| may.map(|may| least.min(may)))
    }

    pub(super) fn woken(&mut self) {
        self.all.iter_mut().for_each(|client| client.woken());
    }

    /// Creates the epoll descriptor of the member and all clients. Does nothing if there is no client or nothing has
    /// changed.
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

    /// Drops the epoll descriptor, because the member is replaced.
    pub(super) fn forget_member(&mut self) {
        self.watch = None;
    }

    /// Returns the descriptor on which the node sleeps, if it has clients.
    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.watch.as_ref().map(AsFd::as_fd)
    }

    /// Sleeps until the member or a client may have work, for at most `longest`.
    pub(super) fn sleep(&self, longest: Duration) -> Result<(), Errno> {
        let Some(watch) = &self.watch else { return Ok(()) };
        let time = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
        match poll(&mut [PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN)], Some(&time)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Makes all clients close, because the node was asked to stop. Their sessions end while the node leaves.
    pub(super) fn close(&mut self) {
        if !std::mem::replace(&mut self.closed, true) {
            self.all.iter().for_each(|client| client.close());
        }
    }

    /// Ends all clients and their calls.
    pub(super) fn end(&mut self) {
        self.closed = true;
        self.all.clear();
        self.watch = None;
    }
}

/// Returns a number that identifies the calling thread. It is never 0.
fn thread_number() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    thread_local! {
        static OWN: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    OWN.with(|own| *own)
}

/// The thread that has run the node last.
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
