//! The polling loops of members and clients.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stentor_fabric::{Backoff, Fabric, Idle, ProcessId, REST_AFTER, WaitError, WaitMode};
use stentor_multicast::{Application, Client, Incarnation, Member, RestoreError};
use thiserror::Error;

use super::clock::wall_clock;

/// Longest sleep of an idle process; a peer's write wakes it earlier.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(20);
/// The same of a member, which looks after what makes no progress and is looked at by others.
const LONGEST_MEMBER_SLEEP: Duration = Duration::from_millis(2);
/// The shortest sleep of a member that rests, when a tick is due.
const SHORTEST_REST: Duration = Duration::from_micros(100);
/// How often a busy process looks after its connections.
const HOUSEKEEPING: Duration = Duration::from_millis(2);
/// Rounds between two looks at the clock, unless the process slept.
const ROUNDS_PER_LOOK: u32 = 256;
/// The same for idle rounds, between which others may have had the processor.
const IDLE_ROUNDS_PER_LOOK: u32 = 16;

/// Why a loop ended before it was told to.
#[derive(Debug, Error)]
pub enum RunError {
    /// Waiting failed.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// An operator reset the group, and it goes on without what this member has.
    #[error("the group of {member} was reset: it goes on in incarnation {by}, without this process's state")]
    Ended {
        /// This member.
        member: ProcessId,
        /// The group's incarnation.
        by: Incarnation,
    },
    /// The group has heard of another process in this member's place, which was started later.
    #[error("another process has taken {0}'s place in its group")]
    Superseded(ProcessId),
    /// The application could not take over another member's state.
    #[error("{0} could not take over another member's state: {1}")]
    Restore(ProcessId, RestoreError),
}

/// Tells a loop to end; set from a signal handler or another thread.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

impl Stop {
    /// Asks the loop to end.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether it was asked to.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Decides when a loop looks after its connections: on every idle round that is due, rarely when busy.
#[derive(Debug)]
pub struct Housekeeper {
    rounds: u32,
    slept: bool,
    start: Instant,
    /// At the last look at the clock.
    now: Instant,
    next: Instant,
    /// The time between two moments at which work is due.
    interval: Duration,
}

impl Default for Housekeeper {
    fn default() -> Self {
        let now = Instant::now();
        Housekeeper { rounds: 0, slept: false, start: now, now, next: now, interval: HOUSEKEEPING }
    }
}

impl Housekeeper {
    /// Time since this was made, as of the last look at the clock: enough for timeouts, and cheap.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now - self.start
    }

    /// Tells a member the wall clock, as of now.
    fn tell_wall_clock<F: Fabric>(&self, member: &mut Member<F>) {
        if let Some((now, wall)) = wall_clock(self.start) {
            // One that cannot be is none, and the member says so.
            let _ = member.tell_wall_clock(now, wall);
        }
    }

    /// The process may have slept: the clock is looked at after the next round.
    #[inline]
    pub fn note_sleep(&mut self, slept: bool) {
        self.slept |= slept;
    }

    /// Sets the time between two moments at which work is due.
    fn set_interval(&mut self, interval: Duration) {
        self.next = (self.next - self.interval) + interval;
        self.interval = interval;
    }

    /// Whether it is time.
    #[inline]
    pub fn is_due(&mut self, worked: bool) -> bool {
        self.rounds = self.rounds.wrapping_add(1);
        let slept = std::mem::take(&mut self.slept);
        if !slept && !self.rounds.is_multiple_of(if worked { ROUNDS_PER_LOOK } else { IDLE_ROUNDS_PER_LOOK }) {
            return false;
        }
        let now = Instant::now();
        self.now = now;
        let due = now >= self.next;
        if due {
            self.next = now + self.interval;
        }
        due
    }
}

/// Lets a member rest that had no work for a while: it sleeps at once and longer, and its ticks are fewer. The first
/// message ends that.
#[derive(Debug, Default)]
struct Repose {
    /// The time at which it had work last.
    worked_at: Duration,
    /// The longest sleep while it rests; `None` while it does not.
    rests: Option<Duration>,
}

impl Repose {
    /// Updates the rest after each round. Returns how long the next sleep may be.
    #[inline]
    fn after<F: Fabric>(
        &mut self,
        member: &mut Member<F>,
        backoff: &mut Backoff,
        housekeeper: &mut Housekeeper,
    ) -> Duration {
        let now = housekeeper.now();
        if member.had_work() {
            self.worked_at = now;
        }
        let quiet = now.saturating_sub(self.worked_at);
        let rests = quiet >= REST_AFTER && !member.replica().is_joining();
        if rests != self.rests.is_some() {
            backoff.quiet_for(if rests { quiet } else { Duration::ZERO });
            let tick = member.rest(rests);
            housekeeper.set_interval(if rests { tick } else { HOUSEKEEPING });
            self.rests = rests.then_some(tick);
        }
        match self.rests {
            None => LONGEST_MEMBER_SLEEP,
            // What wakes it before that is not its own time: the next tick is not put off.
            Some(longest) => {
                member.next_tick().saturating_sub(now).clamp(SHORTEST_REST, longest.max(LONGEST_MEMBER_SLEEP))
            }
        }
    }
}

/// The loop of one member, round by round. The member is told the wall clock of this host, so the times of a group that it leads follow
/// physical time.
#[derive(Debug)]
pub struct MemberLoop {
    backoff: Backoff,
    housekeeper: Housekeeper,
    repose: Repose,
    begun: bool,
}

