//! Judges whether a majority of a member's group works, as far as the member can see.
//!
//! It is not enough that the other members' processes exist. A stopped process keeps its sockets, and a restarted
//! process has no memory of its group until it has joined. Another member therefore counts while its heartbeat advances
//! and it stands for election. A member of which no earlier process was seen also counts for a while after it appears,
//! even if it has not stood for election yet. If the election does not report who stands, a member counts while its
//! process exists.

use std::time::Duration;

use stentor_fabric::ProcessId;

/// Lower bound of the time for which a member may be silent, however short the election's timeouts are.
const PATIENCE: Duration = Duration::from_secs(2);
/// Number of patiences for which a young member counts although it has not stood for election. Its heartbeat must
/// advance, and no earlier process of it may have been seen to end. A member with its group's state stands within the
/// election's longest timeout.
const YOUNG: u32 = 2;
/// Time between two looks after which this process assumes that it was itself stopped, and waits for new heartbeats of
/// the others.
const PAUSE: Duration = Duration::from_secs(1);

/// An observation of another member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// `true` if the member's process exists.
    pub(super) here: bool,
    /// Time of the member's last heartbeat, or `None` before the first one.
    pub(super) heard: Option<Duration>,
    /// `true` if the member stands for election, which a member without memory does not do. `None` if the election does
    /// not report it.
    pub(super) stands: Option<bool>,
}

/// State of another member, as far as it can be seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// The member works.
    Works,
    /// The member's process exists, but its heartbeat has stopped or none has come yet.
    Silent {
        /// `true` if the member is known or assumed to have its group's state.
        remembers: bool,
    },
    /// The member has just returned, and may be joining.
    Starting,
    /// The member's process exists and is not known to be silent, but the member has not shown that it has its group's
    /// state.
    Without,
    /// The member's process does not exist.
    Gone,
}

/// This process's knowledge of its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// This process waits for the group's state.
    Nothing,
    /// This process has the state, but no current ballot: the group has just begun, or a ballot is being changed.
    State,
    /// This process has the state of a ballot that a majority has promised, so a majority has existed.
    Ballot,
}

/// Another member of the group.
#[derive(Debug)]
struct Other {
    process: ProcessId,
    here: bool,
    /// Time since which the member's process exists.
    since: Duration,
    /// `true` if an earlier process of this member existed. The member then counts as one without memory until it
    /// proves that it has its group's state.
    returned: bool,
    /// Time at which the member was last known or assumed to work.
    worked: Option<Duration>,
    /// `true` if the member has proved that it works. Otherwise this is only assumed.
    proved: bool,
    /// Time of the member's last heartbeat in this life.
    beat: Option<Duration>,
    /// `true` if the member has stood for election in this life.
    stood: bool,
    /// `true` if the member stopped standing for election before its process ended, which means that it was asked to
    /// stop.
    bowed: bool,
}

/// A change of the majority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// The majority was lost.
    Lost,
    /// There is a majority again.
    Back,
}

/// The other members of a group, and whether enough of them work.
#[derive(Debug)]
pub(super) struct Majority {
    others: Vec<Other>,
    needed: usize,
    patience: Duration,
    /// Time of the last look.
    now: Duration,
    /// Time since which this process has looked without a pause.
    awake: Duration,
    /// `true` if this process has its group's state.
    remembers: bool,
    /// `true` if there was a majority at the last look, `false` if it was lost, `None` if there was none yet.
    stood: Option<bool>,
}

impl Majority {
    /// Creates the view before the first heartbeat. A leader that is silent for longer than `timeout` is replaced.
    pub(super) fn new(others: impl Iterator<Item = ProcessId>, needed: usize, timeout: Duration) -> Self {
        let other = |process| Other {
            process,
            here: false,
            since: Duration::ZERO,
            returned: false,
            worked: None,
            proved: false,
            beat: None,
            stood: false,
            bowed: false,
        };
        Majority {
            others: others.map(other).collect(),
            needed,
            patience: timeout.max(PATIENCE),
            now: Duration::ZERO,
            awake: Duration::ZERO,
            remembers: false,
            stood: None,
        }
    }

