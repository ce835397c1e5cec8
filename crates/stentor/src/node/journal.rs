//! The events that a node reports through the crate `log`.

use std::sync::Arc;
use std::time::Duration;

use stentor_fabric::ProcessId;
use stentor_multicast::{Hindrance, Member};

use super::changes::{Changes, Shape, Sight};
use super::hooks::{Hooks, Round, Voice, Wish};
use crate::operator::{Elects, NodeElection};
use crate::runtime::{
    ClockNotice, Clocks, ClusterRuntime, ElectionDriver, FabricDiagnostics, GivenUp, Histories, StartError,
    TransferOutcome, TransferReport, TransferRole, first_state, hindrance_beside_missing, hindrance_remedy,
    told_hindrance,
};

/// Interval between checks for events to log.
const LOOK: Duration = Duration::from_millis(100);

/// Creates the driver of a member's election.
pub(super) type Elect<E> = Box<dyn Fn(&ClusterRuntime, ProcessId) -> Result<ElectionDriver<E>, StartError> + Send>;

/// The hooks of a node without hooks of its own: an election, and a log.
pub(super) struct Journal<E> {
    elect: Elect<E>,
    next: Duration,
    /// The state of the group that was logged last.
    changes: Changes,
    /// The histories of groups that were logged.
    histories: Histories,
    /// The clock problems that were logged.
    clocks: Clocks,
    voice: Voice,
    /// The longest timeout of the election.
    patience: Duration,
    /// `true` if the start of the node was logged.
    has_started: bool,
    /// `true` if the request to stop the node was logged.
    stops: bool,
}

impl<E> Journal<E> {
    pub(super) fn new(plan: &ClusterRuntime, name: &str, elect: Elect<E>) -> Self {
        let patience = plan.config().election_times().max;
        Journal {
            elect,
            next: Duration::ZERO,
            changes: Changes::new(patience),
            histories: Histories::default(),
            clocks: Clocks::default(),
            voice: logged(name),
            patience,
            has_started: false,
            stops: false,
        }
    }
}

/// Returns a voice that logs with the node's name.
pub(super) fn logged(name: &str) -> Voice {
    let name = name.to_owned();
    Arc::new(move |level, text: &str| log::log!(level, "{name}: {text}"))
}

impl<E: NodeElection> Hooks for Journal<E> {
    type Election = ElectionDriver<E>;

    fn election(&self, plan: &ClusterRuntime, me: ProcessId) -> Result<Self::Election, StartError> {
        (self.elect)(plan, me)
    }

    fn voice(&self, _: &str) -> Voice {
        Arc::clone(&self.voice)
    }

    fn started<F: FabricDiagnostics>(&mut self, plan: &ClusterRuntime, member: &mut Member<F>) {
        (self.next, self.histories) = (Duration::ZERO, Histories::default());
        self.changes = Changes::new(self.patience);
        if std::mem::replace(&mut self.has_started, true) {
            return;
        }
        let (me, group) = (member.fabric().me(), member.replica().group());
        let others = plan.topology().members(group).filter(|process| *process != me).map(|process| plan.name(process));
        let (others, cluster) = (others.collect::<Vec<_>>().join(", "), plan.config().cluster());
        let group = plan.group_name(group);
        self.info(&format!("starts as a member of {group} of cluster {cluster}, with {others}"));
        member.fabric().carrier().iter().for_each(|line| self.info(line));
    }

    #[inline]
    fn round<F: FabricDiagnostics>(&mut self, round: Round<'_, F, Self::Election>) -> Wish {
        let Round { now, plan, me, member, election, operator, leaves } = round;
        if operator.ends() && !std::mem::replace(&mut self.stops, true) && !leaves {
            self.info("is told to stop by `stentor stop`");
        }
        if now >= self.next {
            self.next = now + LOOK;
            self.tell(plan, member);
            if !leaves {
                self.tell_of_group(plan, me, member, election, now);
            }
        }
        Wish::GoOn
    }
}

