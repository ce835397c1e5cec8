//! A leader's progress in letting another process take over a client id.

use crate::GroupSet;
use crate::peer_message::Opening;

/// The leader's progress for one client id. It ends with the leader's ballot.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Closing {
    /// The request to close the earlier processes, and the generation that the next process would get; `None` if there
    /// is no request. A request that comes from another group, and not from a process, has the life 0.
    pub(super) asked: Option<(u64, Opening)>,
    /// The answers of members that have closed the earlier processes.
    pub(super) answers: Vec<Answer>,
    /// Ticks since the members were asked, or since the entry was appended.
    pub(super) age: u8,
    /// Members that have processed the appended entry, as a bit mask.
    pub(super) processed_by: u64,
    /// The generation below which other groups are asked whether all messages are settled; 0 if they are not asked.
    pub(super) retiring_below: u64,
    /// The groups that have settled all messages of generations below `retiring_below`.
    pub(super) retired: GroupSet,
    /// Ticks since the other groups were asked.
    pub(super) retiring_age: u8,
}

/// A member's answer that it accepts no more messages of earlier processes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Answer {
    /// The member's bit.
    pub(super) member: u64,
    /// Slots and sequences of the unassigned messages that the member held when it answered.
    pub(super) held: Vec<(u64, u64)>,
}

impl Closing {
    /// Drops the request and its answers.
    pub(super) fn end(&mut self) {
        self.asked = None;
        self.answers.clear();
        self.age = 0;
    }

    /// Stores a member's answer in place of its last one.
    pub(super) fn take(&mut self, answer: Answer) {
        self.answers.retain(|known| known.member != answer.member);
        self.answers.push(answer);
    }
}
