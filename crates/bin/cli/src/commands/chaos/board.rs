//! The members' states, and the groups that have a connected majority. This module is pure: times are arguments, in
//! milliseconds.

/// The state of a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// The member's first process does not have its group's state yet.
    Starting,
    Ready,
    /// The member is stopped by SIGSTOP.
    Stopped,
    /// SIGTERM was sent to the member's process.
    Ending,
    /// The member has no process.
    Killed,
    /// A later process of the member does not have its group's state yet.
    Restarting,
    /// The member was continued, or its cut was healed, and it has not answered since.
    Returning,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            State::Starting => "starting",
            State::Ready => "ready",
            State::Stopped => "stopped",
            State::Ending => "ending",
            State::Killed => "killed",
            State::Restarting => "restarting",
            State::Returning => "returning",
        }
    }

    /// Returns whether the member is expected to become ready without further action.
    pub(super) fn is_coming(self) -> bool {
        matches!(self, State::Starting | State::Restarting | State::Returning)
    }
}

/// One member of the cluster.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) group: usize,
    pub(super) state: State,
    /// Time at which the member entered its state.
    pub(super) since: u64,
    /// `true` if all packets from or to some other process are lost.
    pub(super) cut: bool,
    /// `true` if some packets are lost.
    pub(super) lossy: bool,
    /// Time since which the member's clock is wrong. A new process has the same clock.
    pub(super) wrong: Option<u64>,
}

impl Member {
    /// Returns whether the member is ready and connected, and its clock is right.
    pub(super) fn is_sound(&self) -> bool {
        self.runs() && self.wrong.is_none()
    }

    /// Returns whether the member has been ready all the time since `since`.
    pub(super) fn is_ready_since(&self, since: u64) -> bool {
        self.state == State::Ready && self.since <= since
    }

    /// Returns whether the member is ready and connected, whatever its clock shows.
    fn runs(&self) -> bool {
        self.state == State::Ready && !self.cut
    }
}

/// All members, indexed by process, and their groups.
#[derive(Clone, Debug)]
pub(super) struct Board {
    members: Vec<Member>,
    sizes: Vec<usize>,
    /// The time since which each group has had a majority of sound members.
    good: Vec<Option<u64>>,
}

impl Board {
    /// Creates a board on which all members are starting.
    pub(super) fn new(sizes: &[usize]) -> Self {
        let member = |group| Member { group, state: State::Starting, since: 0, cut: false, lossy: false, wrong: None };
        let members = sizes.iter().enumerate().flat_map(|(group, size)| (0..*size).map(move |_| member(group)));
        Board { members: members.collect(), sizes: sizes.to_vec(), good: vec![None; sizes.len()] }
    }

    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(super) fn groups(&self) -> usize {
        self.sizes.len()
    }

    /// Returns the members of a group.
    pub(super) fn of(&self, group: usize) -> std::ops::Range<usize> {
        let first = self.sizes[..group].iter().sum();
        first..first + self.sizes[group]
    }

    pub(super) fn set(&mut self, now: u64, member: usize, state: State) {
        let it = &mut self.members[member];
        (it.state, it.since) = (state, now);
        if !matches!(state, State::Ready | State::Stopped | State::Returning) {
            // A new process has no faults of the network.
            (it.cut, it.lossy) = (false, false);
        }
        self.update(now);
    }

    pub(super) fn set_cut(&mut self, now: u64, member: usize, cut: bool) {
        self.members[member].cut = cut;
        self.update(now);
    }

    pub(super) fn set_wrong(&mut self, now: u64, member: usize, wrong: bool) {
        self.members[member].wrong = wrong.then_some(now);
        self.update(now);
    }

    pub(super) fn set_lossy(&mut self, member: usize, lossy: bool) {
        self.members[member].lossy = lossy;
    }

    fn update(&mut self, now: u64) {
        for group in 0..self.sizes.len() {
            let good = self.unsound(group) <= minority(self.sizes[group]);
            self.good[group] = if good { self.good[group].or(Some(now)) } else { None };
        }
    }

    fn unsound(&self, group: usize) -> usize {
        self.of(group).filter(|member| !self.members[*member].is_sound()).count()
    }

    /// Returns the time since which each group has had a majority of sound members.
    pub(super) fn good(&self) -> &[Option<u64>] {
        &self.good
    }

    /// Returns whether this member runs and its group keeps a majority without it. A member whose clock is wrong
    /// already counts as failed.
    pub(super) fn can_spare(&self, member: usize) -> bool {
        let it = &self.members[member];
        let others = self.unsound(it.group) - usize::from(!it.is_sound());
        it.runs() && others < minority(self.sizes[it.group])
    }

    /// Returns whether all members are sound.
    pub(super) fn is_whole(&self) -> bool {
        self.members.iter().all(Member::is_sound)
    }
}

/// Returns how many members of a group of `size` may fail.
pub(super) fn minority(size: usize) -> usize {
    size.saturating_sub(1) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_good_while_a_majority_is_ready_and_not_cut() {
        let mut board = Board::new(&[3, 1]);
        assert_eq!(board.good(), [None, None]);
        board.set(5, 0, State::Ready);
        board.set(6, 1, State::Ready);
        board.set(7, 3, State::Ready);
        assert_eq!(board.good(), [Some(6), Some(7)]);
        assert!(!board.can_spare(0), "the third has not joined yet");
        board.set(8, 2, State::Ready);
        assert_eq!(board.good(), [Some(6), Some(7)]);
        assert!(board.can_spare(0) && !board.can_spare(3));
        board.set(9, 0, State::Stopped);
        assert!(!board.can_spare(1), "one is stopped");
        board.set_cut(10, 1, true);
        assert_eq!(board.good(), [None, Some(7)]);
        board.set_cut(20, 1, false);
        assert_eq!(board.good(), [Some(20), Some(7)], "the time starts again");
    }

    #[test]
    fn wrong_clock_uses_the_budget_and_survives_a_restart() {
        let mut board = Board::new(&[3]);
        (0..3).for_each(|member| board.set(0, member, State::Ready));
        board.set_wrong(1, 0, true);
        assert_eq!(board.good(), [Some(0)]);
        assert!(board.can_spare(0) && !board.can_spare(1), "a member with a wrong clock may be killed, too");
        board.set(2, 0, State::Killed);
        board.set(3, 0, State::Ready);
        assert!(!board.members()[0].is_sound() && !board.can_spare(1));
        board.set_wrong(4, 0, false);
        assert!(board.is_whole() && board.can_spare(1));
    }

    #[test]
    fn restarted_process_has_no_network_faults() {
        let mut board = Board::new(&[3]);
        board.set_cut(1, 0, true);
        board.set_lossy(0, true);
        board.set(2, 0, State::Killed);
        assert!(!board.members()[0].cut && !board.members()[0].lossy);
    }
}