impl MemberLoop {
    /// Begins a loop that pauses in this mode.
    #[must_use]
    pub fn new(mode: WaitMode) -> Self {
        let (backoff, housekeeper) = (Backoff::new(mode), Housekeeper::default());
        MemberLoop { backoff, housekeeper, repose: Repose::default(), begun: false }
    }

    /// Does one round. `app` gets every message in the global order; `round` is called after the member's step, with `app`, the time since
    /// the start and whether the step did anything. Returns whether the round worked, and for how long the member may sleep if it did not.
    ///
    /// # Errors
    /// Why the member cannot go on; see [`RunError`].
    #[inline]
    pub fn round<F: Fabric, A: Application>(
        &mut self,
        member: &mut Member<F>,
        app: &mut A,
        round: impl FnOnce(&mut Member<F>, &mut A, Duration, bool),
    ) -> Result<(bool, Duration), RunError> {
        let MemberLoop { backoff, housekeeper, repose, begun } = self;
        if !std::mem::replace(begun, true) {
            housekeeper.tell_wall_clock(member);
        }
        let mut worked = member.step(housekeeper.now(), app);
        let (due, fencing) = (housekeeper.is_due(worked), member.is_fencing());
        if due {
            housekeeper.tell_wall_clock(member);
        }
        if due || fencing {
            worked |= member.housekeep();
        }
        if member.replica().is_superseded() {
            let me = member.fabric().me();
            let superseded = RunError::Superseded(me);
            return Err(member.replica().ended_by().map_or(superseded, |by| RunError::Ended { member: me, by }));
        }
        if let Some(error) = member.failure() {
            return Err(RunError::Restore(member.fabric().me(), error.clone()));
        }
        round(member, app, housekeeper.now(), worked);
        // What was asked of it begins with the next step, not after a sleep.
        worked |= member.is_fencing() && !fencing || member.has_unflushed();
        Ok((worked, repose.after(member, backoff, housekeeper)))
    }

    /// Pauses after a round as it is due: not at all, or asleep until something lands and for at most `longest`.
    ///
    /// # Errors
    /// [`RunError::Wait`].
    #[inline]
    pub fn pause<F: Fabric>(
        &mut self,
        member: &mut Member<F>,
        worked: bool,
        longest: Duration,
    ) -> Result<(), RunError> {
        self.housekeeper.note_sleep(self.backoff.pause(member.fabric_mut(), worked, longest)?);
        Ok(())
    }

    /// Does what [`pause`](MemberLoop::pause) does, without the sleep, and says what else to do: another round after [`Idle::Poll`], and
    /// after [`Idle::Arm`], for which the fabric is armed now; after [`Idle::Sleep`] the caller may sleep on the fabric's descriptor, and
    /// calls [`woken`](MemberLoop::woken) before the next round.
    #[inline]
    pub fn idle<F: Fabric>(&mut self, member: &mut Member<F>, worked: bool) -> Idle {
        let idle = self.backoff.after(worked);
        match idle {
            Idle::Poll => {}
            Idle::Arm => member.fabric_mut().arm(),
            Idle::Sleep => self.housekeeper.note_sleep(true),
        }
        idle
    }

    /// Has the fabric take what its descriptor tells, after a sleep there. It does not sleep itself.
    ///
    /// # Errors
    /// [`RunError::Wait`].
    pub fn woken<F: Fabric>(&mut self, member: &mut Member<F>) -> Result<(), RunError> {
        member.fabric_mut().wait(Duration::ZERO)?;
        Ok(())
    }
}

/// Runs a member until `stop`: rounds and pauses of a [`MemberLoop`].
///
/// # Errors
/// See [`RunError`].
pub fn run_member<F: Fabric>(
    member: &mut Member<F>,
    mode: WaitMode,
    stop: &Stop,
    app: &mut impl Application,
    mut round: impl FnMut(&mut Member<F>, Duration, bool),
) -> Result<(), RunError> {
    let mut turns = MemberLoop::new(mode);
    while !stop.is_stopped() {
        let (worked, longest) = turns.round(member, app, |member, _, now, worked| round(member, now, worked))?;
        turns.pause(member, worked, longest)?;
    }
    Ok(())
}

/// One round of a client's loop: takes credits, looks after connections, pauses when there was nothing.
///
/// # Errors
/// See [`RunError`].
pub fn client_round<F: Fabric>(
    client: &mut Client<F>,
    backoff: &mut Backoff,
    housekeeper: &mut Housekeeper,
    submitted: bool,
) -> Result<bool, RunError> {
    client_round_within(client, backoff, housekeeper, submitted, LONGEST_SLEEP)
}

/// The same, but sleeps for at most `longest`: until the client has something to send, for example. Longer than 20 ms it
/// never sleeps.
///
/// # Errors
/// See [`RunError`].
pub fn client_round_within<F: Fabric>(
    client: &mut Client<F>,
    backoff: &mut Backoff,
    housekeeper: &mut Housekeeper,
    submitted: bool,
    longest: Duration,
) -> Result<bool, RunError> {
    let mut worked = client.step() | submitted;
    if housekeeper.is_due(worked) {
        worked |= client.housekeep();
        client.tick(housekeeper.now());
    }
    housekeeper.note_sleep(backoff.pause(client.fabric_mut(), worked, longest.min(LONGEST_SLEEP))?);
    Ok(worked)
}
