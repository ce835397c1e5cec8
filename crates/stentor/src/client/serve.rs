//! The service loop of a client's calls. A thread of the [`Client`](super::Client) or, for an embedded client, the
//! node's loop runs it.
//!
//! # Invariants
//! - Calls to one group are sent in the order in which they were made. A call that cannot be sent yet delays later
//!   calls that share a group with it, and no other calls.
//! - A call that was held has its slot in the window already, so it is sent before calls that still need a slot.
//! - The slot of a sent call stays in `under_way`, `reads` or `questions` until its outcome arrives or it times out.
//! - Each call ends within the client's patience, plus a few milliseconds.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use stentor_fabric::Idle;
use stentor_multicast::{GroupId, GroupSet};
use stentor_session as session;

use super::calls::{CallState, Calls, Hold, Job, Phase};
use super::core::{Core, Finished, Name};
use super::error::Problem;
use super::{CallError, Outcome, Refused, Why};
use crate::Group;
use crate::runtime::FabricDiagnostics;

/// Interval between checks for calls that have timed out.
const LOOK: Duration = Duration::from_millis(1);
/// A table entry without a call.
const NONE: (u64, u32) = (u64::MAX, u32::MAX);

/// A call that was not sent yet.
#[derive(Clone, Copy)]
struct Pending {
    slot: u32,
    /// The destination of a call to only one group. While that group is blocked, the call is skipped without taking its
    /// lock.
    only: Option<GroupId>,
}

/// A client with the calls that it serves.
pub(super) struct Server<F: FabricDiagnostics> {
    core: Core<F>,
    calls: Arc<Calls>,
    /// Calls that were not sent yet, in order.
    pending: VecDeque<Pending>,
    /// Calls that were held and are to be sent or given up, in order.
    released: VecDeque<u32>,
    /// All groups of the cluster.
    groups: GroupSet,
    /// The request number and the slot of each call in flight, indexed by request number modulo the window.
    under_way: Vec<(u64, u32)>,
    /// The name and the slot of each read outside the order, indexed by name modulo the window.
    reads: Vec<(u64, u32)>,
    /// Calls that resolve commands: the command and the slot of the call.
    questions: Vec<(Name, u32)>,
    /// Number of calls that were sent and are not done.
    waiting: usize,
    /// Value of [`Core::changes`] when the session was published last.
    changes: u64,
    /// Times at which to check a slot for a timeout, with at most one entry per slot.
    ends: BinaryHeap<Reverse<(Instant, u32)>>,
    /// For each slot: `true` if the slot has an entry in `ends`.
    is_noted: Vec<bool>,
    next_look: Instant,
}

impl<F: FabricDiagnostics> Server<F> {
    pub(super) fn new(core: Core<F>, calls: Arc<Calls>) -> Self {
        Server {
            under_way: vec![NONE; core.window()],
            reads: vec![NONE; core.window()],
            groups: core.all_groups().into_iter().collect(),
            ends: BinaryHeap::with_capacity(calls.slots()),
            is_noted: vec![false; calls.slots()],
            core,
            calls,
            pending: VecDeque::new(),
            released: VecDeque::new(),
            questions: Vec::new(),
            waiting: 0,
            changes: u64::MAX,
            next_look: Instant::now(),
        }
    }

    /// Serves calls until the client is closed and drained, or fails.
    pub(super) fn run(&mut self) -> Result<(), Problem> {
        loop {
            let worked = self.turn()?;
            if self.is_drained() {
                return if self.calls.is_left() { Ok(()) } else { self.core.close() };
            }
            match self.core.idle(worked) {
                Idle::Poll | Idle::Arm => {}
                Idle::Sleep => self.sleep()?,
            }
        }
    }

    /// Runs one round: takes new calls, sends what can be sent, and delivers outcomes. Returns whether there was any
    /// work.
    #[inline]
    pub(super) fn turn(&mut self) -> Result<bool, Problem> {
        self.take();
        let sent = self.send();
        let worked = self.round()? | sent;
        let now = Instant::now();
        if now >= self.next_look {
            self.next_look = now + LOOK;
            self.calls.note_heard(self.core.heard());
            self.end_late(now);
        }
        Ok(worked)
    }

