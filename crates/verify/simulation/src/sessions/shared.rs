//! What all processes of a run share.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Transcript, World};
use stentor_multicast::{GroupId, Topology};
use stentor_session::Sessions;

use super::counts::SessionCounts;
use super::disk::Disk;
use super::ledger::Ledger;
use super::mutant::Mutant;
use super::scenario::Scenario;
use crate::clocks::Clocks;
use crate::nemesis::Nemesis;
use crate::progress::Progress;

/// What all processes of a run share.
pub(super) struct Shared {
    pub(super) world: World,
    pub(super) progress: RefCell<Progress>,
    pub(super) nemesis: RefCell<Nemesis>,
    pub(super) clocks: RefCell<Clocks>,
    pub(super) ledger: RefCell<Ledger>,
    pub(super) counts: RefCell<SessionCounts>,
    /// By client.
    pub(super) disks: Vec<RefCell<Disk>>,
    pub(super) topology: Arc<Topology>,
    pub(super) scenario: Scenario,
    pub(super) salt: u64,
    pub(super) mutant: Mutant,
    pub(super) messages: Cell<u64>,
    pub(super) deliveries: Cell<u64>,
    pub(super) tokens: Cell<u64>,
    pub(super) transcript: RefCell<Option<Transcript>>,
}

impl Shared {
    /// An empty table of a group.
    pub(super) fn table(&self, group: GroupId) -> Sessions {
        Sessions::new(group, self.scenario.sessions).with_mutant(self.mutant.of_sessions())
    }

    /// The number of another command or query, from 1.
    pub(super) fn next_token(&self) -> u64 {
        self.tokens.set(self.coming_token());
        self.tokens.get()
    }

    /// The number that the next one will have.
    pub(super) fn coming_token(&self) -> u64 {
        self.tokens.get() + 1
    }

    pub(super) fn are_all_done(&self) -> bool {
        self.disks.iter().all(|disk| disk.borrow().done)
    }

    /// Adds to the transcript.
    pub(super) fn record(&self, what: &str, now_ns: u64, who: ProcessId, numbers: &[u64]) {
        if let Some(transcript) = &mut *self.transcript.borrow_mut() {
            transcript.line(what, &[&[now_ns, who.0.into()], numbers].concat(), &[]);
        }
    }
}
