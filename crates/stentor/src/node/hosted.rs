//! A node on its fabric. Above this nobody knows the type of the fabric: one call of a trait object for each round.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use stentor_election::Heartbeat;
use stentor_fabric::{Idle, ProcessId, WaitMode};
use stentor_multicast::Member;

use super::error::Problem;
use super::machine::Machine;
use super::{MemberStatus, NodeError, Status, Turn};
use crate::runtime::{
    ClusterRuntime, ElectionDriver, FabricDiagnostics, GivenUp, Goodbye, MemberLoop, Presence, RunError, StartError,
    Stop, TransferOutcome, TransferReport, TransferRole,
};
use crate::state_machine::StateMachine;

/// How often news of the fabric are logged.
const LOOK: Duration = Duration::from_millis(100);
/// The longest sleep where nobody can wait for what lands.
const BLIND: Duration = Duration::from_millis(1);

/// A node, whatever its fabric.
pub(super) trait Host<S>: Send {
    fn run(&mut self, stop: &Stop) -> Result<(), NodeError>;
    fn turn(&mut self, stop: &Stop) -> Result<Turn, NodeError>;
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
    fn status(&self) -> Status;
    fn machine(&self) -> &S;
    fn into_machine(self: Box<Self>) -> S;
    fn hand_over(&mut self, to: &str) -> Result<(), NodeError>;
}

/// What other threads ask of a node.
pub(super) type Request<S> = Box<dyn FnOnce(&mut dyn Host<S>) + Send>;

/// Where they leave it.
pub(super) struct Mailbox<S>(Arc<(AtomicBool, Mutex<Vec<Request<S>>>)>);

impl<S> Clone for Mailbox<S> {
    fn clone(&self) -> Self {
        Mailbox(Arc::clone(&self.0))
    }
}

impl<S> Default for Mailbox<S> {
    fn default() -> Self {
        Mailbox(Arc::new((AtomicBool::new(false), Mutex::new(Vec::new()))))
    }
}

impl<S> Mailbox<S> {
    pub(super) fn put(&self, request: Request<S>) {
        let (any, requests) = &*self.0;
        requests.lock().unwrap_or_else(PoisonError::into_inner).push(request);
        any.store(true, Ordering::Release);
    }

