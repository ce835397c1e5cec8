//! The table of a client's calls. The threads that make calls and the thread that serves them meet here.
//!
//! # States of a slot
//! | state | owner | next |
//! |---|---|---|
//! | free | the queue `free` | *queued*, by a caller |
//! | queued | `queue` or `released`, then the serving thread | *sent*, *held* or *done* |
//! | held | the caller, which has the ticket | *queued* or *done* |
//! | sent | the serving thread | *done*, with an outcome |
//! | done | the caller, which receives the outcome | *free* |
//!
//! A queued call becomes *held* if its caller prepared it, and *done* if it is refused or times out. A held call
//! returns to *queued*, through `released`, to be sent or given up. It becomes *done* if it is held for too long.
//!
//! # Invariants
//! - A slot number lies in one of the three queues, or one thread owns it. So no queue ever overflows.
//! - A slot is freed when its call is done *and* its caller has dropped the call or its answer. If the caller drops the
//!   call earlier, the slot is *deserted*, and the thread that delivers the outcome frees it.
//! - All changes of a slot are made under its lock.
//! - Wakers are foreign code, which may drop a call: they are woken and dropped outside the lock. A waker that panics
//!   affects no other call.
//! - Buffers stay with their slots. So a command or read to few groups allocates nothing once its slot has held a call
//!   of the same size.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Instant;

use crossbeam_queue::ArrayQueue;
use rustix::event::{EventfdFlags, eventfd};
use stentor_session as session;

use super::keeper::Keeper;
use super::mail::Mail;
use super::{Ask, CallError, Consistency, Groups, Refused, Session, Ticket, Why};
use crate::wake::wake;
use crate::{Group, Position};

/// The client accepts calls.
const OPEN: u8 = 0;
/// The client accepts no more calls, and the session ends.
const ENDS: u8 = 1;
/// The client accepts no more calls, and the session is kept for a later process.
const LEAVES: u8 = 2;

/// The state of a call's slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Free,
    Queued,
    Held,
    Sent,
    Done,
}

/// The state of a prepared command's hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    /// The command is not held. It is sent when its turn comes.
    Not,
    /// The command gets its ticket when its turn comes, and is sent when the caller releases it.
    Until,
    /// The caller has released the command. It is sent as soon as its groups accept it.
    Over,
    /// The caller has given the command up.
    GivenUp,
}

/// The work that a call requests.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Job {
    /// Apply the command, or answer the query, in `bytes`.
    Request(Ask),
    /// Answer the query in `bytes` outside the order.
    Read(Consistency),
    /// Settle an earlier command.
    Resolve(Box<Ticket>),
}

/// The state of a call, under its slot's lock.
#[derive(Debug)]
pub(super) struct CallState {
    pub(super) phase: Phase,
    pub(super) job: Job,
    pub(super) hold: Hold,
    pub(super) to: Groups,
    /// The command; later the replies, concatenated.
    pub(super) bytes: Vec<u8>,
    /// The range of each group's reply in `bytes`.
    pub(super) replies: Vec<(Group, Range<usize>)>,
    pub(super) outcome: Option<Result<Position, CallError>>,
    /// The ticket, once the call has one. Its buffer stays with the slot.
    pub(super) ticket: session::Ticket,
    /// `true` if `ticket` belongs to this call.
    pub(super) is_named: bool,
    /// The deadline of the call. `None` if its caller has stopped waiting.
    pub(super) until: Option<Instant>,
    waker: Option<Waker>,
    /// `true` if the caller has dropped the call.
    deserted: bool,
}

impl CallState {
    /// Returns the error of a call that was not sent and never will be. For a call that resolves an earlier command,
    /// the error does not say whether that command was applied.
    pub(super) fn unsent(&self, why: Refused) -> CallError {
        match &self.job {
            Job::Request(_) | Job::Read(_) => CallError::NotApplied(why),
            Job::Resolve(ticket) => CallError::Unknown(Ticket::clone(ticket), Why::NotAsked(why)),
        }
    }

