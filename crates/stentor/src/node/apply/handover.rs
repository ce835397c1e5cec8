//! The hand-over of work to the apply thread.

use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use stentor_fabric::{Backoff, Idle};

use super::work::Work;

/// The sleep of the apply thread. The channel itself never blocks the thread: a thread that the channel wakes would
/// contend for the channel's lock with the thread that wakes it.
#[derive(Debug, Default)]
struct Sleep {
    /// `true` from the time at which the apply thread is about to sleep until another thread wakes it.
    sleeps: Mutex<bool>,
    woken: Condvar,
}

impl Sleep {
    fn sleeps(&self) -> MutexGuard<'_, bool> {
        self.sleeps.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Announces a sleep. Work that arrives later ends it; work that arrived before can be received now.
    fn announce(&self) {
        *self.sleeps() = true;
    }

    /// Sleeps until `wake` is called. Returns at once if that has happened since `announce`.
    fn sleep(&self) {
        let mut sleeps = self.sleeps();
        while *sleeps {
            sleeps = self.woken.wait(sleeps).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wake(&self) {
        // The lock is free again before the other thread wakes up.
        if std::mem::take(&mut *self.sleeps()) {
            self.woken.notify_one();
        }
    }
}

/// The end at which work is handed over.
#[derive(Clone)]
pub(super) struct Giver {
    work: SyncSender<Work>,
    sleep: Arc<Sleep>,
}

impl Giver {
    /// Hands work over, and wakes the apply thread if it sleeps. Never blocks. Returns the work if the queue is full or
    /// the apply thread has ended.
    #[inline]
    pub(super) fn give(&self, work: Work) -> Option<Work> {
        match self.work.try_send(work) {
            Ok(()) => {
                self.sleep.wake();
                None
            }
            Err(TrySendError::Full(work) | TrySendError::Disconnected(work)) => Some(work),
        }
    }
}

/// The apply thread's end.
pub(super) struct Taker {
    work: Receiver<Work>,
    sleep: Arc<Sleep>,
}

impl Taker {
    /// Waits for work according to the wait mode: spins, yields, then sleeps. Returns `None` if no work can come because
    /// every giver was dropped before the sleep.
    pub(super) fn take(&self, backoff: &mut Backoff) -> Option<Work> {
        let _ = backoff.after(true);
        loop {
            match self.work.try_recv() {
                Ok(work) => return Some(work),
                Err(TryRecvError::Disconnected) => return None,
                Err(TryRecvError::Empty) => match backoff.after(false) {
                    Idle::Poll => {}
                    Idle::Arm => self.sleep.announce(),
                    Idle::Sleep => self.sleep.sleep(),
                },
            }
        }
    }
}

/// Creates both ends of a queue for `room` items.
pub(super) fn handover(room: usize) -> (Giver, Taker) {
    let (give, take) = sync_channel(room);
    let sleep = Arc::new(Sleep::default());
    (Giver { work: give, sleep: Arc::clone(&sleep) }, Taker { work: take, sleep })
}

#[cfg(test)]
mod tests {
    use std::thread;
    use std::time::{Duration, Instant};

    use stentor_fabric::WaitMode;

    use super::*;

    /// A lost wake-up leaves one of the two threads asleep for ever.
    #[test]
    fn every_item_wakes_the_sleeping_thread() {
        let ((to, work), (back, echo)) = (handover(4), handover(4));
        let thread = thread::spawn(move || {
            let mut backoff = Backoff::new(WaitMode { spins: 0, yields: 0, sleep: true });
            while let Some(work @ Work::Look) = work.take(&mut backoff) {
                assert!(back.give(work).is_none());
            }
        });
        let (done, finished) = std::sync::mpsc::channel();
        let other = thread::spawn(move || {
            let mut backoff = Backoff::new(WaitMode { spins: 1, yields: 0, sleep: true });
            for _ in 0..20_000 {
                assert!(to.give(Work::Look).is_none());
                assert!(matches!(echo.take(&mut backoff), Some(Work::Look)));
            }
            assert!(to.give(Work::Stop).is_none());
            done.send(()).unwrap();
        });
        assert_eq!(finished.recv_timeout(Duration::from_secs(60)), Ok(()), "a thread sleeps although it has work");
        other.join().unwrap();
        thread.join().unwrap();
    }

    #[test]
    fn full_queue_returns_the_work_and_a_dropped_giver_ends_the_wait() {
        let (giver, taker) = handover(1);
        assert!(giver.give(Work::Look).is_none());
        assert!(matches!(giver.give(Work::Stop), Some(Work::Stop)));
        let mut backoff = Backoff::new(WaitMode::BLOCK);
        assert!(matches!(taker.take(&mut backoff), Some(Work::Look)));
        let since = Instant::now();
        drop(giver);
        assert!(taker.take(&mut backoff).is_none());
        assert!(since.elapsed() < Duration::from_secs(20));
    }
}
