//! The polling loops of members and clients. A loop polls the fabric while there is work, and sleeps on it otherwise.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use stentor_fabric::{Backoff, Fabric, Idle, ProcessId, REST_AFTER, WaitError, WaitMode};
use stentor_multicast::{Application, Client, Incarnation, Member, RestoreError};
use thiserror::Error;

use super::clock::wall_clock;

/// Longest sleep of an idle client; a peer's write wakes it earlier.
pub(crate) const LONGEST_SLEEP: Duration = Duration::from_millis(20);
/// Longest sleep of a member outside its idle mode. A member must check its own progress and publish heartbeats.
const LONGEST_MEMBER_SLEEP: Duration = Duration::from_millis(2);
/// Shortest sleep of an idle member when a tick is due.
const SHORTEST_REST: Duration = Duration::from_micros(100);
/// Interval at which a process checks its connections, unless it is a member in its idle mode.
const HOUSEKEEPING: Duration = Duration::from_millis(2);
/// Number of busy rounds between two readings of the clock, unless the process slept.
const ROUNDS_PER_LOOK: u32 = 256;
/// Number of idle rounds between two readings of the clock. Other processes may have run between idle rounds.
const IDLE_ROUNDS_PER_LOOK: u32 = 16;

/// The reason why a loop ended without a request.
#[derive(Debug, Error)]
pub enum RunError {
    /// Waiting failed.
    #[error(transparent)]
    Wait(#[from] WaitError),
    /// An operator reset the group, and it continues without this member's state.
    #[error("the group of {member} was reset: it goes on in incarnation {by}, without this process's state")]
    Ended {
        /// This member.
        member: ProcessId,
        /// The group's new incarnation.
        by: Incarnation,
    },
    /// The group knows another process with this member's id, which was started later.
    #[error("another process has taken {0}'s place in its group")]
    Superseded(ProcessId),
    /// The application could not restore another member's state.
    #[error("{0} could not restore another member's state: {1}")]
    Restore(ProcessId, RestoreError),
}

/// A flag that asks a loop to end. Signal handlers and other threads may set it.
#[derive(Debug, Default)]
pub struct Stop(AtomicBool);

impl Stop {
    /// Asks the loop to end.
    pub fn stop(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Returns whether the loop was asked to end.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Decides when a loop checks its connections: once per interval. To save readings of the clock, it reads the clock
/// only after a sleep, and otherwise in one of 16 idle rounds or of 256 busy rounds.
#[derive(Debug)]
pub struct Housekeeper {
    rounds: u32,
    slept: bool,
    start: Instant,
    /// Time of the last reading of the clock.
    now: Instant,
    next: Instant,
    /// Interval between checks of the connections.
    interval: Duration,
}

impl Default for Housekeeper {
    fn default() -> Self {
        let now = Instant::now();
        Housekeeper { rounds: 0, slept: false, start: now, now, next: now, interval: HOUSEKEEPING }
    }
}

impl Housekeeper {
    /// Returns the time since the creation of this value, as of the last reading of the clock. It is cheap and precise
    /// enough for timeouts.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Duration {
        self.now - self.start
    }

    /// Passes the current wall clock to a member.
    fn tell_wall_clock<F: Fabric>(&self, member: &mut Member<F>) {
        if let Some((now, wall)) = wall_clock(self.start) {
            // An invalid reading counts as no wall clock, which the member reports.
            let _ = member.tell_wall_clock(now, wall);
        }
    }

    /// Records whether the process may have slept. If it may, the next round reads the clock.
    #[inline]
    pub fn note_sleep(&mut self, slept: bool) {
        self.slept |= slept;
    }

    /// Sets the interval between checks of the connections.
    fn set_interval(&mut self, interval: Duration) {
        self.next = (self.next - self.interval) + interval;
        self.interval = interval;
    }

    /// Returns whether a check of the connections is due. `worked` is `true` if the round did any work.
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

/// Puts a member into its idle mode after a while without work: it sleeps at once and for longer, and has fewer ticks.
/// The next message ends the idle mode.
#[derive(Debug, Default)]
struct Repose {
    /// Time of the last round with work.
    worked_at: Duration,
    /// Longest sleep in idle mode; `None` if the member is not idle.
    rests: Option<Duration>,
}

impl Repose {
    /// Updates the idle mode after a round. Returns the longest time for the next sleep.
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
            // An early wake-up does not postpone the next tick.
            Some(longest) => {
                member.next_tick().saturating_sub(now).clamp(SHORTEST_REST, longest.max(LONGEST_MEMBER_SLEEP))
            }
        }
    }
}

/// The loop of one member, round by round. It passes the host's wall clock to the member, so the times of a group that
/// the member leads follow physical time.
#[derive(Debug)]
pub struct MemberLoop {
    backoff: Backoff,
    housekeeper: Housekeeper,
    repose: Repose,
    begun: bool,
}

impl MemberLoop {
    /// Creates a loop that pauses in this mode.
    #[must_use]
    pub fn new(mode: WaitMode) -> Self {
        let (backoff, housekeeper) = (Backoff::new(mode), Housekeeper::default());
        MemberLoop { backoff, housekeeper, repose: Repose::default(), begun: false }
    }

    /// Runs one round. `app` receives the delivered messages in the global order. After the member's step, `round` is
    /// called with the member, `app`, the time since the start, and whether there was any work so far. Returns whether
    /// the round did any work, and how long the member may sleep if it did not.
    ///
    /// # Errors
    /// Returns why the member cannot continue; see [`RunError`].
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
        // Requests made in `round` are executed by the next step, which must not wait for a sleep.
        worked |= member.is_fencing() && !fencing || member.has_unflushed();
        Ok((worked, repose.after(member, backoff, housekeeper)))
    }

    /// Pauses after a round if necessary. The pause ends when a write lands or another thread wakes the fabric, and
    /// after at most `longest`.
    ///
    /// # Errors
    /// Returns [`RunError::Wait`] if waiting on the fabric fails.
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

    /// Like [`pause`](MemberLoop::pause), without the sleep: returns what the caller has to do. After [`Idle::Poll`]
    /// and [`Idle::Arm`], run another round; [`Idle::Arm`] means that the fabric has been armed. After [`Idle::Sleep`],
    /// the caller may sleep on the fabric's descriptor, and must call [`woken`](MemberLoop::woken) before the next
    /// round.
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

    /// Makes the fabric process the events of its descriptor, after a sleep on it. Does not sleep itself.
    ///
    /// # Errors
    /// Returns [`RunError::Wait`] if waiting on the fabric fails.
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

/// Runs one round of a client's loop: reads credits, checks connections if that is due, and pauses if there was no
/// work. `submitted` is `true` if the caller has sent messages in this round. Returns whether there was any work.
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

/// Like [`client_round`], but sleeps for at most `longest`, for example until the client has a command to send, and
/// never for more than 20 ms.
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
