//! A member's part in changes of leadership: it follows, campaigns, leads, or installs a state.

use super::campaign::Campaign;
use super::install::Install;
use super::probe::StaleLeaderProbe;
use crate::peer_message::Joiner;

/// The stage of a member in a change of leadership.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum Stage {
    /// The member follows. Joining and superseded processes are in this stage, too, unless they campaign or install a
    /// state.
    Idle,
    /// The member collects promises.
    Campaigning(Box<Campaign>),
    /// The member has installed the state of its own ballot, and leads as soon as a majority has it.
    Preparing,
    /// The member leads.
    Leading,
    /// The member waits for the bodies that a leader's state needs, or for the application's state.
    Installing(Box<Install>),
}

/// A member's part in changes of its group's leader.
///
/// # States
/// The states of [`Stage`]. A promise of a larger ballot ends each of them.
///
/// # Invariants
/// - `Campaigning`, `Preparing` and `Leading` occur only in a promised ballot of the member's own, and `Installing`
///   only in one of another member.
/// - `Preparing` and `Leading` occur only in an installed ballot.
/// - `admitted` and `installed` have a meaning only in `Preparing` and `Leading`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Leadership {
    pub(super) stage: Stage,
    /// Processes that the ballot led by this member admits.
    pub(super) admitted: Vec<Joiner>,
    /// Members that have installed the ballot led by this member, as a bit mask.
    pub(super) installed: u64,
    pub(super) probe: StaleLeaderProbe,
    /// Ticks since messages were last repeated.
    pub(super) age: u8,
    /// The smallest version among the programs of the group's members, as far as this member knows; 0 if it does not
    /// know.
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

    /// Returns whether this member leads the installed ballot, or will lead it as soon as a majority has its state.
    pub(super) fn owns_ballot(&self) -> bool {
        matches!(self.stage, Stage::Preparing | Stage::Leading)
    }

    /// Returns the campaign in progress.
    pub(super) fn campaign(&mut self) -> Option<&mut Campaign> {
        if let Stage::Campaigning(campaign) = &mut self.stage { Some(campaign) } else { None }
    }
}
