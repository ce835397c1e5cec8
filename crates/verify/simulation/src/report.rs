//! What came of one seed.

use stentor_checker::Report;
use stentor_fabric_sim::{FaultCounts, SetCounts};
use stentor_multicast::{CatchUps, ClockCounts};

use crate::catch_ups;
use crate::clocks;
use crate::forgets::ForgetCounts;
use crate::nemesis::{NemesisCounts, Profile};
use crate::transfers::TransferCounts;

/// The longest time for which a group may deliver nothing although it owes something, while a minority of each group stands still,
/// ns: an election misses a leader, it is expelled, another one campaigns.
pub(crate) const LONGEST_GAP_NS: u64 = 900_000;

/// What came of a run.
#[derive(Debug, Default)]
pub struct RunReport {
    /// The verdicts.
    pub report: Report,
    /// Messages multicast.
    pub messages: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// Whether everything was delivered everywhere before the deadline (M9).
    pub finished: bool,
    /// Steps of all processes.
    pub steps: u64,
    /// Virtual time, ns.
    pub virtual_ns: u64,
    /// What went wrong, as planned.
    pub faults: FaultCounts,
    /// Sealed input that members refused; without mutants, none.
    pub rejected: u64,
    /// Remote writes of steps 1 to 4.
    pub writes: u64,
    /// The faults beside those of the network.
    pub profile: Profile,
    /// What the nemesis of the profile did.
    pub nemesis: NemesisCounts,
    /// Steps of all processes from the end of a profile's faults until everything was delivered.
    pub recovery_steps: u64,
    /// States of applications that differed after the same deliveries.
    pub wrong_states: u64,
    /// The longest time for which a group owed a message and delivered nothing while there were faults, ns.
    pub longest_gap_ns: u64,
    /// Processes that stood still held up others for longer than they may.
    pub held_up: bool,
    /// A client was told that it lost its place, although no other came and nobody may give it up.
    pub superseded_for_nothing: bool,
    /// What the network did with sets, if the run has any.
    pub sets: SetCounts,
    /// How members caught up with their leaders in rare ways.
    pub catch_ups: CatchUps,
    /// What became of transfers of states.
    pub transfers: TransferCounts,
    /// What became of groups that lost their memory.
    pub forgets: ForgetCounts,
    /// How the clocks of leaders were used.
    pub clocks: ClockCounts,
    /// Deliveries at logical times, where there are physical ones.
    pub logical_times: u64,
    /// Final times that were off true time by more than right clocks explain.
    pub wrong_times: u64,
    /// What the nemesis did, in words.
    pub log: Vec<String>,
}

impl RunReport {
    /// What else was counted, by name, in a fixed order.
    #[must_use]
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        let clocks = clocks::named(self.clocks, self.logical_times);
        [self.sets.named(), catch_ups::named(self.catch_ups), self.transfers.named(), clocks, self.forgets.named()]
            .concat()
    }

    /// How the run ended, for its transcript.
    pub(crate) fn end(&self) -> [u64; 5] {
        [self.finished.into(), self.steps, self.virtual_ns, self.messages, self.deliveries]
    }

    /// The names of violated properties; `M9` also if clients could not even send; `state` if applications differ; `held-up` if who
    /// stood still held up others; `superseded` if a client lost its place to nobody; `time` if a final time is off; and
    /// `rejected` if members refused input although nobody failed. Who fell behind refuses what is beyond its window.
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