    /// Observes all other members. Returns the change of the majority since the last look.
    pub(super) fn look(&mut self, now: Duration, own: Own, see: impl Fn(ProcessId) -> Seen) -> Option<Change> {
        if now.saturating_sub(self.now) > PAUSE {
            self.awake = now;
        }
        (self.now, self.remembers) = (now, own != Own::Nothing);
        let young = YOUNG * self.patience;
        self.others.iter_mut().for_each(|other| other.look(now, see(other.process), young));
        let works = self.working() >= self.needed;
        let proved =
            self.remembers && works && self.others.iter().filter(|other| self.works(other)).all(|other| other.proved);
        let before = self.stood;
        match (before, works) {
            // If a ballot shows that a majority existed, it can be lost even before another member has proved that it
            // works.
            (None, true) if own == Own::Ballot || proved => self.stood = Some(true),
            (Some(true), false) => self.stood = Some(false),
            // Members that are only assumed to work do not restore a majority.
            (Some(false), true) if proved => self.stood = Some(true),
            _ => {}
        }
        match (before, self.stood) {
            (Some(true), Some(false)) => Some(Change::Lost),
            (Some(false), Some(true)) => Some(Change::Back),
            _ => None,
        }
    }

    fn works(&self, other: &Other) -> bool {
        let lately = |at: Duration| self.now.saturating_sub(at.max(self.awake)) <= self.patience;
        other.here && other.worked.is_some_and(lately)
    }

    /// Returns how many members work, this one included if it has the group's state.
    pub(super) fn working(&self) -> usize {
        usize::from(self.remembers) + self.others.iter().filter(|other| self.works(other)).count()
    }

    /// Returns the state of each other member.
    pub(super) fn shapes(&self) -> impl Iterator<Item = (ProcessId, Shape)> {
        self.others.iter().map(|other| (other.process, self.shape(other)))
    }

    fn shape(&self, other: &Other) -> Shape {
        match other {
            Other { here: false, .. } => Shape::Gone,
            // A process without state does not know which members have the state. It counts only those that prove it.
            other if self.works(other) && (self.remembers || other.proved) => Shape::Works,
            other if self.silence(other).is_some() => Shape::Silent { remembers: other.worked.is_some() },
            other if self.remembers && other.returned && self.now.saturating_sub(other.since) <= self.patience => {
                Shape::Starting
            }
            Other { beat: None, returned: false, .. } if self.remembers => Shape::Silent { remembers: true },
            _ => Shape::Without,
        }
    }

    /// Returns members whose processes exist but whose heartbeats have stopped, with the time since their last one, or
    /// since the last pause of this process if that is later.
    pub(super) fn silent(&self) -> impl Iterator<Item = (ProcessId, Duration)> {
        self.others.iter().filter_map(|other| Some((other.process, self.silence(other)?)))
    }

    fn silence(&self, other: &Other) -> Option<Duration> {
        let last = other.beat.filter(|_| other.here)?.max(self.awake);
        Some(self.now.saturating_sub(last)).filter(|silence| *silence > self.patience)
    }

    /// Returns whether a member that has ended was asked to stop.
    pub(super) fn stopped_in_order(&self, process: ProcessId) -> bool {
        self.others.iter().any(|other| other.process == process && other.bowed)
    }

    /// Returns whether a majority existed and was lost.
    pub(super) fn is_lost(&self) -> bool {
        self.stood == Some(false)
    }

    /// Returns whether this process has its group's state.
    pub(super) fn remembers(&self) -> bool {
        self.remembers
    }
}

