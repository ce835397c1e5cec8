//! The calls of a client, between the threads that make them and the one that serves them.
//!
//! # States of a slot
//! | state | who has it | next |
//! |---|---|---|
//! | free | its number lies in `free` | *queued*, by a caller |
//! | queued | its number lies in `queue` or, after it was held, in `released`; then with the serving thread | *sent*; *held*, if it was asked to be; *done* if it is refused or its wait has ended |
//! | held | the caller, which has its ticket | *queued* again, to be sent or to be given up; *done* if that takes too long |
//! | sent | the serving thread | *done*, with an outcome |
//! | done | the caller, which takes the outcome | *free* |
//!
//! # Invariants
//! - A number lies in one of the three queues, or one thread has it. So no queue is ever full.
//! - A slot becomes free when its call is done *and* its caller has gone or has dropped the answer. A caller that goes earlier leaves the
//!   slot deserted, and whoever brings the outcome frees it.
//! - All changes of a slot are made under its lock. The lock is free but for the moment in which an outcome is handed over.
//! - Wakers are foreign code, which may drop a call: they are woken and dropped outside the lock. One that panics harms no other call.
//! - Buffers stay with their slots, so a call allocates nothing once its slot has been used for one as long.

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
use super::wake::wake;
use super::{Ask, CallError, Consistency, Groups, Refused, Session, Ticket, Why};
use crate::{Group, Position};

/// Calls still come.
const OPEN: u8 = 0;
/// No call comes any more, and the session ends.
const ENDS: u8 = 1;
/// No call comes any more, and the session goes on for a later process.
const LEAVES: u8 = 2;

/// How far a call is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Free,
    Queued,
    Held,
    Sent,
    Done,
}

/// Whether a command waits for its caller's word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Hold {
    /// It is sent when it is its turn.
    Not,
    /// It is numbered when it is its turn, and sent when the caller says so.
    Until,
    /// The caller has said so.
    Over,
    /// The caller has given it up.
    GivenUp,
}

/// What is asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Job {
    /// To apply or answer what is in `bytes`.
    Request(Ask),
    /// To answer what is in `bytes`, outside the order.
    Read(Consistency),
    /// To settle an earlier command.
    Resolve(Box<Ticket>),
}

/// A call, under its slot's lock.
#[derive(Debug)]
pub(super) struct CallState {
    pub(super) phase: Phase,
    pub(super) job: Job,
    pub(super) hold: Hold,
    pub(super) to: Groups,
    /// The command; then the replies, one behind the other.
    pub(super) bytes: Vec<u8>,
    /// Where the reply of each group lies in `bytes`.
    pub(super) replies: Vec<(Group, Range<usize>)>,
    pub(super) outcome: Option<Result<Position, CallError>>,
    /// What names it, once it was sent. Its buffer stays with the slot.
    pub(super) ticket: session::Ticket,
    /// Whether it was sent, so that the ticket is its own.
    pub(super) is_named: bool,
    /// The moment after which nobody waits any more.
    pub(super) until: Option<Instant>,
    waker: Option<Waker>,
    /// Whether the caller has gone.
    deserted: bool,
}

impl CallState {
    /// Returns how a call ends that was not sent, and never will be. Of a question that says nothing of the command that it is about.
    pub(super) fn unsent(&self, why: Refused) -> CallError {
        match &self.job {
            Job::Request(_) | Job::Read(_) => CallError::NotApplied(why),
            Job::Resolve(ticket) => CallError::Unknown(Ticket::clone(ticket), Why::NotAsked(why)),
        }
    }

    /// Returns how a call ends that was sent, and whose outcome does not come. A read has changed nothing.
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
    /// Whether the serving thread sleeps, or is about to.
    sleeps: AtomicBool,
}