impl<E> Journal<E> {
    fn info(&self, text: &str) {
        (self.voice)(log::Level::Info, text);
    }

    /// Logs refusals and troubles of the fabric, and transfers of state.
    fn tell<F: FabricDiagnostics>(&self, plan: &ClusterRuntime, member: &mut Member<F>) {
        let warn = |text: &str| (self.voice)(log::Level::Warn, text);
        while let Some(refusal) = member.fabric_mut().next_refusal() {
            warn(&refusal.tell(|process| plan.name(process).to_owned()));
        }
        while let Some(trouble) = member.fabric_mut().next_trouble() {
            warn(&trouble.to_string());
        }
        while let Some(report) = member.take_transfer_report() {
            let (level, text) = told(&report, plan.name(report.peer));
            (self.voice)(level, &text);
        }
    }

    /// Logs the changes in the group.
    fn tell_of_group<F: FabricDiagnostics>(
        &mut self,
        plan: &ClusterRuntime,
        me: ProcessId,
        member: &Member<F>,
        election: &impl Elects,
        now: Duration,
    ) {
        let replica = member.replica();
        let changes = self.changes.look(now, sight(plan, me, member, election), || first_state(replica, plan));
        let histories = self.histories.look(replica, plan).into_iter().map(|notice| (notice.level(), notice.text));
        let clocks = self.clocks.look(now, member.physical_clock(), election.stands_back(), plan);
        let clocks = clocks.into_iter().map(|notice| match notice {
            ClockNotice::Warn(text) => (log::Level::Warn, text),
            ClockNotice::Info(text) => (log::Level::Info, text),
        });
        for (level, text) in changes.into_iter().chain(histories).chain(clocks) {
            (self.voice)(level, &text);
        }
    }
}

fn sight<'a, F: FabricDiagnostics>(
    plan: &'a ClusterRuntime,
    me: ProcessId,
    member: &Member<F>,
    election: &impl Elects,
) -> Sight<'a> {
    let (replica, topology) = (member.replica(), plan.topology());
    let (group, joining) = (replica.group(), replica.is_joining());
    let shows_memory = |process| {
        // A member that does not report whether it stands for election is assumed to stand.
        election.stands(process).unwrap_or(true)
            || election.delivered(process) > 0
            || election.poisoned(process).is_some()
    };
    let shape = |process: ProcessId| match joining {
        _ if !member.fabric().sees(process) => Shape::Gone,
        true if replica.also_without_memory().any(|other| other == process) => Shape::Without,
        // A member with memory reports how much it has applied, or stands for election.
        false if !shows_memory(process) => Shape::Without,
        _ => Shape::There,
    };
    let others = topology.members(group).filter(|process| *process != me);
    let hindrance = hindrance_beside_missing(replica).filter(|_| joining);
    Sight {
        me: plan.name(me),
        group: plan.group_name(group),
        majority: topology.majority(group) as usize,
        joining,
        epoch: replica.ballot().number(),
        leader: plan.name(replica.ballot().leader()),
        leads: replica.is_leader(),
        others: others.map(|process| (plan.name(process), shape(process))).collect(),
        hindrance: hindrance.map(|hindrance| hindered(&hindrance, plan.group_name(group), plan)),
    }
}

/// Describes what prevents a group from beginning, with the remedy.
fn hindered(hindrance: &Hindrance, group: &str, plan: &ClusterRuntime) -> String {
    let why = told_hindrance(hindrance, |process| plan.name(process));
    let remedy = hindrance_remedy(hindrance, group, |process| plan.name(process));
    remedy.map_or(why.clone(), |remedy| format!("{why}; {remedy}"))
}

/// Describes a transfer of state. The level is a warning if an operator has to act.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_aborted_transfer_has_a_reason_and_is_a_warning_if_an_operator_must_act() {
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