    /// Returns the error of a call that was sent and whose outcome will not arrive. A read has changed nothing, so it
    /// counts as not applied.
    pub(super) fn lost(&self, why: Why) -> CallError {
        if !matches!(self.job, Job::Read(_)) {
            return CallError::Unknown(Ticket(self.ticket.clone()), why);
        }
        let unanswered = || self.to.iter().next().map_or(Refused::NoGroups, Refused::Unanswered);
        CallError::NotApplied(match why {
            Why::ClientEnded => Refused::ClientEnded,
            Why::Superseded => Refused::Superseded,
            Why::WouldDeadlock => Refused::WouldDeadlock,
            Why::GroupReset(group) => Refused::GroupReset(group),
            Why::Halted(group) => Refused::Halted(group),
            _ => unanswered(),
        })
    }

    fn new() -> Self {
        CallState {
            phase: Phase::Free,
            job: Job::Request(Ask::Command),
            hold: Hold::Not,
            to: Groups::none(),
            bytes: Vec::new(),
            replies: Vec::new(),
            outcome: None,
            ticket: session::Ticket::default(),
            is_named: false,
            until: None,
            waker: None,
            deserted: false,
        }
    }
}

#[derive(Debug)]
struct Slot {
    state: Mutex<CallState>,
    done: Condvar,
}

/// Wakes the serving thread.
#[derive(Debug)]
struct Bell {
    clapper: Clapper,
    /// `true` if the serving thread sleeps, or is about to.
    sleeps: AtomicBool,
}

/// The mechanism that ends the serving thread's sleep.
#[derive(Debug)]
enum Clapper {
    /// The client's own thread sleeps on this eventfd.
    Event(OwnedFd),
    /// The serving thread runs a node.
    Node(Keeper),
}

impl Clapper {
    fn new(keeper: Option<Keeper>) -> io::Result<Clapper> {
        if let Some(keeper) = keeper {
            return Ok(Clapper::Node(keeper));
        }
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(io::Error::from);
        let event = event.map_err(|error| io::Error::new(error.kind(), format!("make an eventfd: {error}")))?;
        Ok(Clapper::Event(event))
    }
}

/// All calls of one client.
pub(super) struct Calls {
    slots: Box<[Slot]>,
    free: ArrayQueue<u32>,
    queue: ArrayQueue<u32>,
    /// Calls that were held, and are now to be sent or given up.
    released: ArrayQueue<u32>,
    bell: Bell,
    /// State of the client: it accepts calls ([`OPEN`]), or it accepts none and ends the session ([`ENDS`]) or leaves
    /// the session open ([`LEAVES`]).
    closing: AtomicU8,
    /// The session, and the moment until which it is certain to live.
    session: Mutex<(session::SessionKey, Option<Instant>)>,
    /// Order time after which later commands are placed. Callers write it, rarely.
    observed: AtomicU64,
    /// The latest order time that the serving thread has published.
    heard: AtomicU64,
    mail: Mail,
    /// `true` if the serving thread has ended.
    ended: AtomicBool,
    /// Signals that the serving thread has ended.
    end: (Mutex<bool>, Condvar),
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").field("slots", &self.slots.len()).field("room", &self.room()).finish_non_exhaustive()
    }
}

impl Calls {
    /// Creates a table for at most `most` concurrent calls. They are served by the keeper's node or, without a keeper,
    /// by the client's own thread.
    pub(super) fn new(most: u32, keeper: Option<Keeper>) -> io::Result<Calls> {
        let slot = |_| Slot { state: Mutex::new(CallState::new()), done: Condvar::new() };
        let numbers = || ArrayQueue::new(most as usize);
        let (free, queue, released) = (numbers(), numbers(), numbers());
        for at in 0..most {
            put(&free, at);
        }
        Ok(Calls {
            slots: (0..most).map(slot).collect(),
            free,
            queue,
            released,
            bell: Bell { clapper: Clapper::new(keeper)?, sleeps: AtomicBool::new(false) },
            closing: AtomicU8::new(OPEN),
            session: Mutex::default(),
            observed: AtomicU64::new(0),
            heard: AtomicU64::new(0),
            mail: Mail::default(),
            ended: AtomicBool::new(false),
            end: Default::default(),
        })
    }

