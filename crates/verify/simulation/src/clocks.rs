//! The clocks of the hosts of a run in profile `clocks`, and the rules by which final times are judged.
//!
//! Every host has a wall clock with a skew, and a monotonic clock with a drift. In some runs, the wall clock of one
//! host is off by more than the bound, by up to a year: either all the time, or after steps of the clock. This host
//! belongs to a member of a group of three or more, so that a majority of the group disagrees with it. A smaller group
//! has no such majority, so its time could be wrong.
//!
//! # Rules
//! A final time is *physical* if it follows a clock, and is not a mere count of messages. If most clocks are right, a
//! physical time is
//! - not later than the time of its delivery by the fastest right clock, and
//! - not earlier than the time at which its message was multicast by the slowest right clock, minus the time that a
//!   leader needs to learn the time.
//!
//! M5 checks that times rise with deliveries and are the same in all destination groups.

use std::collections::HashMap;

use stentor_fabric::ProcessId;
use stentor_multicast::{ClockCounts, MessageId, Topology};

use crate::chance::Chance;
use crate::nemesis::Profile;

/// The stream of random choices of the clocks.
const STREAM: u64 = 405;
/// True time at the beginning, in nanoseconds since 1970.
pub(crate) const EPOCH_NS: u64 = 1_795_000_000_000_000_000;
const YEAR_NS: i64 = 365 * 86_400 * 1_000_000_000;
/// The bound on clock errors, in nanoseconds. A right clock differs from true time by at most a quarter of the bound,
/// or half of it if groups differ.
pub(crate) const BOUND_NS: u64 = 100_000;
const RIGHT_NS: u64 = BOUND_NS / 4;
/// Maximum error of a group's common time if groups differ, in nanoseconds.
const APART_NS: u64 = BOUND_NS * 3 / 8;
/// Maximum error of a host's clock relative to its group's common time, in nanoseconds.
const ALIKE_NS: u64 = BOUND_NS / 8;
/// Maximum drift, in millionths.
const DRIFT_PPM: u64 = 100;
/// Additional error by drift and slewing during a run, in nanoseconds.
const SLACK_NS: u64 = 2_000;
/// Time that a leader needs to learn the time, in nanoseconds. A leader that knows too few clocks waits for four
/// bounds, and a bad network may delay readings by as much again.
const LEARNING_NS: u64 = 8 * BOUND_NS;

/// Names of the counts that must not be 0 after a simulation run of enough seeds.
pub(crate) const CLAIMS: [&str; 4] = ["clock_physical", "clock_behind", "clock_waiting", "leaders_off_the_median"];

/// The clock of one host.
#[derive(Clone, Debug, Default)]
struct Host {
    drift_ppm: i64,
    /// Steps of the wall clock in ascending order: the time of a step and the offset after it, in nanoseconds.
    steps: Vec<(u64, i64)>,
}

/// The clocks of a run.
#[derive(Clone, Debug)]
pub(crate) struct Clocks {
    hosts: Vec<Host>,
    /// Maximum error of the clocks that are right, in nanoseconds.
    right_ns: u64,
    multicast: HashMap<MessageId, u64>,
    /// Descriptions of wrong final times.
    pub(crate) wrong: Vec<String>,
    /// Number of deliveries at times that are not physical.
    pub(crate) logical: u64,
}

/// The kind of clock errors in a run.
#[derive(Clone, Copy)]
enum Trouble {
    /// All clocks are right.
    None,
    /// One clock is off by more than the bound, all the time.
    Off,
    /// One clock is stepped, one to four times.
    Steps,
    /// The clocks of each group agree, and groups differ.
    Apart,
}

impl Clocks {
    /// Draws the clocks of a seed. Returns `None` if the profile has none.
    pub(crate) fn draw(seed: u64, profile: Profile, topology: &Topology) -> Option<Self> {
        if profile != Profile::Clocks {
            return None;
        }
        let mut chance = Chance::new(seed, STREAM);
        let members = topology.all_members();
        let mut hosts: Vec<Host> = (0..members)
            .map(|_| Host {
                drift_ppm: signed(&mut chance, DRIFT_PPM),
                steps: vec![(0, signed(&mut chance, RIGHT_NS))],
            })
            .collect();
        let troubles = [Trouble::None, Trouble::Off, Trouble::Off, Trouble::Steps, Trouble::Apart, Trouble::Apart];
        let trouble = chance.pick(&troubles);
        let mut right_ns = RIGHT_NS;
        if matches!(trouble, Trouble::Apart) {
            right_ns = APART_NS + ALIKE_NS;
            for group in topology.group_ids() {
                let apart = signed(&mut chance, APART_NS);
                for member in topology.members(group) {
                    hosts[member.index()].steps[0].1 = apart + signed(&mut chance, ALIKE_NS);
                }
            }
        }
        let large = topology.group_ids().filter(|group| topology.size(*group) >= 3);
        let able: Vec<ProcessId> = large.flat_map(|group| topology.members(group)).collect();
        if !able.is_empty() {
            let steps = &mut hosts[chance.pick(&able).index()].steps;
            match trouble {
                Trouble::None | Trouble::Apart => {}
                Trouble::Off => steps[0].1 = far(&mut chance),
                Trouble::Steps => {
                    let mut at = 0;
                    for _ in 0..chance.between(1, 4) {
                        at += chance.between(50_000, 1_500_000);
                        let back = chance.between(0, 2) == 0;
                        steps.push((at, if back { 0 } else { far(&mut chance) }));
                    }
                }
            }
        }
        Some(Clocks { hosts, right_ns, multicast: HashMap::new(), wrong: Vec::new(), logical: 0 })
    }

