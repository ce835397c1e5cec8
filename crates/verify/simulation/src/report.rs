//! What came of one seed.

use stentor_checker::Report;
use stentor_fabric_sim::{FaultCounts, SetCounts};
use stentor_multicast::CatchUps;

use crate::catch_ups;
use crate::nemesis::{NemesisCounts, Profile};
use crate::transfers::TransferCounts;

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
    /// A client was told that it lost its place, although no other came and nobody may give it up.
    pub superseded_for_nothing: bool,
    /// What the network did with sets, if the run has any.
    pub sets: SetCounts,
    /// How members caught up with their leaders in rare ways.
    pub catch_ups: CatchUps,
    /// What became of transfers of states.
    pub transfers: TransferCounts,
    /// What the nemesis did, in words.
    pub log: Vec<String>,
}

impl RunReport {
    /// What else was counted, by name, in a fixed order.
    #[must_use]
    pub fn counts(&self) -> Vec<(&'static str, u64)> {
        [self.sets.named(), catch_ups::named(self.catch_ups), self.transfers.named()].concat()
    }

    /// How the run ended, for its transcript.
    pub(crate) fn end(&self) -> [u64; 5] {
        [self.finished.into(), self.steps, self.virtual_ns, self.messages, self.deliveries]
    }

    /// The names of violated properties; `M9` also if clients could not even send; `state` if applications differ;
    /// `superseded` if a client lost its place to nobody; and
    /// `rejected` if members refused input although nobody failed. Who fell behind refuses what is beyond its window.
    pub fn violated(&self) -> impl Iterator<Item = &'static str> + '_ {
        let stuck = !self.finished && !self.report.violated().any(|property| property == "M9");
        let besides = [
            (stuck, "M9"),
            (self.wrong_states > 0, "state"),
            (self.superseded_for_nothing, "superseded"),
            (self.rejected > 0 && self.profile == Profile::Calm, "rejected"),
        ];
        self.report.violated().chain(besides.into_iter().filter_map(|(is, name)| is.then_some(name)))
    }
}
