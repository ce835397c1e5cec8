//! The observer: it follows one member, and moves to another one if the connection is lost.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::attempt::{Attempt, Attempted};
use super::error::{Fault, ObserveError, Problem};
use super::follow::{Following, Stop};
use super::frame::{Begin, Refusal, VERSION};
use super::line::{Line, LineError};
use super::observed::Observed;
use super::place::Place;
use super::position::ObservedPosition;
use super::target::Target;
use crate::Group;
use crate::descriptor::Descriptor;
use crate::runtime::ClusterRuntime;

/// Time without a frame after which a member is abandoned. A member sends a frame about once per second or more often.
const SILENCE: Duration = Duration::from_secs(10);
/// Shortest and longest pause after a round of all members. The pause doubles from the first to the second.
const PAUSE: (Duration, Duration) = (Duration::from_millis(10), Duration::from_millis(500));

/// The parameters of an observer.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) runtime: Arc<ClusterRuntime>,
    pub(super) group: Group,
    pub(super) patience: Duration,
    pub(super) states: bool,
    pub(super) longest_state: u64,
}

/// A process that follows the order of a group. [`Cluster::observe`](crate::Cluster::observe) creates one.
///
/// An observer has no thread: [`next`](Observer::next) and [`try_next`](Observer::try_next) read from the member, and
/// connect to another one if necessary. An observer that does not call them, or is suspended, delays no member of the
/// group. If the member meanwhile drops the records that the observer needs, the observer receives a
/// [state](Observed::State) instead, unless it refuses states.
#[derive(Debug)]
pub struct Observer {
    plan: Plan,
    targets: Vec<Target>,
    /// The place after which the observer continues. `None` if it has none yet.
    place: Option<Place>,
    phase: Phase,
    round: Round,
    /// The time since which no member serves the observer.
    lost: Option<Instant>,
    descriptor: Descriptor,
}

#[derive(Debug)]
enum Phase {
    /// The next attempt begins at this time.
    Pauses(Instant),
    Attempts(Attempt),
    Follows(Box<Line>, Box<Following>, Instant),
}

/// A round of attempts at all members. Each member is first tried as a follower. Then the members that refused because
/// they lead are tried again.
#[derive(Debug)]
struct Round {
    /// The index of the member with which the round begins.
    first: usize,
    /// Number of attempts in this round, including those that were skipped.
    made: usize,
    faults: Vec<(usize, Fault)>,
    pause: Duration,
}

impl Round {
    fn member(&self, members: usize) -> usize {
        (self.first + self.made) % members
    }
}

impl Observer {
    pub(super) fn new(plan: Plan, targets: Vec<Target>, from: Option<ObservedPosition>) -> Result<Self, ObserveError> {
        let group = plan.runtime.group_name(plan.group.0).to_owned();
        let descriptor = Descriptor::new(None);
        let descriptor =
            descriptor.map_err(|error| ObserveError { group: Some(group), problem: Problem::System(error) })?;
        // Observers on one host distribute themselves over the members.
        let first = std::process::id() as usize % targets.len().max(1);
        let round = Round { first, made: 0, faults: Vec::new(), pause: PAUSE.0 };
        let (phase, place) = (Phase::Pauses(Instant::now()), from.map(|from| from.place));
        Ok(Observer { plan, targets, place, phase, round, lost: Some(Instant::now()), descriptor })
    }