    /// Returns whether this thread would deadlock if it waited for a call.
    pub(super) fn is_own_thread(&self) -> bool {
        matches!(&self.bell.clapper, Clapper::Node(keeper) if keeper.is_own_thread())
    }

    /// Waits until the serving thread has ended, or until `until`. Returns whether it has ended.
    pub(super) fn wait_for_end(&self, until: Instant) -> bool {
        let (ended, told) = &self.end;
        let left = until.saturating_duration_since(Instant::now());
        let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = told.wait_timeout_while(ended, left, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn lock(&self, at: u32) -> MutexGuard<'_, CallState> {
        // The lock is poisoned if a waker or an allocation panicked under it. The state is consistent even then.
        self.slots[at as usize].state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ------------------------------------------------------------------------------------------------------- callers

    /// Queues a call for the serving thread. Returns its slot.
    pub(super) fn put(&self, job: Job, hold: Hold, to: Groups, command: &[u8], until: Instant) -> Result<u32, Refused> {
        let Some(first) = to.iter().next() else { return Err(Refused::NoGroups) };
        if self.ended.load(Ordering::Acquire) || self.is_closing() {
            return Err(Refused::ClientEnded);
        }
        let at = self.free.pop().ok_or(Refused::Busy(first))?;
        {
            let mut state = self.lock(at);
            state.bytes.clear();
            state.bytes.extend_from_slice(command);
            state.replies.clear();
            (state.phase, state.job, state.to, state.until) = (Phase::Queued, job, to, Some(until));
            (state.outcome, state.is_named, state.waker, state.deserted) = (None, false, None, false);
            state.hold = hold;
        }
        put(&self.queue, at);
        self.ring();
        // The serving thread may have ended after the check above without seeing this call.
        if self.ended.load(Ordering::Acquire) {
            self.end_all();
        }
        Ok(at)
    }

    pub(super) fn mail(&self) -> &Mail {
        &self.mail
    }

    /// Orders later calls after this time.
    pub(super) fn observe(&self, time: u64) {
        // Relaxed is sufficient: later calls pass through `queue`, and the thread that pops them from there also sees
        // this store.
        self.observed.fetch_max(time, Ordering::Relaxed);
    }

    /// Returns the latest order time that is known here. It may lag behind the serving thread by some milliseconds.
    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed).max(self.observed())
    }

    /// Returns the order time after which all later calls are placed.
    pub(super) fn observed(&self) -> u64 {
        self.observed.load(Ordering::Relaxed)
    }

    /// Publishes the latest order time that the serving thread knows.
    pub(super) fn note_heard(&self, time: u64) {
        self.heard.store(time, Ordering::Relaxed);
    }

    /// Wakes the serving thread if it sleeps.
    fn ring(&self) {
        // Pairs with the fence in `may_sleep`: either this thread sees that the serving thread sleeps, or that thread
        // sees the call.
        fence(Ordering::SeqCst);
        if self.bell.sleeps.load(Ordering::Relaxed) && self.bell.sleeps.swap(false, Ordering::Relaxed) {
            match &self.bell.clapper {
                // If the counter is full, the write fails, and the thread wakes anyway.
                Clapper::Event(event) => _ = rustix::io::write(event, &1_u64.to_ne_bytes()),
                Clapper::Node(keeper) => keeper.wake(),
            }
        }
    }