    /// Returns whether no more calls are accepted and all accepted ones have ended.
    pub(super) fn is_drained(&self) -> bool {
        self.pending.is_empty() && self.released.is_empty() && self.waiting == 0 && self.calls.is_drained()
    }

    /// Starts to end the session. Returns the deadline of the wait for its end, or `None` if there is no session to
    /// end.
    pub(super) fn begin_close(&mut self) -> Option<Instant> {
        self.core.begin_close().then(|| Instant::now() + self.core.farewell())
    }

    /// Returns whether the groups have answered the session's end.
    pub(super) fn has_closed(&mut self) -> bool {
        self.core.has_closed()
    }

    /// Takes the calls that have arrived.
    fn take(&mut self) {
        while let Some(slot) = self.calls.take() {
            let state = self.calls.lock(slot);
            let only = if let [group] = state.to.ids() { Some(*group) } else { None };
            self.pending.push_back(Pending { slot, only });
            if let Some(until) = state.until
                && !std::mem::replace(&mut self.is_noted[slot as usize], true)
            {
                self.ends.push(Reverse((until, slot)));
            }
        }
        self.calls.take_released(&mut self.released);
        self.core.observe(self.calls.observed());
    }

    /// Sends the calls that can be sent. Returns whether it sent any.
    fn send(&mut self) -> bool {
        let (mut sent, mut at) = (false, 0);
        let mut blocked = GroupSet::default();
        while at < self.released.len() {
            match self.send_one(self.released[at], &mut blocked) {
                Some(went) => {
                    sent |= went;
                    self.released.remove(at);
                }
                None => at += 1,
            }
        }
        at = 0;
        while at < self.pending.len() && !self.groups.is_subset(&blocked) {
            let Pending { slot, only } = self.pending[at];
            let waits = only.is_some_and(|group| blocked.contains(group));
            match if waits { None } else { self.send_one(slot, &mut blocked) } {
                Some(went) => {
                    sent |= went;
                    self.pending.remove(at);
                }
                None => at += 1,
            }
        }
        sent
    }

    /// Sends a call. Returns whether it was sent, or `None` if the call has to wait; its groups are then blocked.
    fn send_one(&mut self, slot: u32, blocked: &mut GroupSet) -> Option<bool> {
        let Server { core, calls, under_way, reads, questions, waiting, .. } = self;
        let mut state = calls.lock(slot);
        let waits = state.hold != Hold::GivenUp && state.to.ids().iter().any(|group| blocked.contains(*group));
        let started = if waits { Err(Refused::Busy(Group(state.to.ids()[0]))) } else { start(core, &mut state) };
        match started {
            Ok(()) if state.hold == Hold::Until => calls.hold(slot, state),
            Ok(()) => {
                let name = Name::of(&state.ticket);
                match state.job {
                    Job::Request(_) => {
                        under_way[name.request as usize % core.window()] = (name.request, slot);
                    }
                    Job::Read(_) => reads[name.request as usize % core.window()] = (name.request, slot),
                    Job::Resolve(_) => questions.push((name, slot)),
                }
                state.is_named = !matches!(state.job, Job::Read(_));
                state.phase = Phase::Sent;
                *waiting += 1;
                return Some(true);
            }
            Err(Refused::Busy(_) | Refused::Unavailable(_)) => {
                state.to.ids().iter().for_each(|group| blocked.insert(*group));
                return None;
            }
            Err(why) => {
                give_place_back(core, &state);
                let unsent = state.unsent(why);
                calls.finish(slot, state, Err(unsent));
            }
        }
        Some(false)
    }

