//! The result of one seed.

use stentor_checker::Report;
use stentor_fabric_sim::{FaultCounts, SetCounts};
use stentor_multicast::{CatchUps, ClockCounts};

use crate::catch_ups;
use crate::clocks;
use crate::forgets::ForgetCounts;
use crate::nemesis::{NemesisCounts, Profile};
use crate::transfers::TransferCounts;

/// Maximum time for which a group may owe a message and deliver nothing while a minority of each group is stopped, in
/// nanoseconds. In this time, an election detects the loss of a leader, the leader is expelled, and another one
/// campaigns.
pub(crate) const LONGEST_GAP_NS: u64 = 900_000;

/// The result of a run.
#[derive(Debug, Default)]
pub struct RunReport {
    /// The verdicts.
    pub report: Report,
    /// Messages multicast.
    pub messages: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// `true` if all messages were delivered by all destinations before the deadline (M9).
    pub finished: bool,
    /// Steps of all processes.
    pub steps: u64,
    /// Virtual time, in nanoseconds.
    pub virtual_ns: u64,
    /// The injected faults of the network.
    pub faults: FaultCounts,
    /// Sealed input that processes rejected. In calm runs without mutants there is none.
    pub rejected: u64,
    /// Remote writes of steps 1 to 4.
    pub writes: u64,
    /// The fault profile.
    pub profile: Profile,
    /// The faults of the profile's nemesis.
    pub nemesis: NemesisCounts,
    /// Steps of all processes from the end of the faults until all messages were delivered.
    pub recovery_steps: u64,
    /// States of applications that differed after the same deliveries.
    pub wrong_states: u64,
    /// The longest time for which a group owed a message and delivered nothing, or for which a client had no room to
    /// send one, while there were faults, in nanoseconds.
    pub longest_gap_ns: u64,
    /// `true` if stopped processes delayed other processes for longer than permitted.
    pub held_up: bool,
    /// `true` if a member reported to a client that its id was taken over, although no other process took it and no
    /// timeout permits it.
    pub superseded_for_nothing: bool,
    /// The network's events with fan-out sets, if the run has any.
    pub sets: SetCounts,
    /// Rare ways in which members caught up with their leaders.
    pub catch_ups: CatchUps,
    /// Outcomes of state transfers.
    pub transfers: TransferCounts,
    /// Outcomes of groups that lost their memory.
    pub forgets: ForgetCounts,
    /// Uses of the clocks of leaders.
    pub clocks: ClockCounts,
    /// Deliveries at logical times, in runs with physical ones.
    pub logical_times: u64,
    /// Number of final times whose error exceeds the error of correct clocks.
    pub wrong_times: u64,
    /// The log of the nemesis.
    pub log: Vec<String>,
}

impl RunReport {
    /// Returns further counts, by name, in a fixed order.
    #[must_use]
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let clocks = clocks::named(self.clocks, self.logical_times);
        [self.sets.named(), catch_ups::named(self.catch_ups), self.transfers.named(), clocks, self.forgets.named()]
            .concat()
    }

    /// Returns a description of the run's end in numbers, for its transcript.
    pub(crate) fn end(&self) -> [u64; 5] {
        [self.finished.into(), self.steps, self.virtual_ns, self.messages, self.deliveries]
    }

    /// Returns the names of violated properties, including further conditions: `M9` also if clients could not even
    /// send; `state` if the states of applications differ; `held-up` if stopped processes delayed other processes;
    /// `superseded` if a client id was taken from a process without a successor; `time` if a final time is wrong; and
    /// `rejected` if processes rejected input in a run of the calm profile. In other profiles, a member that fell
    /// behind may rightly reject input beyond its window.
    pub fn violated(&self) -> impl Iterator<Item = &'static str> + '_ {
        let stuck = !self.finished && !self.report.violated().any(|property| property == "M9");
        let besides = [
            (stuck, "M9"),
            (self.wrong_states > 0, "state"),
            (self.superseded_for_nothing, "superseded"),
            (self.held_up, "held-up"),
            (self.wrong_times > 0, "time"),
            (self.rejected > 0 && self.profile == Profile::Calm, "rejected"),
        ];
        self.report.violated().chain(besides.into_iter().filter_map(|(is, name)| is.then_some(name)))
    }
}
