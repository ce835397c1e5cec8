//! The thread that serves the calls of a client.
//!
//! # Invariants
//! - Calls to one group are sent in the order in which they were made. A group that takes nothing now holds up the calls to it, and those to
//!   several groups with it among them, and no others.
//! - A call that was held has its place in the window: it goes before those that wait for one.
//! - A call that was sent has its slot in `under_way` until its outcome comes, or its time is over.
//! - Each call ends within the client's patience, and a round more.

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

/// How often it is looked for calls whose time is over.
const LOOK: Duration = Duration::from_millis(1);
/// No call.
const NONE: (u64, u32) = (u64::MAX, u32::MAX);

/// A call that is not sent yet.
#[derive(Clone, Copy)]
struct Pending {
    slot: u32,
    /// Its group, if it has only one: then its lock is not taken while the group takes nothing.
    only: Option<GroupId>,
}

/// A client with the calls that it serves.
pub(super) struct Server<F: FabricDiagnostics> {
    core: Core<F>,
    calls: Arc<Calls>,
    /// Calls that are not sent yet, in order.
    pending: VecDeque<Pending>,
    /// Calls that were held, and go on or are given up, in order.
    released: VecDeque<u32>,
    /// All groups.
    groups: GroupSet,
    /// By the number of the request, as often as the window goes round: the request, and the slot of its call.
    under_way: Vec<(u64, u32)>,
    /// The same for reads outside the order, by their names.
    reads: Vec<(u64, u32)>,
    /// Questions about commands: what was asked about, and the slot of the call.
    questions: Vec<(Name, u32)>,
    /// Calls that were sent and are not done.
    waiting: usize,
    /// How often the session's key had changed when it was told last.
    changes: u64,
    /// When to look at a slot because the time of its call may be over. One for each slot at most.
    ends: BinaryHeap<Reverse<(Instant, u32)>>,
    /// By slot: whether it is in `ends`.
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

    /// Serves until nobody calls any more, or it cannot go on.
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

    /// One round: takes calls, sends what may go, hands over outcomes. Returns whether there was anything.
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

    /// Returns whether no call comes any more, and all that came have ended.
    pub(super) fn is_drained(&self) -> bool {
        self.pending.is_empty() && self.released.is_empty() && self.waiting == 0 && self.calls.is_drained()
    }

    /// Begins to end the session. Returns until when to wait for that; `None`: there is nothing to wait for.
    pub(super) fn begin_close(&mut self) -> Option<Instant> {
        self.core.begin_close().then(|| Instant::now() + self.core.farewell())
    }

    /// Returns whether the groups have answered to the session's end.
    pub(super) fn has_closed(&mut self) -> bool {
        self.core.has_closed()
    }

    /// Takes the calls that came.
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

    /// Sends what may go. Returns whether anything went.
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

    /// Sends a call, unless it has to wait. Returns whether it went; `None` if it waits, and then its groups are blocked.
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
            // An answer to a question may be about a request of an earlier turn of the window.
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

    /// Ends the calls whose time is over.
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

    /// Ends a call if its time is over. Returns when to look at its slot again.
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
                    // It is on its way through a queue.
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

    /// Sleeps until something lands, a call comes, or something is due.
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

    /// Returns for how long to sleep; `None`: not at all, because a call came. Where the client `ends` none comes any more.
    pub(super) fn may_sleep(&mut self, ends: bool) -> Option<Duration> {
        if !self.calls.may_sleep() && !ends {
            return None;
        }
        let longest = self.core.longest_sleep();
        let until = self.ends.peek().map(|Reverse((until, _))| until.saturating_duration_since(Instant::now()));
        Some(until.map_or(longest, |until| until.min(longest)))
    }

    /// Takes what the descriptors tell, after a sleep there.
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

/// Sends a call, and notes its ticket.
fn start<F: FabricDiagnostics>(core: &mut Core<F>, state: &mut CallState) -> Result<(), Refused> {
    if state.until.is_none() {
        // Its caller waited, and was told that it is not applied.
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
            // Only its number counts.
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

/// A call is not sent: if it was numbered, its place in the window is free.
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

/// Copies a ticket into the buffer of another one.
fn copy(from: &session::Ticket, to: &mut session::Ticket) {
    let mut pairs = std::mem::take(&mut to.pairs);
    pairs.clear();
    pairs.extend_from_slice(&from.pairs);
    *to = session::Ticket { pairs, ..*from };
}

/// Hands an outcome over to the call in a slot.
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
