//! The protocol's end of the queue to the apply thread.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use stentor_fabric::WaitMode;
use stentor_multicast::{ClientId, Delivered, Frozen};
use stentor_session::AnswerBuffer;

use super::batch::Batch;
use super::depth::Depth;
use super::handover::{Giver, handover};
use super::queued_state::QueuedState;
use super::work::Work;
use super::worker::{self, Ends};
use super::{Applier, Bounds, Progress, QueryHead};
use crate::node::sleeper::Sleeper;
use crate::state_machine::StateMachine;

/// Maximum number of work items that are handed over and not begun. Further work waits at the protocol's end, where
/// commands join a batch.
const HANDED: usize = 16;
/// Maximum number of waiting queries.
const MOST_QUERIES: usize = 1024;
/// Maximum number of empty batches that are kept for reuse.
const SPARE: usize = 2 * HANDED;
/// Longest wait of an ending node until all delivered commands are applied.
const LEFT_OVER: Duration = Duration::from_secs(10);
/// Number of rounds for which the protocol's thread only yields its time slice while it waits for the next batch to
/// return. Most machines finish a batch in this time, and a sleep with its wake-up would take longer. After these
/// rounds, the protocol's thread may sleep, and the apply thread wakes it.
const YIELDS: u32 = 32;
/// Interval between checks whether the apply thread has ended.
const LOOK: Duration = Duration::from_micros(200);

/// The protocol's end of the queue to the apply thread.
///
/// # Invariants
/// - Deliveries are applied in order. A freeze and the restoration of a state keep their places in this order.
/// - The delivered commands that are not known to be applied stay within the bounds, or exceed them by one command.
pub(in crate::node) struct Queue<S> {
    work: Giver,
    done: Receiver<Batch>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<Applier<S>>>,
    progress: Arc<Progress>,
    depth: Depth,
    /// Maximum size of the waiting commands, in bytes. The same bound applies to the waiting queries.
    most_bytes: usize,
    /// Number of the commands that were delivered and have not returned, and their size in bytes.
    waiting: (usize, usize),
    /// Number of the queries that have not returned, and their size in bytes. They are bounded separately, so that
    /// queries and commands do not block each other.
    queries: (usize, usize),
    /// Number of batches that were begun and have not returned.
    batches: usize,
    /// Work that is not handed over yet.
    outbox: VecDeque<Work>,
    spare: Vec<Batch>,
    /// Number of restorations that were requested.
    restores: u64,
    /// `true` if the queue accepts no work, because a state is being restored or the machine is unusable.
    closed: bool,
    /// Number of rounds since a batch returned. Only rounds in which a batch is outstanding count.
    rounds: u32,
}

impl<S: StateMachine> Queue<S> {
    pub(in crate::node) fn start(
        applier: Applier<S>,
        bounds: Bounds,
        wait: WaitMode,
        sleeper: Sleeper,
    ) -> io::Result<Self> {
        let (work, to_do) = handover(HANDED);
        let (give_back, done) = sync_channel(2 * HANDED);
        let ends = Arc::new(AtomicBool::new(false));
        let progress = Arc::clone(applier.progress());
        let own = Ends { work: to_do, wake: work.clone(), done: give_back, ends: Arc::clone(&ends), sleeper };
        let thread = Some(worker::spawn(applier, own, wait)?);
        Ok(Queue {
            work,
            done,
            ends,
            thread,
            progress,
            depth: Depth::new(bounds.commands),
            most_bytes: bounds.bytes,
            waiting: (0, 0),
            queries: (0, 0),
            batches: 0,
            outbox: VecDeque::with_capacity(HANDED),
            spare: Vec::with_capacity(SPARE),
            restores: 0,
            closed: false,
            rounds: 0,
        })
    }

    #[inline]
    pub(in crate::node) fn has_room(&self) -> bool {
        let (commands, bytes) = self.waiting;
        !self.closed && commands < self.depth.limit() && bytes < self.most_bytes
    }

    #[inline]
    pub(in crate::node) fn has_room_for_queries(&self) -> bool {
        let (queries, bytes) = self.queries;
        !self.closed && queries < MOST_QUERIES && bytes < self.most_bytes
    }

    #[inline]
    pub(in crate::node) fn push(&mut self, delivered: &Delivered<'_>) {
        let added = self.add(|batch| batch.commands.push(delivered));
        self.waiting.0 += 1;
        self.waiting.1 += added;
    }

    /// Answers a query after all deliveries so far.
    pub(in crate::node) fn push_query(&mut self, head: QueryHead, query: &[u8]) {
        let added = self.add(|batch| batch.queries.push(head, query));
        self.queries.0 += 1;
        self.queries.1 += added;
    }

