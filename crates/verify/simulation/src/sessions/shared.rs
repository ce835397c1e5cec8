//! The state that all processes of a session run share.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Transcript, World};
use stentor_multicast::{ClientId, Delivered, GroupId, Topology};
use stentor_session::Sessions;

use super::counts::SessionCounts;
use super::disk::Disk;
use super::ledger::Ledger;
use super::machine::Machine;
use super::mutant::Mutant;
use super::scenario::{Scenario, UPGRADES_EACH};
use super::story::Story;
use super::workload::Workload;
use crate::clocks::Clocks;
use crate::nemesis::Nemesis;
use crate::progress::Progress;

/// The state that all processes of a run share.
pub(super) struct Shared {
    pub(super) world: World,
    pub(super) progress: RefCell<Progress>,
    pub(super) nemesis: RefCell<Nemesis>,
    pub(super) clocks: RefCell<Clocks>,
    pub(super) ledger: RefCell<Ledger>,
    pub(super) counts: RefCell<SessionCounts>,
    /// The persistent data of each client id.
    pub(super) disks: Vec<RefCell<Disk>>,
    pub(super) topology: Arc<Topology>,
    pub(super) scenario: Scenario,
    pub(super) salt: u64,
    pub(super) mutant: Mutant,
    pub(super) messages: Cell<u64>,
    pub(super) deliveries: Cell<u64>,
    pub(super) tokens: Cell<u64>,
    pub(super) transcript: RefCell<Option<Transcript>>,
    /// Creates the state machine that members replicate.
    pub(super) machine: Box<dyn Fn(GroupId) -> Box<dyn Machine>>,
    pub(super) workload: Rc<RefCell<dyn Workload>>,
    /// The story of the run in words, if it is requested.
    pub(super) story: RefCell<Option<Story>>,
    /// The stamp of the last event of a client.
    pub(super) stamp: Cell<u64>,
    /// Number of times that a member became the leader of its group.
    pub(super) leaders: Cell<u64>,
    /// Number of states of other members that members installed.
    pub(super) restores: Cell<u64>,
    /// The position after which a member last repeated all replies to a client.
    pub(super) said_again: RefCell<BTreeMap<(ProcessId, ClientId), u64>>,
    /// The times at which each process gets a newer program, by process.
    pub(super) programs: Vec<[u64; UPGRADES_EACH]>,
}

impl Shared {
    /// Returns an empty table of a group.
    pub(super) fn table(&self, group: GroupId) -> Sessions {
        Sessions::new(group, self.scenario.sessions).with_mutant(self.mutant.of_sessions())
    }

    /// Returns the version of a process's program. An upgrade takes no time, and no process returns to an older program.
    pub(super) fn program_of(&self, process: ProcessId, now_ns: u64) -> u32 {
        1 + self.programs[process.index()].iter().filter(|at| **at <= now_ns).count() as u32
    }

    /// Returns the version goal that a member reports: the smallest version of the programs of its group.
    pub(super) fn goal_of(&self, group: GroupId, me: ProcessId, now_ns: u64) -> u32 {
        if self.mutant.knows_only_its_own_version() {
            return self.program_of(me, now_ns);
        }
        self.topology.members(group).map(|process| self.program_of(process, now_ns)).min().unwrap_or(0)
    }

    /// Returns the client that multicast a message, or `None` for a time entry.
    pub(super) fn sender_of(&self, delivered: &Delivered<'_>) -> Option<ClientId> {
        Some(delivered.id.client).filter(|client| self.topology.entry_group(*client).is_none())
    }

    /// Returns the token of a new command or query, from 1.
    pub(super) fn next_token(&self) -> u64 {
        self.tokens.set(self.coming_token());
        self.tokens.get()
    }

    /// Returns the token that the next call will have.
    pub(super) fn coming_token(&self) -> u64 {
        self.tokens.get() + 1
    }

    pub(super) fn are_all_done(&self) -> bool {
        self.disks.iter().all(|disk| disk.borrow().done)
    }

    /// Returns a stamp for an event of a client. It is the virtual time, or the number after the last stamp if that is
    /// later. So no two events have the same stamp.
    pub(super) fn next_stamp(&self) -> u64 {
        self.stamp.set(self.world.now_ns().max(self.stamp.get() + 1));
        self.stamp.get()
    }

    /// Adds a line to the story, after the log of the nemesis up to now.
    pub(super) fn tell(&self, what: impl FnOnce() -> String) {
        if let Some(story) = &mut *self.story.borrow_mut() {
            story.follow(self.nemesis.borrow().log());
            story.push(format!("{:.1} µs: {}", self.world.now_ns() as f64 / 1e3, what()));
        }
    }

    /// Adds the violations since the last call to the story.
    pub(super) fn tell_violations(&self) {
        if self.story.borrow().is_some() {
            let mut news = self.ledger.borrow_mut().news();
            news.extend(self.workload.borrow_mut().news());
            for violation in news {
                self.tell(|| format!("VIOLATION: {violation}"));
            }
        }
    }

    /// Adds a line to the transcript.
    pub(super) fn record(&self, what: &str, now_ns: u64, who: ProcessId, numbers: &[u64]) {
        if let Some(transcript) = &mut *self.transcript.borrow_mut() {
            transcript.line(what, &[&[now_ns, who.0.into()], numbers].concat(), &[]);
        }
    }
}
