//! Faults of processes and links: from a plan, or drawn from the seed.

use stentor_fabric::ProcessId;

use crate::rng::{MILLION, SimRng};

/// Something that goes wrong.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The process and its memory are gone, at once.
    Crash(ProcessId),
    /// The process crashes right after its `post`-th post from now (1 is the next one).
    CrashAtPost {
        /// Which.
        process: ProcessId,
        /// Posts until then.
        post: u64,
    },
    /// The harness is told to restart the process ([`Due::Restart`](crate::Due::Restart)).
    Restart(ProcessId),
    /// The process does not run; its NIC goes on serving its memory.
    Stall {
        /// Which.
        process: ProcessId,
        /// How long, ns.
        for_ns: u64,
    },
    /// The process's clock, as [`Due::Step`](crate::Due::Step) tells it, jumps.
    ClockJump {
        /// Which.
        process: ProcessId,
        /// How far, ns; back if negative. It never goes below 0.
        by_ns: i64,
    },
    /// Nothing gets from one process to another; the other way is open.
    Cut {
        /// Sender.
        from: ProcessId,
        /// Receiver.
        to: ProcessId,
        /// How long, ns.
        for_ns: u64,
    },
    /// What makes the copies in the network forgets all sets, perhaps with the copies that are under way: whoever is in a set
    /// hears of it, and joins again.
    SetsBreak,
    /// Nothing gets between these processes and all the others.
    Partition {
        /// One side.
        side: Vec<ProcessId>,
        /// Only what leaves this side is held.
        one_way: bool,
        /// How long, ns.
        for_ns: u64,
    },
}

/// Faults at fixed times, ns.
pub type FaultPlan = Vec<(u64, Fault)>;

/// Faults drawn from the seed: `count` of them, spread over a time, of kinds chosen by weight.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct FaultMix {
    /// How many.
    pub count: u32,
    /// Earliest, ns.
    pub from_ns: u64,
    /// Latest, ns.
    pub until_ns: u64,
    /// How long stalls and partitions last, and how far clocks jump, at most, ns.
    pub longest_ns: u64,
    /// Who may be hit; empty: everybody.
    pub targets: Vec<ProcessId>,
    /// Crashes at a random time.
    pub crash: u32,
    /// Crashes between two posts.
    pub crash_at_post: u32,
    /// Whether a crashed process is to be restarted later.
    pub restart: bool,
    /// Stalls.
    pub stall: u32,
    /// One process cut off, both ways.
    pub partition: u32,
    /// One process cut off, one way.
    pub one_way: u32,
    /// One process's clock jumps, either way.
    pub clock_jump: u32,
}

impl FaultMix {
    /// The plan for a seed, in order of time.
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
    fn a_mix_draws_only_what_has_weight_and_the_same_every_time() {
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
    fn crashes_come_with_restarts_if_asked_and_hit_targets_only() {
        let targets = vec![ProcessId(2)];
        let mix = FaultMix { count: 5, longest_ns: 9, crash: 1, restart: true, targets, ..FaultMix::default() };
        let plan = mix.draw(1, 4);
        assert_eq!(plan.iter().filter(|(_, fault)| *fault == Fault::Crash(ProcessId(2))).count(), 5);
        assert_eq!(plan.iter().filter(|(_, fault)| *fault == Fault::Restart(ProcessId(2))).count(), 5);
        assert!(FaultMix::default().draw(1, 4).is_empty());
    }
}