    /// Adds to a batch. Returns the number of bytes that this occupies.
    #[inline]
    fn add(&mut self, add: impl FnOnce(&mut Batch)) -> usize {
        self.with_batch(|batch| {
            let before = batch.bytes();
            add(batch);
            batch.bytes() - before
        })
    }

    /// Repeats the replies that this client has not acknowledged, after all deliveries so far.
    pub(in crate::node) fn say_again(&mut self, client: ClientId) {
        self.with_batch(|batch| batch.again.push(client));
    }

    /// Adds to the batch at the end of the outbox, or to a new one.
    #[inline]
    fn with_batch<T>(&mut self, add: impl FnOnce(&mut Batch) -> T) -> T {
        if let Some(Work::Commands(batch)) = self.outbox.back_mut()
            && !batch.is_full()
        {
            return add(batch);
        }
        let mut batch = self.spare.pop().unwrap_or_default();
        let added = add(&mut batch);
        self.outbox.push_back(Work::Commands(batch));
        self.batches += 1;
        added
    }

    /// Records that a batch has returned or is dropped.
    fn note_end(&mut self, batch: &Batch) {
        self.batches -= 1;
        self.waiting.0 -= batch.commands.len();
        self.waiting.1 -= batch.commands.bytes();
        self.queries.0 -= batch.queries.len();
        self.queries.1 -= batch.queries.bytes();
    }

    /// Requests the value after all deliveries so far.
    pub(in crate::node) fn freeze(&mut self) -> Box<dyn Frozen> {
        let (freezes, frozen) = sync_channel(1);
        self.outbox.push_back(Work::Freeze(freezes));
        Box::new(QueuedState::new(frozen))
    }

    /// Restores a state. Until that is done, the queue has no room.
    pub(in crate::node) fn restore(&mut self, number: u64, chunks: VecDeque<Vec<u8>>) {
        self.outbox.push_back(Work::Restore { number, chunks });
        self.restores += 1;
        self.closed = true;
    }

    /// Takes the batches that are done, and updates whether there is room. Called before each round.
    #[inline]
    pub(in crate::node) fn begin_round(&mut self, mut replied: impl FnMut(&AnswerBuffer)) {
        if self.batches > 0 {
            self.rounds = self.rounds.saturating_add(1);
            while let Ok(mut batch) = self.done.try_recv() {
                self.rounds = 0;
                self.note_end(&batch);
                self.depth.note(batch.len(), batch.took);
                if !batch.replies.is_empty() {
                    replied(&batch.replies);
                }
                batch.clear();
                if self.spare.len() < SPARE {
                    self.spare.push(batch);
                }
            }
        }
        self.closed = self.progress.is_ill() || self.restores != self.progress.restores();
    }

    /// Hands over the waiting work items, as far as the apply thread's queue has room. Called after each round.
    #[inline]
    pub(in crate::node) fn end_round(&mut self) {
        while let Some(work) = self.outbox.pop_front() {
            if let Some(work) = self.work.give(work) {
                self.outbox.push_front(work);
                return;
            }
        }
    }

    /// Returns whether a batch is about to return, so that a sleep does not pay.
    #[inline]
    pub(in crate::node) fn is_about_to_return(&self) -> bool {
        self.batches > 0 && self.rounds < YIELDS
    }

    /// Drops all work that was not handed over, and restores the initial value, because the node starts over.
    pub(in crate::node) fn start_over(&mut self) {
        for work in std::mem::take(&mut self.outbox) {
            match work {
                Work::Commands(batch) => self.note_end(&batch),
                Work::Restore { .. } => self.restores -= 1,
                Work::Freeze(_) | Work::Look | Work::Stop => {}
            }
        }
        self.restore(0, VecDeque::new());
    }

    /// Ends the thread after all delivered commands are applied.
    ///
    /// # Errors
    /// Returns the number of commands that are not applied (at least 1), if that takes too long or the thread has
    /// panicked. A slow thread ends after the present command.
    pub(in crate::node) fn stop(mut self) -> Result<Applier<S>, usize> {
        let since = Instant::now();
        self.outbox.push_back(Work::Stop);
        let left = |queue: &Self| queue.waiting.0.max(1);
        while since.elapsed() < LEFT_OVER {
            self.begin_round(|_| ());
            self.end_round();
            if self.thread.as_ref().is_none_or(JoinHandle::is_finished) {
                let applier = self.thread.take().and_then(|thread| thread.join().ok());
                return applier.ok_or(left(&self));
            }
            thread::sleep(LOOK);
        }
        Err(left(&self))
    }
}

impl<S> Drop for Queue<S> {
    /// Makes the thread end after the present command.
    fn drop(&mut self) {
        self.ends.store(true, Ordering::Relaxed);
        // If the queue is full, the thread is awake anyway.
        let _ = self.work.give(Work::Stop);
    }
}
