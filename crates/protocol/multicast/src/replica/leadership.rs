//! What a member does besides processing messages: campaign, lead, or install a state.

use super::campaign::Campaign;
use super::install::Install;
use super::probe::StaleLeaderProbe;
use crate::peer_message::Joiner;

/// What a member is doing besides processing messages.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Stage {
    /// Nothing: it follows.
    Idle,
    /// Asks for promises.
    Campaigning(Box<Campaign>),
    /// Has the state of its own ballot, and leads as soon as a majority has it.
    Preparing,
    /// Leads.
    Leading,
    /// Waits for what a leader's state needs.
    Installing(Box<Install>),
}

/// A member's part in changes of its group's leader.
///
/// # States
/// Those of [`Stage`]. A promise of a larger ballot ends each of them.
///
/// # Invariants
/// - `Campaigning`, `Preparing` and `Leading` only in a promised ballot of its own; `Installing` only in one of another.
/// - `Preparing` and `Leading` only in a ballot that is installed.
/// - `admitted` and `installed` mean something only in the last two.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Leadership {
    pub(super) stage: Stage,
    /// Processes that the ballot led from here takes in.
    pub(super) admitted: Vec<Joiner>,
    /// Members that have installed the ballot led from here.
    pub(super) installed: u64,
    pub(super) probe: StaleLeaderProbe,
    /// Ticks since messages were repeated.
    pub(super) age: u8,
    /// The version of the application that all members have, as this member knows; 0: it does not.
    pub(super) version_goal: u32,
}

impl Leadership {
    pub(super) fn new() -> Self {
        let probe = StaleLeaderProbe::default();
        Leadership { stage: Stage::Idle, admitted: Vec::new(), installed: 0, probe, age: 0, version_goal: 0 }
    }

    #[inline]
    pub(super) fn leads(&self) -> bool {
        matches!(self.stage, Stage::Leading)
    }

    /// Whether the installed ballot is led from here, or will be as soon as a majority has its state.
    pub(super) fn owns_ballot(&self) -> bool {
        matches!(self.stage, Stage::Preparing | Stage::Leading)
    }

    /// The campaign under way.
    pub(super) fn campaign(&mut self) -> Option<&mut Campaign> {
        if let Stage::Campaigning(campaign) = &mut self.stage { Some(campaign) } else { None }
    }
}