    /// Returns the outcome of a call that is done. Otherwise registers `waker`.
    pub(super) fn poll(&self, at: u32, waker: &Waker) -> Option<Result<Position, CallError>> {
        let mut state = self.lock(at);
        let outcome = state.outcome.take();
        let mut before = None;
        if outcome.is_none() && !state.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            before = state.waker.replace(waker.clone());
        }
        drop(state);
        drop(before);
        outcome
    }

    /// Returns `Ok` if the call is held now and thus has its ticket, or the error if it never will be. Otherwise
    /// registers `waker`.
    pub(super) fn poll_held(&self, at: u32, waker: &Waker) -> Option<Result<(), CallError>> {
        let mut state = self.lock(at);
        if state.phase == Phase::Held {
            return Some(Ok(()));
        }
        let outcome = state.outcome.take();
        let mut before = None;
        if outcome.is_none() {
            before = state.waker.replace(waker.clone());
        }
        drop(state);
        drop(before);
        outcome.map(|outcome| outcome.map(drop))
    }

    /// Waits until a call is held.
    pub(super) fn wait_held(&self, at: u32) -> Result<(), CallError> {
        let mut state = self.lock(at);
        loop {
            if state.phase == Phase::Held {
                return Ok(());
            }
            if let Some(outcome) = state.outcome.take() {
                return outcome.map(drop);
            }
            if self.is_own_thread() {
                return Err(Self::give_up(&mut state, Refused::WouldDeadlock, Why::WouldDeadlock));
            }
            state = self.slots[at as usize].done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Releases a held call: it is sent if `sends`, and otherwise given up.
    pub(super) fn release_hold(&self, at: u32, sends: bool) {
        let mut state = self.lock(at);
        state.hold = if sends { Hold::Over } else { Hold::GivenUp };
        if state.phase == Phase::Held {
            state.phase = Phase::Queued;
            put(&self.released, at);
        }
        drop(state);
        self.ring();
        if self.ended.load(Ordering::Acquire) {
            self.end_all();
        }
    }

    /// Waits for the outcome of a call, until `until` at the latest; with `None`, without a limit. A call that has not
    /// been sent by then is never sent.
    pub(super) fn wait(&self, at: u32, until: Option<Instant>) -> Result<Position, CallError> {
        let slot = &self.slots[at as usize];
        let mut state = self.lock(at);
        loop {
            if let Some(outcome) = state.outcome.take() {
                return outcome;
            }
            if self.is_own_thread() {
                return Err(Self::give_up(&mut state, Refused::WouldDeadlock, Why::WouldDeadlock));
            }
            let Some(until) = until else {
                state = slot.done.wait(state).unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Self::give_up(&mut state, Refused::NotSent, Why::TimedOut));
            }
            state = slot.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Ends the wait for a call. A call that was sent continues.
    fn give_up(state: &mut CallState, unsent: Refused, sent: Why) -> CallError {
        if state.phase == Phase::Sent {
            return state.lost(sent);
        }
        // The serving thread sees that no caller waits for the call, and does not send it.
        state.until = None;
        state.unsent(unsent)
    }

    /// Returns the ticket of a call, or `None` if it has none.
    pub(super) fn ticket(&self, at: u32) -> Option<Ticket> {
        let state = self.lock(at);
        state.is_named.then(|| Ticket(state.ticket.clone()))
    }

    /// Returns the replies of a call that is done. The caller must return the buffers through
    /// [`give_back`](Calls::give_back).
    pub(super) fn take_replies(&self, at: u32) -> (Vec<u8>, Vec<(Group, Range<usize>)>) {
        let mut state = self.lock(at);
        (std::mem::take(&mut state.bytes), std::mem::take(&mut state.replies))
    }

    /// Records that the caller has dropped the call. The call itself continues.
    pub(super) fn desert(&self, at: u32) {
        let mut state = self.lock(at);
        if state.phase == Phase::Done {
            self.release(at, &mut state);
        } else {
            state.deserted = true;
            let waker = state.waker.take();
            drop(state);
            drop(waker);
        }
    }

    /// Returns the buffers that the caller took with the outcome, and frees the slot.
    pub(super) fn give_back(&self, at: u32, bytes: Vec<u8>, replies: Vec<(Group, Range<usize>)>) {
        let mut state = self.lock(at);
        (state.bytes, state.replies) = (bytes, replies);
        self.release(at, &mut state);
    }

    fn release(&self, at: u32, state: &mut CallState) {
        (state.phase, state.outcome, state.waker) = (Phase::Free, None, None);
        put(&self.free, at);
    }

    /// Accepts no more calls. The serving thread ends the session after it has served the remaining ones. Does nothing
    /// after [`leave`](Calls::leave).
    pub(super) fn close(&self) {
        self.close_as(ENDS);
    }

    /// Accepts no more calls, and keeps the session. Returns `false`, and does nothing, after [`close`](Calls::close).
    pub(super) fn leave(&self) -> bool {
        self.close_as(LEAVES)
    }

    /// Sets how the client closes, if that is not decided yet. Returns whether the client now closes in this way.
    fn close_as(&self, how: u8) -> bool {
        let before = self.closing.compare_exchange(OPEN, how, Ordering::AcqRel, Ordering::Acquire);
        self.ring();
        before.is_ok() || before == Err(how)
    }

    /// Returns the session that the serving thread published last.
    pub(super) fn session(&self) -> Session {
        Session(self.session.lock().unwrap_or_else(PoisonError::into_inner).0.clone())
    }

    /// Returns the moment until which the session is certain to live, as the serving thread published it last.
    pub(super) fn lives_until(&self) -> Option<Instant> {
        // A client that has ended no longer renews the session. It may have ended because another process resumed the
        // session.
        let until = self.session.lock().unwrap_or_else(PoisonError::into_inner).1;
        until.filter(|_| !self.ended.load(Ordering::Acquire))
    }

    /// Returns the number of free slots.
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    // --------------------------------------------------------------------------------------------- the serving thread

    /// Publishes the session after a change.
    pub(super) fn know(&self, session: session::SessionKey, until: Option<Instant>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = (session, until);
    }

    /// Returns the next call, in the order in which calls were made.
    pub(super) fn take(&self) -> Option<u32> {
        self.queue.pop()
    }

    /// Appends to `to` the held calls that were released or given up.
    pub(super) fn take_released(&self, to: &mut VecDeque<u32>) {
        while let Some(at) = self.released.pop() {
            to.push_back(at);
        }
    }

    /// Returns whether no more calls are accepted and all accepted ones were taken.
    pub(super) fn is_drained(&self) -> bool {
        // A thread that sees that the table is closing also sees every call that was made before.
        self.is_closing() && self.queue.is_empty() && self.released.is_empty()
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire) != OPEN
    }

    /// Returns whether the session is kept for a later process.
    pub(super) fn is_left(&self) -> bool {
        self.closing.load(Ordering::Acquire) == LEAVES
    }

    /// Returns whether the serving thread may sleep: no call is queued, and every later call wakes it. A node arms its
    /// fabric before this check.
    pub(super) fn may_sleep(&self) -> bool {
        self.bell.sleeps.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let may = self.queue.is_empty() && self.released.is_empty() && !self.is_closing();
        if !may {
            self.bell.sleeps.store(false, Ordering::Relaxed);
        }
        may
    }

    /// Records that the serving thread is awake.
    pub(super) fn woke(&self) {
        self.bell.sleeps.store(false, Ordering::Relaxed);
        if let Clapper::Event(event) = &self.bell.clapper {
            // The read fails if another event than the eventfd woke the thread.
            let _ = rustix::io::read(event, &mut [0; 8]);
        }
    }

    /// Returns the eventfd that becomes readable when a call arrives while the client's own thread sleeps. Returns
    /// `None` if a node serves the calls.
    pub(super) fn bell(&self) -> Option<BorrowedFd<'_>> {
        if let Clapper::Event(event) = &self.bell.clapper { Some(event.as_fd()) } else { None }
    }

    /// Marks a call as held: it has its ticket, and waits for its caller's decision.
    pub(super) fn hold(&self, at: u32, mut state: MutexGuard<'_, CallState>) {
        (state.phase, state.is_named) = (Phase::Held, true);
        self.wake(at, state);
    }

    /// Delivers the outcome of a call.
    pub(super) fn finish(&self, at: u32, mut state: MutexGuard<'_, CallState>, outcome: Result<Position, CallError>) {
        state.phase = Phase::Done;
        if state.deserted {
            return self.release(at, &mut state);
        }
        state.outcome = Some(outcome);
        self.wake(at, state);
    }

    /// Wakes the caller that waits for a call.
    fn wake(&self, at: u32, mut state: MutexGuard<'_, CallState>) {
        let waker = state.waker.take();
        drop(state);
        self.slots[at as usize].done.notify_one();
        if let Some(waker) = waker {
            wake(waker);
        }
    }

    /// Ends all calls, because the serving thread has ended.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.end_all();
        self.mail.end();
        *self.end.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.end.1.notify_all();
    }

    fn end_all(&self) {
        while self.queue.pop().or_else(|| self.released.pop()).is_some() {}
        for at in 0..self.slots.len() as u32 {
            let state = self.lock(at);
            let outcome = match state.phase {
                Phase::Queued | Phase::Held => state.unsent(Refused::ClientEnded),
                Phase::Sent => state.lost(Why::ClientEnded),
                Phase::Free | Phase::Done => continue,
            };
            self.finish(at, state, Err(outcome));
        }
    }
}