/// What ends the serving thread's sleep.
#[derive(Debug)]
enum Clapper {
    /// It is the client's own thread, which sleeps on this.
    Event(OwnedFd),
    /// It turns a node.
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
    /// Calls that were held, and go on or are given up.
    released: ArrayQueue<u32>,
    bell: Bell,
    /// Whether calls still come, and what becomes of the session when no more do: [`OPEN`], [`ENDS`] or [`LEAVES`].
    closing: AtomicU8,
    /// The session, and the moment until which it surely lives.
    session: Mutex<(session::SessionKey, Option<Instant>)>,
    /// Later commands come after this time of the order. Written by callers, rarely.
    observed: AtomicU64,
    /// The time of the order that the serving thread had heard of a moment ago.
    heard: AtomicU64,
    mail: Mail,
    /// Whether the serving thread serves no more.
    ended: AtomicBool,
    /// Tells whoever waits for that.
    end: (Mutex<bool>, Condvar),
}

impl std::fmt::Debug for Calls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Calls").field("slots", &self.slots.len()).field("room", &self.room()).finish_non_exhaustive()
    }
}

impl Calls {
    /// Makes room for so many calls at a time, which the keeper's node serves, or a thread of the client's own.
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

    /// Returns whether this thread would wait for itself, if it waited for a call.
    pub(super) fn is_own_thread(&self) -> bool {
        matches!(&self.bell.clapper, Clapper::Node(keeper) if keeper.is_own_thread())
    }

    /// Waits until the serving thread serves no more, or until then. Returns whether it serves no more.
    pub(super) fn wait_for_end(&self, until: Instant) -> bool {
        let (ended, told) = &self.end;
        let left = until.saturating_duration_since(Instant::now());
        let ended = ended.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = told.wait_timeout_while(ended, left, |ended| !*ended);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }

    pub(super) fn lock(&self, at: u32) -> MutexGuard<'_, CallState> {
        // A lock is poisoned if a waker or an allocation panics under it; the state is whole then.
        self.slots[at as usize].state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ------------------------------------------------------------------------------------------------------- callers