    fn round(&mut self) -> Result<bool, Problem> {
        let Server { core, calls, under_way, reads, questions, waiting, changes, .. } = self;
        let (window, present) = (core.window(), core.name_of(0));
        let worked = core.round(|finished| {
            if finished.name.is_read() {
                let own = &mut reads[finished.name.request as usize % window];
                if own.0 == finished.name.request {
                    let (_, slot) = std::mem::replace(own, NONE);
                    *waiting -= 1;
                    hand_over(calls, slot, &finished);
                }
                return;
            }
            let own = &mut under_way[finished.name.request as usize % window];
            let is_own = Name { request: 0, ..finished.name } == present;
            // The outcome may answer a question about an earlier request, whose place in `under_way` a later request
            // now has.
            if is_own && own.0 == finished.name.request {
                let (_, slot) = std::mem::replace(own, NONE);
                *waiting -= 1;
                hand_over(calls, slot, &finished);
            }
            questions.retain(|(name, slot)| {
                let is_meant = *name == finished.name;
                if is_meant {
                    *waiting -= 1;
                    hand_over(calls, *slot, &finished);
                }
                !is_meant
            });
        });
        if core.has_notifications() {
            calls.mail().put(|| core.take_notification());
        }
        if *changes != core.changes() {
            *changes = core.changes();
            calls.know(core.key(), core.lives_until());
        }
        worked
    }

    /// Ends the calls that have timed out.
    fn end_late(&mut self, now: Instant) {
        while let Some(Reverse((until, slot))) = self.ends.peek().copied()
            && until <= now
        {
            self.ends.pop();
            match self.end_if_late(slot, now) {
                Some(again) => self.ends.push(Reverse((again, slot))),
                None => self.is_noted[slot as usize] = false,
            }
        }
    }

    /// Ends a call if it has timed out. Returns when to check its slot again.
    fn end_if_late(&mut self, slot: u32, now: Instant) -> Option<Instant> {
        let Server { core, calls, under_way, reads, questions, waiting, pending, released, .. } = self;
        let state = calls.lock(slot);
        if matches!(state.phase, Phase::Free | Phase::Done) {
            return None;
        }
        if let Some(until) = state.until.filter(|until| *until > now) {
            return Some(until);
        }
        let outcome = match state.phase {
            Phase::Queued => {
                let known = pending.len() + released.len();
                pending.retain(|pending| pending.slot != slot);
                released.retain(|released| *released != slot);
                if pending.len() + released.len() == known {
                    // The call is still on its way through one of the queues.
                    return Some(now + LOOK);
                }
                give_place_back(core, &state);
                state.unsent(core.why_waiting(state.to.ids()))
            }
            Phase::Held => {
                give_place_back(core, &state);
                state.unsent(Refused::TooLate)
            }
            Phase::Free | Phase::Done | Phase::Sent => {
                match state.job {
                    Job::Request(_) => {
                        under_way[state.ticket.request as usize % core.window()] = NONE;
                        core.lose(state.ticket.request);
                    }
                    Job::Read(_) => {
                        reads[state.ticket.request as usize % core.window()] = NONE;
                        core.forget_read(state.ticket.request);
                    }
                    Job::Resolve(_) => {
                        questions.retain(|(_, asked)| *asked != slot);
                        let name = Name::of(&state.ticket);
                        if questions.iter().all(|(asked, _)| *asked != name) {
                            core.forget(&state.ticket);
                        }
                    }
                }
                *waiting -= 1;
                state.lost(Why::TimedOut)
            }
        };
        calls.finish(slot, state, Err(outcome));
        None
    }

    /// Sleeps until the fabric has an event, a call arrives, or a deadline is due.
    fn sleep(&mut self) -> Result<(), Problem> {
        if let Some(longest) = self.may_sleep(false) {
            let time = Timespec { tv_sec: longest.as_secs() as i64, tv_nsec: i64::from(longest.subsec_nanos()) };
            let readable = |fd| PollFd::from_borrowed_fd(fd, PollFlags::IN);
            let slept = match (self.calls.bell(), self.core.descriptor()) {
                (Some(bell), Some(fabric)) => poll(&mut [readable(bell), readable(fabric)], Some(&time)),
                (Some(only), None) | (None, Some(only)) => poll(&mut [readable(only)], Some(&time)),
                (None, None) => poll(&mut [], Some(&time)),
            };
            match slept {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(Problem::System(error.into())),
            }
        }
        self.woken()
    }