impl Other {
    fn look(&mut self, now: Duration, seen: Seen, young: Duration) {
        let Seen { here, heard, stands } = seen;
        if !here {
            if self.here {
                // The state that the member published last can still be read after its process has ended.
                (self.returned, self.bowed) = (true, self.stood && stands == Some(false));
            }
            (self.here, self.worked, self.proved, self.beat) = (false, None, false, None);
            return;
        }
        if !self.here {
            (self.here, self.since, self.stood, self.bowed) = (true, now, false, false);
            self.worked = (!self.returned).then_some(now);
        }
        // Heartbeats from before the process returned belong to an earlier life.
        let heard = heard.filter(|at| *at >= self.since);
        self.beat = self.beat.max(heard);
        self.stood |= heard.is_some() && stands == Some(true);
        match (stands, heard) {
            (Some(true), Some(at)) => (self.worked, self.proved) = (self.worked.max(Some(at)), true),
            (None, _) => (self.worked, self.proved) = (Some(now), true),
            (Some(false), Some(at)) if !self.returned && !self.stood && at <= self.since + young => {
                self.worked = self.worked.max(Some(at));
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A group of three, as seen by its first member. Times are tenths of a second.
    struct Three {
        majority: Majority,
        seen: [Seen; 2],
    }

    impl Three {
        fn new() -> Self {
            Self::seeing(Seen { here: true, heard: None, stands: Some(true) })
        }

        fn seeing(seen: Seen) -> Self {
            let others = [1, 2].map(ProcessId).into_iter();
            Three { majority: Majority::new(others, 2, Duration::from_millis(500)), seen: [seen; 2] }
        }

        /// Looks every tenth of a second, while the members in `beating` send heartbeats. Returns the changes with
        /// their times.
        fn run(&mut self, tenths: std::ops::Range<u64>, own: Own, beating: &[u16]) -> Vec<(u64, Change)> {
            let mut changes = Vec::new();
            for tenth in tenths {
                let now = Duration::from_millis(100 * tenth);
                beating.iter().for_each(|process| self.seen[usize::from(*process) - 1].heard = Some(now));
                let see = |process: ProcessId| self.seen[process.index() - 1];
                changes.extend(self.majority.look(now, own, see).map(|change| (tenth, change)));
            }
            changes
        }
    }

    #[test]
    fn stopped_followers_are_reported_missing_once_and_back_once() {
        let mut three = Three::new();
        assert_eq!(three.run(0..100, Own::State, &[1, 2]), []);
        assert_eq!(three.run(100..200, Own::State, &[1]), [], "a majority is enough");
        assert_eq!(three.majority.silent().map(|(process, _)| process).collect::<Vec<_>>(), [ProcessId(2)]);
        let shapes: Vec<_> = three.majority.shapes().map(|(_, shape)| shape).collect();
        assert_eq!(shapes, [Shape::Works, Shape::Silent { remembers: true }]);
        assert_eq!(three.run(200..300, Own::State, &[]), [(220, Change::Lost)]);
        assert_eq!((three.majority.working(), three.majority.silent().count()), (1, 2));
        assert_eq!(three.run(300..400, Own::State, &[2]), [(300, Change::Back)]);
    }

    #[test]
    fn lost_majority_of_a_ballot_is_reported_before_any_beat() {
        let mut three = Three::seeing(Seen { here: true, heard: None, stands: Some(false) });
        assert_eq!(three.run(0..40, Own::Ballot, &[]), [(21, Change::Lost)]);
        let mut young = Three::new();
        young.seen = three.seen;
        assert_eq!(young.run(0..40, Own::State, &[]), [], "it has not begun");
    }

    #[test]
    fn own_pause_does_not_count_as_silence_of_others() {
        let mut three = Three::new();
        assert_eq!(three.run(0..100, Own::State, &[1, 2]), []);
        assert_eq!(three.run(900..910, Own::State, &[]), [], "the observer was stopped for 80 s");
        assert_eq!(three.run(910..1000, Own::State, &[]), [(921, Change::Lost)]);
    }

    #[test]
    fn members_without_memory_are_no_majority() {
        let mut three = Three::new();
        assert_eq!(three.run(0..10, Own::State, &[1, 2]), []);
        three.seen.iter_mut().for_each(|seen| seen.here = false);
        assert_eq!(three.run(10..11, Own::State, &[]), [(10, Change::Lost)]);
        // Both members are restarted, send heartbeats, and do not stand for election, because they have no memory.
        three.seen = [Seen { here: true, heard: None, stands: Some(false) }; 2];
        assert_eq!(three.run(11..20, Own::State, &[1, 2]), []);
        assert!(three.majority.shapes().all(|(_, shape)| shape == Shape::Starting), "they may be taken in");
        assert_eq!(three.run(20..100, Own::State, &[1, 2]), []);
        assert_eq!(three.majority.working(), 1);
        assert!(three.majority.shapes().all(|(_, shape)| shape == Shape::Without), "they beat, and have no state");
        assert_eq!(three.majority.silent().count(), 0);
        three.seen[0].stands = Some(true);
        assert_eq!(three.run(100..110, Own::State, &[1, 2]), [(100, Change::Back)]);
        // A process without memory does not count itself.
        assert_eq!(three.run(110..111, Own::Nothing, &[1, 2]), [(110, Change::Lost)]);
        assert_eq!(three.majority.working(), 1);
    }

    #[test]
    fn silence_counts_from_the_last_beat_without_own_pauses() {
        let mut three = Three::new();
        three.run(0..100, Own::Ballot, &[1, 2]);
        three.run(100..125, Own::Ballot, &[1]);
        let silent: Vec<_> = three.majority.silent().collect();
        assert_eq!(silent, [(ProcessId(2), Duration::from_millis(2500))]);
        three.run(125..126, Own::Ballot, &[1, 2]);
        assert_eq!(three.majority.silent().count(), 0);
        three.run(900..905, Own::Ballot, &[]);
        assert_eq!(three.majority.silent().count(), 0, "the observer was stopped for 77 s");
        three.seen[1].here = false;
        three.run(905..1000, Own::Ballot, &[]);
        assert_eq!(three.majority.silent().map(|(process, _)| process).collect::<Vec<_>>(), [ProcessId(1)]);
    }

    #[test]
    fn member_that_withdraws_before_it_leaves_was_stopped_in_order() {
        let mut three = Three::new();
        three.run(0..10, Own::Ballot, &[1, 2]);
        // One look observes both that the member no longer stands for election and that it has ended.
        three.seen[0] = Seen { here: false, heard: None, stands: Some(false) };
        three.seen[1].here = false;
        three.run(10..11, Own::Ballot, &[]);
        let in_order = |three: &Three| [1, 2].map(|n| three.majority.stopped_in_order(ProcessId(n)));
        assert_eq!(in_order(&three), [true, false]);
        // The member returns without memory, and is killed before it has stood for election.
        three.seen[0] = Seen { here: true, heard: None, stands: Some(false) };
        three.run(11..20, Own::Ballot, &[1]);
        three.seen[0].here = false;
        three.run(20..21, Own::Ballot, &[]);
        assert_eq!(in_order(&three), [false, false]);
    }

    #[test]
    fn process_without_state_counts_only_members_that_show_state() {
        let mut three = Three::seeing(Seen { here: true, heard: None, stands: Some(false) });
        three.run(0..10, Own::Nothing, &[1, 2]);
        assert!(three.majority.shapes().all(|(_, shape)| shape == Shape::Without));
        three.seen[0].stands = Some(true);
        three.run(10..11, Own::Nothing, &[1, 2]);
        let shapes: Vec<_> = three.majority.shapes().map(|(_, shape)| shape).collect();
        assert_eq!(shapes, [Shape::Works, Shape::Without]);
    }

    #[test]
    fn member_stopped_before_it_ran_is_silent_and_keeps_its_memory() {
        let mut three = Three::seeing(Seen { here: true, heard: None, stands: Some(false) });
        assert_eq!(three.run(0..15, Own::Ballot, &[1, 2]), []);
        assert_eq!(three.run(15..60, Own::Ballot, &[]), [(35, Change::Lost)]);
        let is_silent = |(_, shape)| shape == Shape::Silent { remembers: true };
        assert!(three.majority.shapes().all(is_silent), "{:?}", three.majority.shapes().collect::<Vec<_>>());
        // A member that sends heartbeats for a long time and does not stand for election has no state, even if this
        // process did not see an earlier process of it end.
        let mut late = Three::seeing(Seen { here: true, heard: None, stands: Some(false) });
        assert_eq!(late.run(0..100, Own::Ballot, &[1, 2]), [(61, Change::Lost)]);
        assert!(late.majority.shapes().all(|(_, shape)| shape == Shape::Without));
    }

    #[test]
    fn old_beats_of_a_restarted_process_do_not_count() {
        let mut three = Three::new();
        assert_eq!(three.run(0..10, Own::State, &[1, 2]), []);
        three.seen.iter_mut().for_each(|seen| seen.here = false);
        assert_eq!(three.run(10..11, Own::State, &[]), [(10, Change::Lost)]);
        three.seen.iter_mut().for_each(|seen| seen.here = true);
        assert_eq!(three.run(11..15, Own::State, &[]), []);
    }

    #[test]
    fn presence_counts_if_the_election_gives_no_evidence() {
        let mut three = Three::seeing(Seen { here: true, heard: None, stands: None });
        assert_eq!(three.run(0..100, Own::State, &[]), []);
        three.seen.iter_mut().for_each(|seen| seen.here = false);
        assert_eq!(three.run(100..101, Own::State, &[]), [(100, Change::Lost)]);
    }

    #[test]
    fn a_group_that_has_not_begun_has_no_majority_to_lose() {
        let mut three = Three::seeing(Seen { here: true, heard: None, stands: Some(false) });
        assert_eq!(three.run(0..100, Own::Nothing, &[1, 2]), []);
    }
}
