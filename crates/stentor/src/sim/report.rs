//! Counts of the events in simulated runs.

use std::fmt;

use stentor_simulation::sessions::ServiceRun;

use super::clients::Clients;
use super::seen::Fate;
use crate::Consistency;

/// Number of seeds from which on every kind of fault must occur at least once in a run. Fewer seeds may miss a kind by
/// chance.
const CLAIMED_FROM_SEEDS: u64 = 100;
/// Events of which each must occur at least once in a run of [`CLAIMED_FROM_SEEDS`] or more seeds, whatever the size of
/// the groups. The first must occur in every run.
const ALWAYS: [&str; 5] = ["answered", "partitions", "pauses", "client crashes", "sessions taken up"];
/// Further events that must occur if groups have at least three members. Only such groups lose members.
const OF_THREE: [&str; 4] = ["member crashes", "restarts", "leader changes", "state transfers"];

/// The number of seeds of a simulation, and the events in all of them.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct SimReport {
    pub(super) seeds: u64,
    counts: Vec<(&'static str, u64)>,
}

impl SimReport {
    /// Counts the events of one seed.
    pub(super) fn of(run: &ServiceRun, clients: &Clients, groups: usize) -> SimReport {
        let (mut answered, mut not_applied, mut unknown, mut all) = (0, 0, 0, 0);
        let [mut led, mut after, mut local] = [0; 3];
        for call in clients.calls.values() {
            all += 1;
            match &call.ended {
                Some((_, Fate::Applied { .. })) => {
                    answered += 1;
                    led += u64::from(call.how == Some(Consistency::Leader));
                    after += u64::from(matches!(call.how, Some(Consistency::After(_))));
                    local += u64::from(call.how == Some(Consistency::Local));
                }
                Some((_, Fate::NotApplied)) => not_applied += 1,
                Some((_, Fate::Unknown)) | None => unknown += 1,
            }
        }
        let (nemesis, faults, sessions) = (&run.report.nemesis, &run.report.faults, &run.report.counts);
        let stops = nemesis.leaders_stopped + nemesis.followers_stopped + nemesis.clients_stopped;
        let cuts = nemesis.deaf_leaders + nemesis.mute_leaders + nemesis.cut_links + nemesis.isolations;
        let counts = vec![
            ("calls", all),
            ("answered", answered),
            ("not applied", not_applied),
            ("unknown", unknown),
            ("member crashes", nemesis.leader_crashes + nemesis.follower_crashes),
            ("restarts", nemesis.member_restarts),
            ("leader changes", run.leaders.saturating_sub(groups as u64)),
            ("state transfers", run.restores),
            ("pauses", stops + nemesis.slow_leaders + nemesis.stalled_followers),
            ("partitions", cuts + nemesis.clients_cut_off),
            ("broken connections", faults.retry_exceeded),
            ("client crashes", nemesis.client_crashes + nemesis.clients_superseded),
            ("sessions", sessions.sessions_opened),
            ("sessions taken up", sessions.sessions_taken_up),
            ("sessions run out", sessions.sessions_run_out),
            ("copies not applied again", sessions.duplicates_from_cache),
            ("time entries", run.passed.values().filter(|passed| passed.client.is_none()).count() as u64),
            ("reads at leaders", led),
            ("reads after positions", after),
            ("local reads", local),
            ("notifications", clients.notified),
            ("notifications missed", clients.missed),
            ("undecided", 0),
        ];
        SimReport { seeds: 1, counts }
    }

    /// Returns the number of seeds that were run.
    #[must_use]
    pub fn seeds(&self) -> u64 {
        self.seeds
    }

    /// Returns the counts of events by name, in a fixed order. `undecided` counts seeds in which the search for a
    /// serial order of the calls was stopped: no order was found and none was excluded.
    #[must_use]
    pub fn counts(&self) -> &[(&'static str, u64)] {
        &self.counts
    }

    /// Returns one of the [counts](SimReport::counts); 0 for an unknown name.
    #[must_use]
    pub fn count(&self, name: &str) -> u64 {
        self.counts.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    }

    pub(super) fn note_undecided(&mut self) {
        self.counts.iter_mut().filter(|(name, _)| *name == "undecided").for_each(|(_, count)| *count += 1);
    }

    pub(super) fn add(&mut self, other: &SimReport) {
        self.seeds += other.seeds;
        if self.counts.is_empty() {
            self.counts.clone_from(&other.counts);
            return;
        }
        self.counts.iter_mut().zip(&other.counts).for_each(|((_, sum), (_, more))| *sum += more);
    }

    /// Returns the events that should have occurred and never did.
    pub(super) fn missing(&self, members: usize) -> Vec<&'static str> {
        let few = self.seeds < CLAIMED_FROM_SEEDS;
        let always = if few { &ALWAYS[..1] } else { &ALWAYS };
        let of_three = if few || members < 3 { &[][..] } else { &OF_THREE };
        always.iter().chain(of_three).copied().filter(|name| self.count(name) == 0).collect()
    }
}

impl fmt::Display for SimReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} seeds", self.seeds)?;
        self.counts.iter().try_for_each(|(name, count)| write!(f, ", {count} {name}"))
    }
}
