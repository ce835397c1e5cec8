//! A user's service, which is run under the faults of a seed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use stentor_multicast::{GroupId, NodeError};

use super::ledger::{AppliedCalls, Passed};
use super::machine::Machine;
use super::mutant::Mutant;
use super::note_ledger::Notes;
use super::run::{self, Parts, RunReport};
use super::scenario::{Scenario, Shape};
use super::story::Story;
use super::workload::Workload;
use crate::record::{Record, SeedHashes};

/// A service that is run under the faults of a seed.
pub struct Service {
    /// The cluster and the load.
    pub shape: Shape,
    /// Creates a member's state machine, in the initial state of its group.
    pub machine: Box<dyn Fn(GroupId) -> Box<dyn Machine>>,
    /// The calls of the clients.
    pub workload: Rc<RefCell<dyn Workload>>,
    /// A mutant of the code around the service.
    pub mutant: Mutant,
}

/// The result of one seed.
#[derive(Debug)]
pub struct ServiceRun {
    /// The verdicts and the counts of the run.
    pub report: RunReport,
    /// The hashes of the transcripts, if they were requested.
    pub hashes: SeedHashes,
    /// The positions at which each call was applied.
    pub applied: AppliedCalls,
    /// The positions that members passed, by group and number.
    pub passed: BTreeMap<(GroupId, u64), Passed>,
    /// The notifications that machines sent, by group and number.
    pub notes: BTreeMap<(GroupId, u64), Notes>,
    /// `true` if the values of two members differed, and not only the data kept for sessions.
    pub values_differ: bool,
    /// The story of the run in words, if it was requested. A long run keeps only the end.
    pub story: Vec<String>,
    /// Number of times that a member became the leader of its group.
    pub leaders: u64,
    /// Number of states of other members that members installed.
    pub restores: u64,
}

impl Service {
    /// Runs a seed. If `tells` is `true`, the result contains the story and the hashes.
    ///
    /// # Errors
    /// Returns a [`NodeError`] if the shape is invalid.
    ///
    /// # Panics
    /// Panics if groups and clients of the shape are not a valid [`Topology`](stentor_multicast::Topology).
    pub fn run(self, seed: u64, tells: bool) -> Result<ServiceRun, NodeError> {
        let Service { shape, machine, workload, mutant } = self;
        let scenario = Scenario { time_entries: true, ..Scenario::of_shape(seed, &shape) };
        let story = tells.then(Story::default);
        let recovery_steps = shape.recovery_steps();
        let parts = Parts { scenario, of_tally: false, machine, workload, story, recovery_steps };
        let record = if tells { Record::Hashes } else { Record::Nothing };
        let mut ended = run::run(seed, parts, mutant, record)?;
        let values_differ = ended.ledger.do_values_differ();
        let (applied, passed, notes) = ended.ledger.into_places();
        let (report, hashes) = (ended.report, ended.recorded.hashes());
        let (story, leaders, restores) = (ended.story, ended.leaders, ended.restores);
        Ok(ServiceRun { report, hashes, applied, passed, notes, values_differ, story, leaders, restores })
    }
}