    /// Returns for how long to sleep, or `None` if a call has arrived or the client was closed. With `ends`, the client
    /// is ending and no call can arrive.
    pub(super) fn may_sleep(&mut self, ends: bool) -> Option<Duration> {
        if !self.calls.may_sleep() && !ends {
            return None;
        }
        let longest = self.core.longest_sleep();
        let until = self.ends.peek().map(|Reverse((until, _))| until.saturating_duration_since(Instant::now()));
        Some(until.map_or(longest, |until| until.min(longest)))
    }

    /// Processes the events that made the descriptors readable, after a sleep on them.
    pub(super) fn woken(&mut self) -> Result<(), Problem> {
        self.calls.woke();
        self.core.woken()
    }

    pub(super) fn arm(&mut self) {
        self.core.arm();
    }

    pub(super) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.core.descriptor()
    }
}

/// Sends or numbers a call, and records its ticket.
fn start<F: FabricDiagnostics>(core: &mut Core<F>, state: &mut CallState) -> Result<(), Refused> {
    if state.until.is_none() {
        // The caller has stopped waiting, and its call has returned that the command is not applied.
        return Err(Refused::Closed);
    }
    match &state.job {
        Job::Request(ask) => match state.hold {
            Hold::Not => {
                let request = core.submit(*ask, state.to.ids(), &state.bytes)?;
                note_ticket(core, request, state);
            }
            Hold::Until => {
                let request = core.begin(*ask, state.to.ids(), &state.bytes)?;
                note_ticket(core, request, state);
            }
            Hold::Over => core.send(state.ticket.request, state.to.ids(), &state.bytes)?,
            Hold::GivenUp => return Err(Refused::Closed),
        },
        Job::Read(how) => {
            // A read has no ticket: only its name is stored in the ticket's fields.
            let name = core.read(*how, state.to.ids(), &state.bytes)?;
            state.ticket.generation = name.generation;
            (state.ticket.word, state.ticket.request) = (name.word, name.request);
        }
        Job::Resolve(ticket) => {
            core.resolve(ticket)?;
            copy(&ticket.0, &mut state.ticket);
        }
    }
    Ok(())
}

/// Frees the window slot of a numbered call that will not be sent.
fn give_place_back<F: FabricDiagnostics>(core: &mut Core<F>, state: &CallState) {
    if state.is_named && matches!(state.job, Job::Request(_)) {
        core.not_sent(state.ticket.request);
    }
}

fn note_ticket<F: FabricDiagnostics>(core: &Core<F>, request: u64, state: &mut CallState) {
    if let Some(ticket) = core.ticket(request) {
        copy(ticket, &mut state.ticket);
    }
}

/// Copies a ticket into another one and reuses its buffer.
fn copy(from: &session::Ticket, to: &mut session::Ticket) {
    let mut pairs = std::mem::take(&mut to.pairs);
    pairs.clear();
    pairs.extend_from_slice(&from.pairs);
    *to = session::Ticket { pairs, ..*from };
}

/// Delivers an outcome to the call in a slot.
fn hand_over(calls: &Calls, slot: u32, finished: &Finished<'_>) {
    let mut guard = calls.lock(slot);
    let state = &mut *guard;
    let outcome = match &finished.outcome {
        Outcome::Applied(replies) => {
            state.bytes.clear();
            state.replies.clear();
            for (group, bytes) in replies.iter() {
                let from = state.bytes.len();
                state.bytes.extend_from_slice(bytes);
                state.replies.push((group, from..state.bytes.len()));
            }
            Ok(replies.position())
        }
        Outcome::ReplyTooLong(group) => Err(CallError::ReplyTooLong(*group)),
        Outcome::NotApplied(why) => Err(CallError::NotApplied(*why)),
        Outcome::Unknown(why) => Err(state.lost(*why)),
    };
    calls.finish(slot, guard, outcome);
}