fn put(queue: &ArrayQueue<u32>, at: u32) {
    let full = queue.push(at);
    debug_assert!(full.is_ok(), "each number lies in one queue at most");
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::sync::{Arc, Mutex};
    use std::task::{Wake, Waker};
    use std::thread;
    use std::time::{Duration, Instant};

    use stentor_multicast::GroupId;

    use super::super::Call;
    use super::*;

    /// The last handle of a task that no runtime polls any more. Waking it drops its call.
    struct Last(Mutex<Option<Call>>);

    impl Wake for Last {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().expect("the lock is not poisoned").take());
        }
    }

    struct Panics;

    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker panics");
        }
    }

    fn put_one(calls: &Calls) -> u32 {
        let until = Instant::now() + Duration::from_secs(60);
        calls.put(Job::Request(Ask::Command), Hold::Not, Group(GroupId(0)).into(), &[], until).expect("there is room")
    }

    #[test]
    fn a_waker_may_drop_its_call() {
        let calls = Arc::new(Calls::new(1, None).expect("an eventfd"));
        let slot = put_one(&calls);
        let waker = Waker::from(Arc::new(Last(Mutex::new(Some(Call::made(Arc::clone(&calls), slot))))));
        assert!(calls.poll(slot, &waker).is_none());
        drop(waker);
        let (ends, ended) = channel();
        let served = Arc::clone(&calls);
        thread::spawn(move || {
            served.end();
            let _ = ends.send(());
        });
        ended.recv_timeout(Duration::from_secs(5)).expect("the thread ends the calls in time");
        assert_eq!(calls.room(), 1);
    }

    #[test]
    fn a_call_wakes_a_sleeping_node_once() {
        let woken = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&woken);
        let wake = Arc::new(move || _ = count.fetch_add(1, Ordering::Relaxed));
        let keeper = Keeper { is_own_thread: Arc::new(|| false), wake };
        let calls = Calls::new(4, Some(keeper)).expect("a table with a keeper creates no eventfd");
        put_one(&calls);
        assert!(!calls.may_sleep(), "a call is queued");
        put_one(&calls);
        assert_eq!(woken.load(Ordering::Relaxed), 0, "the node is awake");
        while calls.take().is_some() {}
        assert!(calls.may_sleep() && calls.bell().is_none());
        put_one(&calls);
        put_one(&calls);
        assert_eq!(woken.load(Ordering::Relaxed), 1, "the first call wakes the node");
        while calls.take().is_some() {}
        calls.woke();
        calls.close();
        assert_eq!(woken.load(Ordering::Relaxed), 1, "the node is awake");
    }

    #[test]
    fn a_waker_that_panics_harms_no_other_call() {
        let calls = Calls::new(2, None).expect("an eventfd");
        let (first, second) = (put_one(&calls), put_one(&calls));
        assert!(calls.poll(first, &Waker::from(Arc::new(Panics))).is_none());
        calls.end();
        calls.wait(second, Some(Instant::now())).expect_err("no thread serves the call");
        assert!(calls.lock(second).phase == Phase::Done);
    }
}
