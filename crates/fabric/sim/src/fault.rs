//! Faults of processes and links, planned or drawn from the seed.

use stentor_fabric::ProcessId;

use crate::rng::{MILLION, SimRng};

/// A fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The process crashes and loses its memory, at once.
    Crash(ProcessId),
    /// The process crashes right after its `post`-th post from now (1 is the next one).
    CrashAtPost {
        /// The process.
        process: ProcessId,
        /// Number of posts until the crash.
        post: u64,
    },
    /// The harness gets a request to restart the process ([`Due::Restart`](crate::Due::Restart)), if it is down.
    Restart(ProcessId),
    /// The process does not run. Its NIC continues to serve its memory.
    Stall {
        /// The process.
        process: ProcessId,
        /// Duration, in nanoseconds.
        for_ns: u64,
    },
    /// The clock of the process jumps, as reported in [`Due::Step`](crate::Due::Step).
    ClockJump {
        /// The process.
        process: ProcessId,
        /// Distance in nanoseconds, backward if negative. The clock never goes below 0.
        by_ns: i64,
    },
    /// The network holds all messages from one process to another. The other direction works.
    Cut {
        /// Sender.
        from: ProcessId,
        /// Receiver.
        to: ProcessId,
        /// Duration, in nanoseconds.
        for_ns: u64,
    },
    /// The network forgets all sets and, with a probability of one half, drops all copies in flight. The members of a
    /// set are notified and join again.
    SetsBreak,
    /// The network holds all messages between the processes of `side` and all other processes.
    Partition {
        /// One side.
        side: Vec<ProcessId>,
        /// `true` if only messages that leave this side are held.
        one_way: bool,
        /// Duration, in nanoseconds.
        for_ns: u64,
    },
}

/// Faults at fixed times, in nanoseconds.
pub type FaultPlan = Vec<(u64, Fault)>;

/// Parameters of random faults: `count` faults at random times, of kinds that are chosen by weight.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultMix {
    /// Number of faults.
    pub count: u32,
    /// Earliest time, in nanoseconds.
    pub from_ns: u64,
    /// Latest time of a fault, in nanoseconds. Planned restarts may be later.
    pub until_ns: u64,
    /// Maximum duration of stalls and partitions, maximum time from the fault to the planned restart, and maximum jump
    /// of clocks, in nanoseconds.
    pub longest_ns: u64,
    /// Processes that may be affected; empty for all.
    pub targets: Vec<ProcessId>,
    /// Weight of crashes at a random time.
    pub crash: u32,
    /// Weight of crashes right after a post.
    pub crash_at_post: u32,
    /// `true` to plan a restart for each crash. A restart has no effect if it is due before the process has crashed.
    pub restart: bool,
    /// Weight of stalls.
    pub stall: u32,
    /// Weight of partitions that cut one process off in both directions.
    pub partition: u32,
    /// Weight of partitions that cut one process off in one direction.
    pub one_way: u32,
    /// Weight of clock jumps of one process, in either direction.
    pub clock_jump: u32,
}

impl FaultMix {
    /// Returns the plan for a seed, ordered by time.
    #[must_use]
    pub fn draw(&self, seed: u64, processes: usize) -> FaultPlan {
        let mut rng = SimRng::new(seed, 1);
        let mut plan = FaultPlan::new();
        let weights = [self.crash, self.crash_at_post, self.stall, self.partition, self.one_way, self.clock_jump];
        let total: u64 = weights.iter().map(|w| u64::from(*w)).sum();
        if total == 0 || processes == 0 {
            return plan;
        }
        for _ in 0..self.count {
            let at = self.from_ns + rng.below(self.until_ns.saturating_sub(self.from_ns) + 1);
            let process = match self.targets.len() {
                0 => ProcessId(rng.below(processes as u64) as u16),
                n => self.targets[rng.below(n as u64) as usize],
            };
            let for_ns = rng.below(self.longest_ns) + 1;
            let mut pick = rng.below(total);
            let kind = weights.iter().position(|weight| {
                let hit = pick < u64::from(*weight);
                pick = pick.saturating_sub(u64::from(*weight));
                hit
            });
            let fault = match kind {
                Some(0) => Fault::Crash(process),
                Some(1) => Fault::CrashAtPost { process, post: rng.below(40) + 1 },
                Some(2) => Fault::Stall { process, for_ns },
                Some(5) => {
                    let by_ns = i64::try_from(for_ns).unwrap_or(i64::MAX);
                    Fault::ClockJump { process, by_ns: if rng.chance(MILLION / 2) { by_ns } else { -by_ns } }
                }
                other => Fault::Partition { side: vec![process], one_way: other == Some(4), for_ns },
            };
            if self.restart && matches!(kind, Some(0 | 1)) {
                plan.push((at + for_ns, Fault::Restart(process)));
            }
            plan.push((at, fault));
        }
        plan.sort_by_key(|(at, _)| *at);
        plan
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mix_draws_only_weighted_faults_and_is_reproducible() {
        let mix = FaultMix { count: 200, until_ns: 1_000, longest_ns: 50, stall: 1, one_way: 3, ..FaultMix::default() };
        let plan = mix.draw(9, 4);
        assert_eq!(plan, mix.draw(9, 4));
        assert_ne!(plan, mix.draw(10, 4));
        assert!(plan.is_sorted_by_key(|(at, _)| *at) && plan.iter().all(|(at, _)| *at <= 1_000));
        let stalls = plan.iter().filter(|(_, fault)| matches!(fault, Fault::Stall { .. })).count();
        let cuts = plan.iter().filter(|(_, fault)| matches!(fault, Fault::Partition { one_way: true, .. })).count();
        assert_eq!(stalls + cuts, 200);
        assert!((20..80).contains(&stalls), "{stalls} stalls of 200 at a quarter");
    }

    #[test]
    fn crashes_hit_only_targets_and_restarts_follow_on_request() {
        let targets = vec![ProcessId(2)];
        let mix = FaultMix { count: 5, longest_ns: 9, crash: 1, restart: true, targets, ..FaultMix::default() };
        let plan = mix.draw(1, 4);
        assert_eq!(plan.iter().filter(|(_, fault)| *fault == Fault::Crash(ProcessId(2))).count(), 5);
        assert_eq!(plan.iter().filter(|(_, fault)| *fault == Fault::Restart(ProcessId(2))).count(), 5);
        assert!(FaultMix::default().draw(1, 4).is_empty());
    }
}