    /// Leaves a call for the serving thread. Returns its slot.
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
        // Who ended meanwhile may not have seen it.
        if self.ended.load(Ordering::Acquire) {
            self.end_all();
        }
        Ok(at)
    }

    pub(super) fn mail(&self) -> &Mail {
        &self.mail
    }

    /// Has later calls come after this time.
    pub(super) fn observe(&self, time: u64) {
        // Whoever calls afterwards leaves the call in the queue, and who takes it there sees this, too.
        self.observed.fetch_max(time, Ordering::Relaxed);
    }

    /// Returns the time of the order that is known here, but for the last moments.
    pub(super) fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed).max(self.observed())
    }

    /// Returns the time after which calls come that were made by now.
    pub(super) fn observed(&self) -> u64 {
        self.observed.load(Ordering::Relaxed)
    }

    /// Notes the time of the order that the serving thread has heard of.
    pub(super) fn note_heard(&self, time: u64) {
        self.heard.store(time, Ordering::Relaxed);
    }

    /// Wakes the serving thread if it sleeps.
    fn ring(&self) {
        // Pairs with the fence in `may_sleep`: either this sees that the thread sleeps, or the thread sees the call.
        fence(Ordering::SeqCst);
        if self.bell.sleeps.load(Ordering::Relaxed) && self.bell.sleeps.swap(false, Ordering::Relaxed) {
            match &self.bell.clapper {
                // A full counter wakes it, too.
                Clapper::Event(event) => _ = rustix::io::write(event, &1_u64.to_ne_bytes()),
                Clapper::Node(keeper) => keeper.wake(),
            }
        }
    }

    /// Takes the outcome of a call that is done; otherwise leaves `waker` to be woken.
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

    /// Returns whether a call is held now, so that it has its ticket, or why it never will be. Otherwise leaves `waker` to be woken.
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

    /// The caller gives its word on a call that is held.
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

    /// Waits for the outcome of a call, until then at the latest; `None` waits as long as it takes. A call that was not sent by then never
    /// is.
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
                let busy = state.to.iter().next().map_or(Refused::NoGroups, Refused::Busy);
                return Err(Self::give_up(&mut state, busy, Why::TimedOut));
            }
            state = slot.done.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The wait for a call ends, which goes on if it was sent.
    fn give_up(state: &mut CallState, unsent: Refused, sent: Why) -> CallError {
        if state.phase == Phase::Sent {
            return state.lost(sent);
        }
        // The serving thread sees that nobody waits for it, and does not send it.
        state.until = None;
        state.unsent(unsent)
    }

    /// Returns what names a call; `None` if it was not sent.
    pub(super) fn ticket(&self, at: u32) -> Option<Ticket> {
        let state = self.lock(at);
        state.is_named.then(|| Ticket(state.ticket.clone()))
    }

    /// Takes the replies of a call that is done; [`give_back`](Calls::give_back) is due for them.
    pub(super) fn take_replies(&self, at: u32) -> (Vec<u8>, Vec<(Group, Range<usize>)>) {
        let mut state = self.lock(at);
        (std::mem::take(&mut state.bytes), std::mem::take(&mut state.replies))
    }

    /// The caller has gone. What was under way goes on.
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

    /// The caller gives the buffers back, which it took with the outcome.
    pub(super) fn give_back(&self, at: u32, bytes: Vec<u8>, replies: Vec<(Group, Range<usize>)>) {
        let mut state = self.lock(at);
        (state.bytes, state.replies) = (bytes, replies);
        self.release(at, &mut state);
    }

    fn release(&self, at: u32, state: &mut CallState) {
        (state.phase, state.outcome, state.waker) = (Phase::Free, None, None);
        put(&self.free, at);
    }

    /// No call comes any more: the serving thread ends the session when it has served those that there are. Does nothing after
    /// [`leave`](Calls::leave).
    pub(super) fn close(&self) {
        self.close_as(ENDS);
    }

    /// The same, and the session is not ended. Returns `false`, and does nothing, after [`close`](Calls::close).
    pub(super) fn leave(&self) -> bool {
        self.close_as(LEAVES)
    }

    /// The first word counts. Returns whether it was this one.
    fn close_as(&self, how: u8) -> bool {
        let before = self.closing.compare_exchange(OPEN, how, Ordering::AcqRel, Ordering::Acquire);
        self.ring();
        before.is_ok() || before == Err(how)
    }

    /// Returns the session, as the serving thread has told it.
    pub(super) fn session(&self) -> Session {
        Session(self.session.lock().unwrap_or_else(PoisonError::into_inner).0.clone())
    }

    /// Returns the moment until which the session surely lives, as the serving thread has told it.
    pub(super) fn lives_until(&self) -> Option<Instant> {
        // One that has ended renews it no more, and may have ended because another process has it.
        let until = self.session.lock().unwrap_or_else(PoisonError::into_inner).1;
        until.filter(|_| !self.ended.load(Ordering::Acquire))
    }

    /// Returns the number of calls for which there is room.
    pub(super) fn room(&self) -> usize {
        self.free.len()
    }

    // --------------------------------------------------------------------------------------------- the serving thread

    /// Tells the session, which has changed.
    pub(super) fn know(&self, session: session::SessionKey, until: Option<Instant>) {
        *self.session.lock().unwrap_or_else(PoisonError::into_inner) = (session, until);
    }

    /// Takes what came, in the order in which it came.
    pub(super) fn take(&self) -> Option<u32> {
        self.queue.pop()
    }

    /// Moves to `to` what was held and goes on, or is given up.
    pub(super) fn take_released(&self, to: &mut VecDeque<u32>) {
        while let Some(at) = self.released.pop() {
            to.push_back(at);
        }
    }

    /// Returns whether no call comes any more, and all that came were taken.
    pub(super) fn is_drained(&self) -> bool {
        // The calls that were made before it was closed are seen by whoever sees that.
        self.is_closing() && self.queue.is_empty() && self.released.is_empty()
    }

    /// Returns the number of slots.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire) != OPEN
    }

    /// Returns whether the session goes on without this client.
    pub(super) fn is_left(&self) -> bool {
        self.closing.load(Ordering::Acquire) == LEAVES
    }

    /// Returns whether nothing came, and whoever leaves a call from here on rings. A node has armed before this.
    pub(super) fn may_sleep(&self) -> bool {
        self.bell.sleeps.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        let may = self.queue.is_empty() && self.released.is_empty() && !self.is_closing();
        if !may {
            self.bell.sleeps.store(false, Ordering::Relaxed);
        }
        may
    }

    /// The serving thread is awake.
    pub(super) fn woke(&self) {
        self.bell.sleeps.store(false, Ordering::Relaxed);
        if let Clapper::Event(event) = &self.bell.clapper {
            // Nothing there: it was woken by something else.
            let _ = rustix::io::read(event, &mut [0; 8]);
        }
    }

    /// Readable when a call came while the client's own thread slept. `None`: a node serves the calls.
    pub(super) fn bell(&self) -> Option<BorrowedFd<'_>> {
        if let Clapper::Event(event) = &self.bell.clapper { Some(event.as_fd()) } else { None }
    }

    /// A call has its ticket, and waits for its caller's word.
    pub(super) fn hold(&self, at: u32, mut state: MutexGuard<'_, CallState>) {
        (state.phase, state.is_named) = (Phase::Held, true);
        self.wake(at, state);
    }

    /// Hands an outcome over.
    pub(super) fn finish(&self, at: u32, mut state: MutexGuard<'_, CallState>, outcome: Result<Position, CallError>) {
        state.phase = Phase::Done;
        if state.deserted {
            return self.release(at, &mut state);
        }
        state.outcome = Some(outcome);
        self.wake(at, state);
    }

    /// Wakes whoever waits for a call.
    fn wake(&self, at: u32, mut state: MutexGuard<'_, CallState>) {
        let waker = state.waker.take();
        drop(state);
        self.slots[at as usize].done.notify_one();
        if let Some(waker) = waker {
            wake(waker);
        }
    }

    /// The serving thread has ended: whatever is under way ends, too.
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

    /// The last handle of a task that nobody runs any more: to wake it drops its call.
    struct Last(Mutex<Option<Call>>);

    impl Wake for Last {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().expect("it is not poisoned").take());
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
        ended.recv_timeout(Duration::from_secs(5)).expect("it ends");
        assert_eq!(calls.room(), 1);
    }

    #[test]
    fn a_call_wakes_a_node_once_if_that_may_sleep() {
        let woken = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&woken);
        let wake = Arc::new(move || _ = count.fetch_add(1, Ordering::Relaxed));
        let keeper = Keeper { is_own_thread: Arc::new(|| false), wake };
        let calls = Calls::new(4, Some(keeper)).expect("it needs nothing");
        put_one(&calls);
        assert!(!calls.may_sleep(), "a call came");
        put_one(&calls);
        assert_eq!(woken.load(Ordering::Relaxed), 0, "it is awake");
        while calls.take().is_some() {}
        assert!(calls.may_sleep() && calls.bell().is_none());
        put_one(&calls);
        put_one(&calls);
        assert_eq!(woken.load(Ordering::Relaxed), 1, "the first call wakes it");
        while calls.take().is_some() {}
        calls.woke();
        calls.close();
        assert_eq!(woken.load(Ordering::Relaxed), 1, "it is awake");
    }

    #[test]
    fn a_waker_that_panics_harms_no_other_call() {
        let calls = Calls::new(2, None).expect("an eventfd");
        let (first, second) = (put_one(&calls), put_one(&calls));
        assert!(calls.poll(first, &Waker::from(Arc::new(Panics))).is_none());
        calls.end();
        calls.wait(second, Some(Instant::now())).expect_err("nobody serves it");
        assert!(calls.lock(second).phase == Phase::Done);
    }
}