    /// Takes what is there. One load where there is nothing.
    #[inline]
    fn take(&self) -> Vec<Request<S>> {
        let (any, requests) = &*self.0;
        if !any.load(Ordering::Relaxed) || !any.swap(false, Ordering::Acquire) {
            return Vec::new();
        }
        std::mem::take(&mut *requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// A member with its election and its machine.
pub(super) struct Hosted<F: FabricDiagnostics, S> {
    plan: Arc<ClusterRuntime>,
    me: ProcessId,
    member: Member<F>,
    machine: Machine<S>,
    turns: MemberLoop,
    election: ElectionDriver<Heartbeat>,
    mailbox: Mailbox<S>,
    leaving: Leaving,
    next_look: Duration,
    /// Whether the caller may have slept on the descriptor since the last round.
    sleeps: bool,
}

/// The end of a node that was told to stop.
#[derive(Default)]
struct Leaving {
    goodbye: Goodbye,
    /// Whether the others have had the time to read that it leaves.
    done: bool,
}

impl<F: FabricDiagnostics + Send, S: StateMachine> Hosted<F, S> {
    pub(super) fn new(
        plan: &Arc<ClusterRuntime>,
        member: Member<F>,
        machine: Machine<S>,
        wait: WaitMode,
        mailbox: Mailbox<S>,
    ) -> Result<Self, StartError> {
        let me = member.fabric().me();
        member.fabric().carrier().iter().for_each(|line| log::info!("{}: {line}", plan.name(me)));
        Ok(Hosted {
            election: ElectionDriver::heartbeat(plan, me)?,
            plan: Arc::clone(plan),
            me,
            member,
            machine,
            turns: MemberLoop::new(wait),
            mailbox,
            leaving: Leaving::default(),
            next_look: Duration::ZERO,
            sleeps: false,
        })
    }

    /// One round; see [`MemberLoop::round`].
    #[inline]
    fn round(&mut self, stop: &Stop) -> Result<(bool, Duration), NodeError> {
        let Hosted { plan, me, member, machine, turns, election, leaving, next_look, .. } = self;
        let round = |member: &mut Member<F>, now: Duration, _: bool| {
            election.watch(|process| Presence::of(member.fabric(), process));
            election.round(now, member);
            if stop.is_stopped() {
                let (may_end, is_said) = (election.leave(now, member), leaving.goodbye.is_said(now));
                leaving.done = may_end && is_said;
            }
            if now >= *next_look {
                *next_look = now + LOOK;
                tell(plan, *me, member);
            }
        };
        let done = turns.round(member, machine, round);
        let done = done.map_err(|error| NodeError::ended(self.plan.name(self.me), error))?;
        for request in self.mailbox.take() {
            request(self);
        }
        Ok(done)
    }

    fn ended(&self, error: RunError) -> NodeError {
        NodeError::ended(self.plan.name(self.me), error)
    }
}

/// Logs what the fabric and the transfers of state have to tell.
fn tell<F: FabricDiagnostics>(plan: &ClusterRuntime, me: ProcessId, member: &mut Member<F>) {
    let name = plan.name(me);
    while let Some(refusal) = member.fabric_mut().next_refusal() {
        log::warn!("{name}: {}", refusal.tell(|process| plan.name(process).to_owned()));
    }
    while let Some(trouble) = member.fabric_mut().next_trouble() {
        log::warn!("{name}: {trouble}");
    }
    while let Some(report) = member.take_transfer_report() {
        let (level, text) = told(&report, plan.name(report.peer));
        log::log!(level, "{name}: {text}");
    }
}

/// Returns what to say of a transfer of state. What needs somebody to look is a warning.
fn told(report: &TransferReport, peer: &str) -> (log::Level, String) {
    let TransferReport { position, bytes, .. } = report;
    let what = match report.role {
        TransferRole::Donor => format!("gives {peer} its state after {position} commands"),
        TransferRole::Receiver => format!("takes {peer}'s state after {position} commands"),
    };
    match report.outcome {
        TransferOutcome::Began => (log::Level::Info, what),
        TransferOutcome::Resumed => (log::Level::Info, format!("{what}: goes on after a broken connection")),
        TransferOutcome::Complete => (log::Level::Info, format!("{what}: complete, {bytes} bytes")),
        TransferOutcome::GivenUp(why) => {
            let passes = matches!(why, GivenUp::Abandoned | GivenUp::LeaderChanged);
            let level = if passes { log::Level::Info } else { log::Level::Warn };
            (level, format!("{what}: given up after {bytes} bytes: {why}"))
        }
    }
}

impl<F: FabricDiagnostics + Send, S: StateMachine> Host<S> for Hosted<F, S> {
    fn run(&mut self, stop: &Stop) -> Result<(), NodeError> {
        while !self.leaving.done {
            let (worked, longest) = self.round(stop)?;
            let paused = self.turns.pause(&mut self.member, worked, longest);
            paused.map_err(|error| self.ended(error))?;
        }
        Ok(())
    }

    fn turn(&mut self, stop: &Stop) -> Result<Turn, NodeError> {
        if self.leaving.done {
            return Ok(Turn::Stopped);
        }
        if std::mem::take(&mut self.sleeps) {
            self.turns.woken(&mut self.member).map_err(|error| self.ended(error))?;
        }
        loop {
            let (worked, longest) = self.round(stop)?;
            if self.leaving.done {
                return Ok(Turn::Stopped);
            }
            match self.turns.idle(&mut self.member, worked) {
                Idle::Poll => return Ok(Turn::Busy),
                // Another round at once. Nodes of one loop that took turns in arming would keep it awake.
                Idle::Arm => {}
                Idle::Sleep => {
                    self.sleeps = true;
                    let longest = if self.descriptor().is_some() { longest } else { longest.min(BLIND) };
                    return Ok(Turn::Idle(Instant::now() + longest));
                }
            }
        }
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.member.fabric().descriptor()
    }

    fn status(&self) -> Status {
        let Hosted { plan, me, member, election, .. } = self;
        let replica = member.replica();
        let joining = replica.is_joining();
        let members = plan.topology().members(replica.group());
        let other = |process| MemberStatus {
            name: plan.name(process).to_owned(),
            connected: member.is_connected_to(process),
            commands: election.delivered(process),
        };
        Status {
            name: plan.name(*me).to_owned(),
            joining,
            leader: (!joining).then(|| plan.name(replica.ballot().leader()).to_owned()),
            leads: replica.is_leader(),
            applied: self.machine.applied,
            commands: member.applied(),
            others: members.filter(|process| process != me).map(other).collect(),
        }
    }

    fn machine(&self) -> &S {
        &self.machine.machine
    }

    fn into_machine(self: Box<Self>) -> S {
        self.machine.machine
    }

    fn hand_over(&mut self, to: &str) -> Result<(), NodeError> {
        let failed = |why| NodeError {
            name: self.plan.name(self.me).to_owned(),
            problem: Problem::HandOver { to: to.to_owned(), why },
        };
        let group = self.member.replica().group();
        let mut members = self.plan.topology().members(group).filter(|process| *process != self.me);
        let process = members.find(|process| self.plan.name(*process) == to).ok_or_else(|| failed(None))?;
        self.election.hand_over(process).map_err(|why| failed(Some(why)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transfer_that_is_given_up_says_why_and_is_a_warning_if_somebody_must_look() {
        let told = |outcome| {
            told(&TransferReport { role: TransferRole::Donor, peer: ProcessId(1), position: 7, bytes: 9, outcome }, "b")
        };
        let (level, text) = told(TransferOutcome::GivenUp(GivenUp::TooLarge { bytes: 11, limit: 10 }));
        assert_eq!(level, log::Level::Warn);
        assert!(
            text.starts_with("gives b its state after 7 commands: given up after 9 bytes: ") && text.contains("11")
        );
        assert!(!text.contains("TooLarge"), "{text}");
        assert_eq!(told(TransferOutcome::GivenUp(GivenUp::LeaderChanged)).0, log::Level::Info);
        assert_eq!(told(TransferOutcome::Began).0, log::Level::Info);
    }
}