    /// Returns the monotonic clock of a member's host, in nanoseconds.
    pub(crate) fn monotonic(&self, member: ProcessId, now_ns: u64) -> u64 {
        now_ns.saturating_add_signed(now_ns as i64 * self.hosts[member.index()].drift_ppm / 1_000_000)
    }

    /// Returns the wall clock of a member's host, in nanoseconds since 1970.
    pub(crate) fn wall(&self, member: ProcessId, now_ns: u64) -> u64 {
        let host = &self.hosts[member.index()];
        let ahead = host.steps.iter().rev().find(|(at, _)| *at <= now_ns).map_or(0, |(_, ahead)| *ahead);
        (EPOCH_NS + self.monotonic(member, now_ns)).saturating_add_signed(ahead)
    }

    pub(crate) fn multicast(&mut self, id: MessageId, now_ns: u64) {
        self.multicast.insert(id, EPOCH_NS + now_ns);
    }

    /// Judges a final time at its delivery.
    pub(crate) fn judge(&mut self, member: ProcessId, id: MessageId, time: u64, now_ns: u64) {
        let now = EPOCH_NS + now_ns;
        if time < EPOCH_NS / 2 {
            self.logical += 1;
            return;
        }
        let latest = now + self.right_ns + SLACK_NS;
        let earliest = self.multicast.get(&id).map_or(0, |at| at - self.right_ns - SLACK_NS - LEARNING_NS);
        if time > latest || time < earliest {
            let ahead = i128::from(time) - i128::from(now);
            self.wrong.push(format!("{member} delivers {id} at a time that is {ahead} ns ahead of true time"));
        }
    }
}

fn signed(chance: &mut Chance, most: u64) -> i64 {
    chance.between(0, 2 * most) as i64 - most as i64
}

/// Draws an offset above the bound: a small one, or one of up to a year.
fn far(chance: &mut Chance) -> i64 {
    let most = if chance.between(0, 1) == 0 { 20 * BOUND_NS as i64 } else { YEAR_NS };
    let far = chance.between(2 * BOUND_NS, most as u64) as i64;
    if chance.between(0, 2) == 0 { -far } else { far }
}

/// Adds the counts of another member.
pub(crate) fn add(to: &mut ClockCounts, more: ClockCounts) {
    to.physical += more.physical;
    to.behind += more.behind;
    to.waiting += more.waiting;
    to.off += more.off;
    to.refused += more.refused;
}

/// Returns names and values in a fixed order.
pub(crate) fn named(counts: ClockCounts, logical: u64) -> Vec<(&'static str, u64)> {
    vec![
        ("clock_physical", counts.physical),
        ("clock_behind", counts.behind),
        ("clock_waiting", counts.waiting),
        ("leaders_off_the_median", counts.off),
        ("times_refused", counts.refused),
        ("logical_times", logical),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clocks(seed: u64) -> (Topology, Clocks) {
        let topology = Topology::new(&[3, 1, 2], 1).expect("a possible cluster");
        let clocks = Clocks::draw(seed, Profile::Clocks, &topology).expect("the profile has clocks");
        (topology, clocks)
    }

    #[test]
    fn most_clocks_are_right_and_every_trouble_is_drawn() {
        let (mut off, mut stepped, mut apart) = (0, 0, 0);
        for seed in 0..100 {
            let (topology, clocks) = clocks(seed);
            let wrong = |at: u64| {
                let away = |member: u16| clocks.wall(ProcessId(member), at).abs_diff(EPOCH_NS + at);
                let all = 0..topology.all_members() as u16;
                all.filter(|member| away(*member) > clocks.right_ns + SLACK_NS).collect::<Vec<_>>()
            };
            let wrong = [wrong(0), wrong(3_000_000)];
            assert!(wrong.iter().all(|wrong| wrong.len() <= 1 && wrong.iter().all(|member| *member < 3)), "{wrong:?}");
            off += u64::from(!wrong[0].is_empty());
            stepped += u64::from(wrong[0] != wrong[1]);
            apart += u64::from(clocks.right_ns > RIGHT_NS);
        }
        assert!(off > 20 && stepped > 10 && apart > 20, "{off} {stepped} {apart}");
    }

    #[test]
    fn times_outside_of_their_bounds_are_wrong() {
        let (_, mut clocks) = clocks(1);
        let id = MessageId { client: stentor_multicast::ClientId(0), sequence: 1 };
        clocks.multicast(id, 1_000_000);
        for (time, wrong) in [
            (7, 0),
            (EPOCH_NS + 1_500_000, 0),
            (EPOCH_NS + 2_000_000 + BOUND_NS, 1),
            (EPOCH_NS, 2),
            (EPOCH_NS + YEAR_NS as u64, 3),
        ] {
            clocks.judge(ProcessId(0), id, time, 2_000_000);
            assert_eq!(clocks.wrong.len(), wrong, "{time}");
        }
        assert_eq!(clocks.logical, 1);
    }
}
