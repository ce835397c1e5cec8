//! The operator's side of a removal: the next request to each process, and the decision from the reports. A pure state
//! machine.

use std::collections::{BTreeMap, BTreeSet};

use stentor_fabric::ProcessId;
use thiserror::Error;

use super::{Answer, Ask, Ballot, Cut, Holding, Kept, Refusal, Standing};
use crate::value::content;
use crate::{Config, Mode, ProcessSet};

/// Reason why processes are not removed. Fenced processes stay fenced, and a decision that a member has accepted stays
/// valid for every later operator.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum RemovalError {
    /// The broadcast does not run in mode `all`.
    #[error("{}", Refusal::Mode)]
    Mode,
    /// The operator names no process, or names a process that does not belong to the broadcast.
    #[error("no process of the broadcast is named to be removed")]
    Nobody,
    /// A process that would remain does not answer.
    #[error("{0}, which would remain, cannot be reached, and without it nothing can be agreed on")]
    Unreachable(ProcessId),
    /// Too few members would remain.
    #[error("{remain} of {members} members would remain: no majority, so others could remove these as well")]
    Minority {
        /// Number of members after the removal.
        remain: usize,
        /// Number of members before the removal.
        members: usize,
    },
    /// Another removal is incomplete.
    #[error("the removal of {0} was begun and is not over")]
    HalfWay(ProcessSet),
    /// A member refuses.
    #[error("{0} refuses: {1}")]
    Refused(ProcessId, Refusal),
    /// Two members report that they delivered different values.
    #[error("{} and {} say that they delivered different values of {sender} at index {index}: one of them lies", .by.0, .by.1)]
    Split {
        /// Sender of the stream.
        sender: ProcessId,
        /// Index at which the values differ.
        index: u64,
        /// The two members.
        by: (ProcessId, ProcessId),
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Phase {
    Standing,
    Fencing,
    Committing,
    Done,
}

/// One run of an operator's command.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Removal {
    everybody: ProcessSet,
    signed: bool,
    targets: ProcessSet,
    operator: u64,
    phase: Phase,
    ballot: Ballot,
    /// Processes that were removed before, everywhere.
    base: ProcessSet,
    /// Processes that remain.
    remain: ProcessSet,
    standings: Vec<Option<Standing>>,
    /// Processes to keep that could not be reached, or that were asked to leave before.
    absent: ProcessSet,
    /// Processes to remove that were informed or cannot be reached.
    told: ProcessSet,
    reports: Vec<Option<Vec<Holding>>>,
    committed: ProcessSet,
    cuts: Vec<Cut>,
}

impl Removal {
    /// Creates a removal of these processes; `operator` distinguishes this run from all others.
    ///
    /// # Errors
    /// See [`RemovalError`].
    pub fn new(config: &Config, targets: ProcessSet, operator: u64) -> Result<Self, RemovalError> {
        if config.mode != Mode::All {
            return Err(RemovalError::Mode);
        }
        let everybody = config.everybody();
        if targets.is_empty() || !everybody.covers(targets) {
            return Err(RemovalError::Nobody);
        }
        Ok(Removal {
            everybody,
            signed: config.signed,
            targets,
            operator,
            phase: Phase::Standing,
            ballot: Ballot::default(),
            base: ProcessSet::EMPTY,
            remain: everybody.minus(targets),
            standings: vec![None; config.processes],
            absent: ProcessSet::EMPTY,
            told: ProcessSet::EMPTY,
            reports: vec![None; config.processes],
            committed: ProcessSet::EMPTY,
            cuts: Vec::new(),
        })
    }

    /// Returns the request that a process must be asked now, until it has answered.
    #[must_use]
    pub fn question(&self, process: ProcessId) -> Option<Ask> {
        let (place, remains) = (process.index(), self.remain.contains(process));
        match self.phase {
            Phase::Standing if remains && self.standings[place].is_none() && !self.absent.contains(process) => {
                Some(Ask::Stand)
            }
            Phase::Fencing if remains && self.reports[place].is_none() => {
                Some(Ask::Fence { ballot: self.ballot, base: self.base, targets: self.targets })
            }
            Phase::Fencing if self.targets.contains(process) && !self.told.contains(process) => Some(Ask::Leave),
            Phase::Committing if remains && !self.committed.contains(process) => {
                Some(Ask::Commit { ballot: self.ballot, cuts: self.cuts.clone() })
            }
            _ => None,
        }
    }

