//! A service of somebody else's under the faults of a seed.

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

/// A service, which is run under the faults of a seed.
pub struct Service {
    /// The cluster.
    pub shape: Shape,
    /// Makes a member's machine, in the state with which its group begins.
    pub machine: Box<dyn Fn(GroupId) -> Box<dyn Machine>>,
    /// The clients.
    pub workload: Rc<RefCell<dyn Workload>>,
    /// A planted bug of what is around them.
    pub mutant: Mutant,
}

/// What came of one seed.
#[derive(Debug)]
pub struct ServiceRun {
    /// What the properties say of it, and what happened how often.
    pub report: RunReport,
    /// The hashes of the transcripts, if they were asked for.
    pub hashes: SeedHashes,
    /// Where each call was applied.
    pub applied: AppliedCalls,
    /// The places that members passed, by group and number.
    pub passed: BTreeMap<(GroupId, u64), Passed>,
    /// What machines notified sessions of, by the same.
    pub notes: BTreeMap<(GroupId, u64), Notes>,
    /// The values of two members differed, and not only what they keep for sessions.
    pub values_differ: bool,
    /// What happened, in words, if it was asked for; of a long run the end.
    pub story: Vec<String>,
    /// Times that a member became the leader of its group.
    pub leaders: u64,
    /// States of others that members took over.
    pub restores: u64,
}

impl Service {
    /// Runs a seed. `tells`: with the story and the hashes.
    ///
    /// # Errors
    /// [`NodeError`], if the shape is impossible.
    ///
    /// # Panics
    /// If groups and clients of the shape are no [`Topology`](stentor_multicast::Topology).
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