    /// Returns the next event in the order of the group. Waits for it for at most `timeout`, and returns `None` if none
    /// arrives.
    ///
    /// If the connection to the member is lost, the observer continues at another member and repeats no event. If that
    /// member no longer keeps the next events, a [state](Observed::State) replaces them.
    ///
    /// # Errors
    /// Returns an error if no member has served the observer for the time of its
    /// [patience](crate::ObserverBuilder::patience), or if none can. Also returns an error if a member violates the
    /// protocol, a state is too large, or a system call fails. The next call tries again.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Observed>, ObserveError> {
        let until = Instant::now() + timeout;
        loop {
            let next = self.try_next()?;
            if next.is_some() || Instant::now() >= until {
                return Ok(next);
            }
            self.sleep(until)?;
        }
    }

    /// Returns the next event if one is available, without waiting. In an event loop, call this until it returns
    /// `None`, then sleep until the observer's descriptor is readable.
    ///
    /// # Errors
    /// Returns an error in the same cases as [`next`](Observer::next).
    pub fn try_next(&mut self) -> Result<Option<Observed>, ObserveError> {
        self.descriptor.woken();
        loop {
            if let Phase::Follows(_, following, _) = &mut self.phase {
                match following.next(&self.plan.runtime) {
                    Ok(Some(observed)) => {
                        self.place = Some(observed.position().place);
                        return Ok(Some(observed));
                    }
                    Ok(None) => {}
                    Err(stop) => self.stops(stop)?,
                }
            }
            if !self.step()? {
                self.watch().map_err(|error| self.failed(Problem::System(error)))?;
                return Ok(None);
            }
        }
    }

    /// Returns the position of the last returned event. Before the first event, returns the position with which the
    /// observer began. Returns `None` if it began without one, unless states are refused: then it begins at the
    /// member's position.
    #[must_use]
    pub fn position(&self) -> Option<ObservedPosition> {
        self.place.map(|place| ObservedPosition { group: self.plan.group, place })
    }

    /// Returns the name of the member that serves the observer, or `None` if none does at present.
    #[must_use]
    pub fn member(&self) -> Option<&str> {
        let target = &self.targets[self.round.member(self.targets.len())];
        matches!(&self.phase, Phase::Follows(_, following, _) if following.has_begun()).then_some(&*target.name)
    }

    /// Makes progress without returning an event. Returns whether a member serves the observer.
    pub(super) fn turn(&mut self) -> Result<bool, ObserveError> {
        self.descriptor.woken();
        while self.lost.is_some() && self.step()? {}
        self.watch().map_err(|error| self.failed(Problem::System(error)))?;
        Ok(self.lost.is_none())
    }

    /// Sleeps until there may be work, or until `until`.
    pub(super) fn sleep(&mut self, until: Instant) -> Result<(), ObserveError> {
        let left = until.saturating_duration_since(Instant::now());
        let left = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut [PollFd::new(&self.descriptor, PollFlags::IN)], Some(&left)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(self.failed(Problem::System(error.into()))),
        }
    }

    fn failed(&self, problem: Problem) -> ObserveError {
        ObserveError { group: Some(self.plan.runtime.group_name(self.plan.group.0).to_owned()), problem }
    }

    /// Makes one step. Returns whether another step may follow at once.
    fn step(&mut self) -> Result<bool, ObserveError> {
        match std::mem::replace(&mut self.phase, Phase::Pauses(Instant::now())) {
            Phase::Pauses(until) if Instant::now() < until => {
                self.phase = Phase::Pauses(until);
                self.look_at_patience()?;
                Ok(false)
            }
            Phase::Pauses(_) => {
                match Attempt::begin(&self.targets[self.round.member(self.targets.len())]) {
                    Ok(attempt) => self.phase = Phase::Attempts(attempt),
                    Err(fault) => self.fails(fault)?,
                }
                Ok(true)
            }
            Phase::Attempts(attempt) => match attempt.turn(&self.begin()) {
                Ok(Attempted::Waits(attempt)) => {
                    self.phase = Phase::Attempts(attempt);
                    self.look_at_patience()?;
                    Ok(false)
                }
                Ok(Attempted::Begun(line)) => {
                    let following = Following::new(self.plan.group, self.plan.longest_state, self.place);
                    self.phase = Phase::Follows(Box::new(line), Box::new(following), Instant::now());
                    Ok(true)
                }
                Err(fault) => self.fails(fault).map(|()| true),
            },
            Phase::Follows(line, following, heard) => self.follow(line, following, heard),
        }
    }

    /// Receives and processes one frame.
    fn follow(
        &mut self,
        mut line: Box<Line>,
        mut following: Box<Following>,
        heard: Instant,
    ) -> Result<bool, ObserveError> {
        let taken = line.flush().and_then(|_| line.receive()).map(|frame| frame.map(|frame| following.take(&frame)));
        let now = Instant::now();
        match taken {
            Ok(Some(Ok(()))) => {
                if following.has_begun() {
                    self.lost = None;
                    (self.round.faults, self.round.pause) = (Vec::new(), PAUSE.0);
                    if let (None, Some(place)) = (self.place, following.place())
                        && !self.plan.states
                    {
                        // An observer without a position begins at this place.
                        self.place = Some(place);
                    }
                }
                self.phase = Phase::Follows(line, following, now);
                return Ok(true);
            }
            Ok(None) if now.saturating_duration_since(heard) < SILENCE => {
                self.phase = Phase::Follows(line, following, heard);
                if self.lost.is_some() {
                    self.look_at_patience()?;
                }
                return Ok(false);
            }
            Ok(None) => self.fails(Fault::Silent)?,
            Ok(Some(Err(stop))) => self.stops(stop)?,
            Err(LineError::Closed) => self.fails(Fault::Closed)?,
            Err(LineError::System(error)) => self.fails(Fault::Unreached(error.to_string()))?,
            Err(LineError::Garbage) => self.fails(Fault::Broken("bytes that are not a frame".to_owned()))?,
        }
        Ok(true)
    }

    fn begin(&self) -> Begin {
        Begin {
            version: VERSION,
            fingerprint: self.plan.runtime.config().fingerprint(),
            group: self.plan.group.0.0,
            states: self.plan.states,
            of_leader: self.round.made >= self.targets.len() || self.targets.len() == 1,
            from: self.place.map(|place| (place.origin, place.index)),
        }
    }

    fn stops(&mut self, stop: Stop) -> Result<(), ObserveError> {
        let most = self.plan.longest_state;
        match stop {
            Stop::Fault(Fault::Broken(what)) => {
                let member = self.targets[self.round.member(self.targets.len())].name.clone();
                let _ = self.fails(Fault::Broken(what.clone()));
                Err(self.failed(Problem::Broken { member, what }))
            }
            Stop::Fault(fault) => self.fails(fault),
            Stop::TooLarge => {
                let _ = self.fails(Fault::Closed);
                Err(self.failed(Problem::TooLarge { most }))
            }
        }
    }

    /// Ends the attempt or the connection after a fault, and continues with the next member.
    fn fails(&mut self, fault: Fault) -> Result<(), ObserveError> {
        let (members, now) = (self.targets.len(), Instant::now());
        self.phase = Phase::Pauses(now);
        if self.lost.is_none() {
            // The member that served the observer is lost. The new round begins with the next member.
            self.lost = Some(now);
            self.round.first = (self.round.member(members) + 1) % members;
            (self.round.made, self.round.faults, self.round.pause) = (0, Vec::new(), PAUSE.0);
            return Ok(());
        }
        let member = self.round.member(members);
        self.round.faults.retain(|(other, _)| *other != member);
        self.round.faults.push((member, fault));
        self.round.made += 1;
        // The second half of a round tries only the members that refused because they lead.
        let leads = |round: &Round| {
            let member = round.member(members);
            round.faults.iter().any(|(other, fault)| *other == member && *fault == Fault::Refused(Refusal::Leads))
        };
        while (members..2 * members).contains(&self.round.made) && !leads(&self.round) {
            self.round.made += 1;
        }
        if self.round.made < 2 * members {
            return Ok(());
        }
        let judged = self.judge();
        self.phase = Phase::Pauses(now + self.round.pause);
        (self.round.made, self.round.pause) = (0, (2 * self.round.pause).min(PAUSE.1));
        judged?;
        self.look_at_patience()
    }

    fn told(&self) -> Vec<(String, Fault)> {
        self.round.faults.iter().map(|(member, fault)| (self.targets[*member].name.clone(), fault.clone())).collect()
    }

    /// Returns an error if the refusals show that no later round can succeed.
    fn judge(&self) -> Result<(), ObserveError> {
        let refusals = self.round.faults.iter().filter_map(|(_, fault)| match fault {
            Fault::Refused(refusal) => Some(*refusal),
            _ => None,
        });
        let passes = |refusal: &Refusal| {
            !matches!(
                refusal,
                Refusal::Version
                    | Refusal::Configuration
                    | Refusal::Group
                    | Refusal::Off
                    | Refusal::Gone(_)
                    | Refusal::OtherHistory
            )
        };
        let refusals: Vec<_> = refusals.collect();
        if refusals.is_empty() || refusals.iter().any(passes) {
            return Ok(());
        }
        let firsts = refusals.iter().filter_map(|refusal| match refusal {
            Refusal::Gone(first) => Some(*first + 1),
            _ => None,
        });
        if let Some(first) = firsts.min() {
            return Err(self.failed(Problem::Gone { first: Some(first), faults: self.told() }));
        }
        if refusals.contains(&Refusal::OtherHistory) {
            return Err(self.failed(Problem::Reset));
        }
        Err(self.failed(Problem::Unfit { faults: self.told() }))
    }

    fn look_at_patience(&mut self) -> Result<(), ObserveError> {
        let (now, patience) = (Instant::now(), self.plan.patience);
        match self.lost {
            Some(since) if now.saturating_duration_since(since) >= patience => {
                let faults = self.told();
                // The next call has the full time again.
                self.lost = Some(now);
                Err(self.failed(Problem::Late { patience, faults }))
            }
            _ => Ok(()),
        }
    }

    /// Prepares the descriptor for the next event.
    fn watch(&mut self) -> std::io::Result<()> {
        let now = Instant::now();
        let longest = match &self.phase {
            Phase::Pauses(until) => until.saturating_duration_since(now),
            Phase::Attempts(attempt) => {
                self.descriptor.watch(attempt, attempt.is_behind())?;
                Duration::from_millis(100)
            }
            Phase::Follows(line, _, heard) => {
                self.descriptor.watch(&**line, line.is_behind())?;
                (*heard + SILENCE).saturating_duration_since(now)
            }
        };
        let left = self.lost.map(|since| (since + self.plan.patience).saturating_duration_since(now));
        self.descriptor.sleep_for(left.map_or(longest, |left| left.min(longest)))
    }
}

/// The descriptor is readable when [`try_next`](Observer::try_next) may return an event or has other work.
impl AsFd for Observer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}