    /// Returns whether all processes that remain continue without the removed ones.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.phase == Phase::Done
    }

    /// Returns the processes that remain.
    #[must_use]
    pub fn remain(&self) -> ProcessSet {
        self.remain
    }

    /// Returns the decisions. They are empty before all members have reported, and if there was nothing to do.
    #[must_use]
    pub fn cuts(&self) -> &[Cut] {
        &self.cuts
    }

    /// Records that a process cannot be reached.
    ///
    /// # Errors
    /// Returns [`RemovalError::Unreachable`] if the process remains. In the phase *standing* that becomes known when
    /// all others have answered. The call that ends this phase may also return another [`RemovalError`].
    pub fn absent(&mut self, process: ProcessId) -> Result<(), RemovalError> {
        if self.targets.contains(process) {
            self.told.insert(process);
            return self.go_on();
        }
        self.absent.insert(process);
        // A process that was removed before need not answer. Whether it was is known once the others have answered.
        if self.phase == Phase::Standing { self.go_on() } else { Err(RemovalError::Unreachable(process)) }
    }

    /// Processes an answer.
    ///
    /// # Errors
    /// See [`RemovalError`].
    pub fn answered(&mut self, process: ProcessId, answer: Answer) -> Result<(), RemovalError> {
        if self.targets.contains(process) {
            // The answer of a process that is to be removed is ignored, because that process may lie.
            self.told.insert(process);
            return self.go_on();
        }
        match answer {
            Answer::Standing(standing) if self.phase == Phase::Standing => {
                self.standings[process.index()] = Some(standing);
            }
            Answer::Report { ballot, holdings } if self.phase == Phase::Fencing && ballot == self.ballot => {
                self.reports[process.index()] = Some(holdings);
            }
            // The process was asked to leave before. Unless the others have removed it, it counts as unreachable.
            Answer::Left if self.phase == Phase::Standing => self.absent.insert(process),
            Answer::Committed if self.phase == Phase::Committing => self.committed.insert(process),
            Answer::Refused(refusal) => return Err(RemovalError::Refused(process, refusal)),
            // The answer is late, or the fence has not taken effect yet.
            _ => return Ok(()),
        }
        self.go_on()
    }

    fn go_on(&mut self) -> Result<(), RemovalError> {
        let all = |set: ProcessSet, has: &dyn Fn(ProcessId) -> bool| set.iter().all(has);
        match self.phase {
            Phase::Standing => {
                let heard = |p: ProcessId| self.standings[p.index()].is_some() || self.absent.contains(p);
                if all(self.remain, &heard) { self.begin() } else { Ok(()) }
            }
            Phase::Fencing => {
                let reported = all(self.remain, &|p| self.reports[p.index()].is_some());
                if !reported || !self.told.covers(self.targets) {
                    return Ok(());
                }
                self.cuts = self.targets.iter().map(|target| self.decide(target)).collect::<Result<_, _>>()?;
                self.phase = Phase::Committing;
                Ok(())
            }
            Phase::Committing if self.committed.covers(self.remain) => {
                self.phase = Phase::Done;
                Ok(())
            }
            Phase::Committing | Phase::Done => Ok(()),
        }
    }

    /// Decides whether the removal may begin, once all reachable processes have reported their standing.
    fn begin(&mut self) -> Result<(), RemovalError> {
        let before = self.standings.iter().flatten().fold(ProcessSet::EMPTY, |all, one| all.or(one.removed));
        // A process that was removed before has no vote, whether it answers or not.
        self.remain = self.remain.minus(before);
        if let Some(absent) = self.remain.iter().find(|p| self.absent.contains(*p)) {
            return Err(RemovalError::Unreachable(absent));
        }
        let standings: Vec<Standing> = self.remain.iter().filter_map(|p| self.standings[p.index()]).collect();
        // Only processes that remain are trusted about earlier removals.
        let known = standings.iter().fold(ProcessSet::EMPTY, |all, one| all.or(one.removed));
        if known != before {
            return Err(RemovalError::HalfWay(before.minus(known)));
        }
        let (mut everywhere, mut begun, mut promised) = (self.everybody, ProcessSet::EMPTY, Ballot::default());
        for standing in &standings {
            everywhere = everywhere.and(standing.removed);
            begun = begun.or(standing.fenced).or(standing.removed);
            promised = promised.max(standing.promised);
        }
        self.base = everywhere;
        let half_way = begun.minus(everywhere).minus(self.targets);
        if !half_way.is_empty() {
            return Err(RemovalError::HalfWay(half_way));
        }
        let (remain, members) = (self.remain.len(), self.everybody.minus(everywhere).len());
        if 2 * remain <= members {
            return Err(RemovalError::Minority { remain, members });
        }
        self.ballot = Ballot { round: promised.round + 1, operator: self.operator };
        self.phase = if everywhere.covers(self.targets) { Phase::Done } else { Phase::Fencing };
        Ok(())
    }

    /// Returns the end and the content of a stream. They follow from the reports, so every operator reaches the same
    /// result.
    fn decide(&self, sender: ProcessId) -> Result<Cut, RemovalError> {
        let (mut frozen, mut lowest) = (Vec::new(), u64::MAX);
        for process in self.remain.iter() {
            for holding in self.reports[process.index()].iter().flatten() {
                match holding {
                    Holding::Decided(cut) if cut.sender == sender => return Ok(cut.clone()),
                    Holding::Frozen { sender: of, head, ended, values } if *of == sender => {
                        let values: BTreeMap<u64, &Kept> = values.iter().map(|kept| (kept.0, kept)).collect();
                        lowest = lowest.min(*head);
                        frozen.push(Frozen { process, head: *head, ended: *ended, values });
                    }
                    _ => {}
                }
            }
        }
        let delivered = frozen.iter().map(|frozen| frozen.head).max().unwrap_or(0);
        let (mut upto, mut values) = (delivered, Vec::new());
        // A member that is far behind lacks values that no member keeps any more. It skips them.
        let kept: BTreeSet<u64> = frozen.iter().flat_map(|frozen| frozen.values.keys().copied()).collect();
        for index in kept.range(lowest.min(delivered)..delivered).copied() {
            let mut by = frozen.iter().filter(|frozen| frozen.head > index).filter_map(|frozen| frozen.at(index));
            let Some((first, value)) = by.next() else { continue };
            if let Some((other, _)) = by.find(|(_, other)| !self.same(value, other)) {
                return Err(RemovalError::Split { sender, index, by: (first, other) });
            }
            values.push((index, value.clone()));
        }
        loop {
            let mut holders = frozen.iter().filter_map(|frozen| frozen.at(upto));
            let Some((_, value)) = holders.next() else { break };
            let ended = frozen.iter().any(|frozen| frozen.ended.is_some_and(|ended| ended <= upto));
            if ended || holders.any(|(_, other)| !self.same(value, other)) {
                break;
            }
            values.push((upto, value.clone()));
            upto += 1;
        }
        Ok(Cut { sender, upto, values })
    }

    fn same(&self, one: &[u64], other: &[u64]) -> bool {
        content(one, self.signed) == content(other, self.signed)
    }
}

/// One member's report about one stream.
struct Frozen<'a> {
    process: ProcessId,
    head: u64,
    ended: Option<u64>,
    values: BTreeMap<u64, &'a Kept>,
}

impl Frozen<'_> {
    fn at(&self, index: u64) -> Option<(ProcessId, &Vec<u64>)> {
        self.values.get(&index).map(|kept| (self.process, &kept.1))
    }
}
