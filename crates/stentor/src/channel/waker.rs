//! Wake-ups of tasks that wait for the descriptor of a channel, on any executor.
//!
//! One thread of the process waits on behalf of all channels. It starts with the first future that has to sleep.
//! Programs that only use event loops or blocking calls never start it.
//!
//! # Invariants
//! - A waker is in `waiting` from before the descriptor is armed until the thread has taken it or the channel is
//!   dropped.
//! - A descriptor is armed for one event at a time. If it is readable when it is armed, the event is reported at once.
//!   So no wake-up is lost.
//! - No lock is held while a waker runs or is dropped, because either may drop a task, and with it a channel.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::Waker;
use std::thread;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;

/// Maximum number of events that are received at once.
const BATCH: usize = 64;

#[derive(Debug)]
struct Reactor {
    epoll: OwnedFd,
    waiting: Mutex<HashMap<u64, Waker>>,
}

impl Reactor {
    /// Returns the reactor of this process. Its thread is started once. If that fails, every call returns the failure.
    fn get() -> io::Result<&'static Arc<Reactor>> {
        static REACTOR: OnceLock<Result<Arc<Reactor>, io::ErrorKind>> = OnceLock::new();
        let started = REACTOR.get_or_init(|| Reactor::start().map_err(|error| error.kind()));
        started.as_ref().map_err(|kind| (*kind).into())
    }

    fn start() -> io::Result<Arc<Reactor>> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let reactor = Arc::new(Reactor { epoll, waiting: Mutex::default() });
        let runs = Arc::clone(&reactor);
        thread::Builder::new().name("stentor wakes".to_owned()).spawn(move || runs.run())?;
        Ok(reactor)
    }

    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Waker>> {
        // Only an allocation can panic under the lock, and it leaves the map consistent.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self) {
        let mut events = Vec::with_capacity(BATCH);
        loop {
            match epoll::wait(&self.epoll, spare_capacity(&mut events), None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    log::error!("tasks that wait for channels are not woken any more: {error}");
                    return;
                }
            }
            for event in events.drain(..) {
                let data = event.data;
                let waker = self.waiting().remove(&data.u64());
                waker.into_iter().for_each(crate::wake::wake);
            }
        }
    }
}

/// The registration of a channel's descriptor, by which tasks are woken.
#[derive(Debug)]
pub(super) struct Wakes {
    reactor: Arc<Reactor>,
    number: u64,
    descriptor: OwnedFd,
}

impl Wakes {
    pub(super) fn new(descriptor: BorrowedFd<'_>) -> io::Result<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (reactor, descriptor) = (Arc::clone(Reactor::get()?), descriptor.try_clone_to_owned()?);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let data = epoll::EventData::new_u64(number);
        // The descriptor is not armed for any event yet.
        epoll::add(&reactor.epoll, &descriptor, data, epoll::EventFlags::ONESHOT)?;
        Ok(Wakes { reactor, number, descriptor })
    }

    /// Wakes a task when the descriptor is readable. The task replaces an earlier one.
    pub(super) fn wake(&self, waker: &Waker) -> io::Result<()> {
        let known = self.reactor.waiting().get(&self.number).is_some_and(|known| known.will_wake(waker));
        if !known {
            let waker = waker.clone();
            let replaced = self.reactor.waiting().insert(self.number, waker);
            drop(replaced);
        }
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ONESHOT;
        epoll::modify(&self.reactor.epoll, self.descriptor.as_fd(), epoll::EventData::new_u64(self.number), flags)?;
        Ok(())
    }
}

impl Drop for Wakes {
    fn drop(&mut self) {
        // The removal can fail only if the descriptor is no longer in the epoll set.
        let _ = epoll::delete(&self.reactor.epoll, &self.descriptor);
        let waker = self.reactor.waiting().remove(&self.number);
        drop(waker);
    }
}
