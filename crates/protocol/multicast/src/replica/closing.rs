//! What a leader has done so far to let another process take a client's place.

use crate::GroupSet;
use crate::peer_message::Opening;

/// What a leader does about one client's place. It ends with the leader's ballot.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Closing {
    /// The process that wants to begin, with its generation, if there is one.
    pub(super) asked: Option<(u64, Opening)>,
    /// What each member holds that has stopped taking from earlier processes.
    pub(super) answers: Vec<Answer>,
    /// Ticks since the members were asked, or since the entry was appended.
    pub(super) age: u8,
    /// Members that processed the entry, when it is appended.
    pub(super) processed_by: u64,
    /// Other groups are asked whether they are done with generations below this; 0: they are not asked.
    pub(super) retiring_below: u64,
    /// The groups that are done.
    pub(super) retired: GroupSet,
    /// Ticks since they were asked.
    pub(super) retiring_age: u8,
}

/// A member's word that it takes nothing more of earlier processes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Answer {
    /// Its bit.
    pub(super) member: u64,
    /// Slots and sequences that it held then, unassigned.
    pub(super) held: Vec<(u64, u64)>,
}

impl Closing {
    /// Forgets who asked.
    pub(super) fn end(&mut self) {
        self.asked = None;
        self.answers.clear();
        self.age = 0;
    }

    /// Takes a member's answer in place of its last one.
    pub(super) fn take(&mut self, answer: Answer) {
        self.answers.retain(|known| known.member != answer.member);
        self.answers.push(answer);
    }
}
