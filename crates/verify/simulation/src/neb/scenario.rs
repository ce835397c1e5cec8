//! The processes, the lies and the faults of one seed of the broadcast.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Fault, FaultMix, FaultPlan, NetworkModel};
use stentor_neb::{Config, FaultModel, Lies, Mode, Mutant, ProcessSet};

use crate::chance::Chance;
use crate::sets::{self, Sets};

/// The kind of faults in a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// At most one sender equivocates. Other hosts at most crash.
    LyingSender,
    /// Byzantine hosts lie in every way.
    LyingHosts,
    /// Byzantine hosts lie in every way, but values are signed, so that liars delay no other process.
    Signed,
    /// All processes must answer. At most one sender equivocates, and no process crashes.
    All,
    /// All processes must answer. If processes lie or crash, not all broadcasts need to be delivered.
    AllBroken,
    /// All processes must answer. One or two crash, lie or are only slow, and an operator removes them.
    Removal,
}

/// The severity of the faults in a run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Severity {
    /// Partitions, stalls, crashes and lies, on NICs that preserve the order of writes on a queue pair.
    #[default]
    Usual,
    /// Three times as many and longer faults. Queue pairs break sooner. Writes are delayed more, and in half of the
    /// runs they arrive in any order. Clocks jump. In some runs, rings are smaller and timeouts shorter. Every liar
    /// performs nearly every violation that its fault model permits.
    Harsh,
}

named!(Severity { Usual = "usual", Harsh = "harsh" });

/// The removals of a run and their course.
#[derive(Clone, Debug)]
pub struct Removals {
    /// Time at which the first operator begins, in nanoseconds.
    pub at_ns: u64,
    /// The processes that are to be removed in the end.
    pub targets: ProcessSet,
    /// The processes that the first operator removes.
    pub first: ProcessSet,
    /// `true` if the removed processes receive the request to leave.
    pub reached: bool,
    /// For each of the first operators, the number of answers after which it crashes. Later operators do not crash.
    pub dies_after: Vec<u64>,
    /// `true` if an operator may begin before the previous one has ended.
    pub overlap: bool,
}

/// The scenario of one seed.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The kind of faults.
    pub profile: Profile,
    /// The sizes and the fault model.
    pub config: Config,
    /// The Byzantine processes, each with its lies.
    pub liars: Vec<(ProcessId, Lies)>,
    /// The lies affect one in `every` of a liar's indices.
    pub every: u64,
    /// The processes that usually receive a liar's second value.
    pub other_side: ProcessSet,
    /// Number of broadcasts of each correct process.
    pub broadcasts: u64,
    /// Maximum size of a payload, in bytes.
    pub longest: usize,
    /// Maximum pause between two broadcasts, in nanoseconds.
    pub pause_ns: u64,
    /// The network's delays, and the reordering that it may do.
    pub network: NetworkModel,
    /// The mix of stalls and partitions.
    pub mix: FaultMix,
    /// The crashes, and the cuts between correct processes.
    pub plan: FaultPlan,
    /// The removals, if there are any.
    pub removal: Option<Removals>,
    /// `true` if the broadcasts of correct processes must be delivered by all correct processes.
    pub lively: bool,
}

/// The stream of random choices about lies that end a stream, and about old answers that are presented as new ones.
const MORE_LIES: u64 = 900;
/// The stream of random choices about removals.
const REMOVAL: u64 = 902;
/// The streams of random choices about fan-out sets: the runs that have them, the times at which they break, and the
/// timeout for slow ones.
const SETS: [u64; 3] = [903, 904, 905];
/// Time until which fan-out sets break for reasons other than crashes and cuts, in nanoseconds.
const SETS_BREAK_UNTIL_NS: u64 = 600_000;
/// Maximum duration of a run that must complete, in nanoseconds of virtual time.
pub(crate) const DEADLINE_NS: u64 = 400_000_000;
/// Duration of all other runs, in nanoseconds of virtual time.
pub(crate) const SPAN_NS: u64 = 1_500_000;
/// Maximum number of steps of a run, for all processes together.
pub(crate) const MOST_STEPS: u64 = 400_000;

impl Scenario {
    /// Returns the names of the faults that must occur in a simulation run of at least 100 seeds.
    #[must_use]
    pub const fn claims() -> &'static [&'static str] {
        &[
            "torn_writes",
            "torn_reads",
            "steps_on_torn_memory",
            "early_completions",
            "late_writes",
            "late_source_reads",
            "held_by_partition",
            "one_way_partitions",
            "stalls",
            "crashes",
            "remote_access_errors",
        ]
    }

    /// Returns the names of all counts that must not be 0 after a simulation run of a severity. They include every lie
    /// and removals.
    #[must_use]
    pub fn claims_under(severity: Severity) -> Vec<&'static str> {
        let more: &[&str] =
            if severity == Severity::Harsh { &["clock_jumps", "retry_exceeded", "flushed"] } else { &[] };
        let removals = ["removals by an operator", "operators that died half-way"];
        [Self::claims(), more, &Lies::NAMES, &removals].concat()
    }

    /// Draws all parameters: profile, sizes, lies, crashes, partitions in one direction and in both, and suspicions of
    /// processes that are up.
    #[must_use]
    pub fn draw(seed: u64, severity: Severity, mutant: Mutant) -> Self {
        let mut chance = Chance::new(seed, 0);
        let profiles = [
            Profile::LyingSender,
            Profile::LyingHosts,
            Profile::LyingSender,
            Profile::All,
            Profile::Signed,
            Profile::LyingHosts,
            Profile::AllBroken,
        ];
        let mut profile = chance.pick(&profiles);
        let mut removing = Chance::new(seed, REMOVAL);
        if removing.between(0, 6) == 0 {
            profile = Profile::Removal;
        }
        let mut config = draw_config(profile, &mut chance, mutant);
        let mut liars = draw_liars(profile, &config, &mut chance);
        let every_index = draw_more_lies(profile, &config, &mut liars, &mut Chance::new(seed, MORE_LIES));
        if severity == Severity::Harsh {
            config.window = chance.pick(&[1, 2, 3, 8]);
            config.patience_ns = chance.pick(&[40_000, 150_000, 400_000]);
            liars.iter_mut().for_each(|(_, lies)| *lies = every(*lies));
        }
        let lying = |process: ProcessId| liars.iter().any(|(liar, _)| *liar == process);
        let correct: Vec<ProcessId> = config.everybody().iter().filter(|process| !lying(*process)).collect();
        let other_side: ProcessSet = correct.iter().copied().filter(|_| chance.between(0, 1) == 1).collect();
        let network = draw_network(severity, &mut chance);
        let mut plan = FaultPlan::new();
        cut_sides(&correct, other_side, &mut chance, &mut plan);
        if severity == Severity::Harsh {
            cut_more(&correct, other_side, &mut chance, &mut plan);
        }
        let removal = (profile == Profile::Removal).then(|| draw_removal(&config, &liars, &mut removing, &mut plan));
        let crashes = crash(profile, &config, &liars, &correct, &mut chance, &mut plan);
        let lively = match profile {
            Profile::LyingSender | Profile::Signed => true,
            Profile::LyingHosts => liars.is_empty(),
            Profile::All | Profile::Removal => true,
            Profile::AllBroken => crashes == 0 && liars.is_empty(),
        };
        let broadcasts = u64::from(config.window) * chance.between(2, 4) + chance.between(2, 12);
        let longest = chance.pick(&[16, 64, config.payload_bytes]);
        let pause_ns = chance.pick(&[0, 5_000, 40_000]);
        Scenario {
            profile,
            config,
            liars,
            every: every_index,
            other_side,
            broadcasts: broadcasts.min(40),
            longest,
            pause_ns,
            network,
            mix: mix(severity),
            plan,
            removal,
            lively,
        }
    }
}

impl Scenario {
    /// Adds fan-out sets, if the run has them.
    #[must_use]
    pub fn choose(mut self, seed: u64, sets: Sets) -> Self {
        let [which, breaks, rounds] = SETS;
        if sets.has(seed, which) {
            self.network.hardware_multicast = true;
            self.plan.extend(sets::breaks(seed, breaks, SETS_BREAK_UNTIL_NS));
            self.config.set_rounds = Chance::new(seed, rounds).pick(&[4, 32, 256, self.config.set_rounds]);
        }
        self
    }
}

/// Returns a liar's lies with all violations that its fault model permits, except rare ones, silence and torn values,
/// which stay as drawn.
fn every(lies: Lies) -> Lies {
    Lies {
        rewrite: true,
        kill: true,
        half: true,
        old_laps: true,
        overrun: true,
        // Only a liar without restrictions writes garbage.
        garbage: lies.host,
        ..lies
    }
}

fn draw_network(severity: Severity, chance: &mut Chance) -> NetworkModel {
    let adversarial = NetworkModel::adversarial();
    match severity {
        // If partitions outlast the retries, processes that are up suspect each other.
        Severity::Usual => NetworkModel { retry_ns: chance.pick(&[25_000, 60_000, 1_000_000]), ..adversarial },
        Severity::Harsh => {
            let ordered = if chance.between(0, 1) == 0 { adversarial } else { NetworkModel::unordered() };
            NetworkModel {
                retry_ns: chance.pick(&[15_000, 25_000, 60_000]),
                late_writes: 100_000,
                late_ns: chance.pick(&[40_000, 150_000]),
                ..ordered
            }
        }
    }
}

fn mix(severity: Severity) -> FaultMix {
    let usual = FaultMix {
        count: 5,
        from_ns: 20_000,
        until_ns: 500_000,
        longest_ns: 80_000,
        stall: 2,
        partition: 1,
        one_way: 2,
        ..FaultMix::default()
    };
    match severity {
        Severity::Usual => usual,
        Severity::Harsh => {
            FaultMix { count: 15, from_ns: 5_000, until_ns: 900_000, longest_ns: 150_000, clock_jump: 1, ..usual }
        }
    }
}

fn draw_config(profile: Profile, chance: &mut Chance, mutant: Mutant) -> Config {
    let (n, mode, f) = match profile {
        Profile::LyingSender => {
            let (n, f) = chance.pick(&[(3, 0), (4, 1), (5, 1), (6, 2)]);
            (n, Mode::Quorum(FaultModel::LyingSender), f)
        }
        Profile::LyingHosts => {
            let (n, f) = chance.pick(&[(4, 1), (5, 1), (7, 2)]);
            (n, Mode::Quorum(FaultModel::LyingHosts), f)
        }
        Profile::Signed => (4, Mode::Quorum(FaultModel::LyingHosts), 1),
        Profile::Removal => (chance.pick(&[3, 4, 5, 5]), Mode::All, 0),
        Profile::All | Profile::AllBroken => (chance.pick(&[2, 3, 4, 4, 5]), Mode::All, 0),
    };
    Config {
        window: chance.pick(&[1, 2, 4, 8]),
        payload_bytes: 320,
        fast_path: chance.between(0, 2) > 0,
        fast_rounds: chance.pick(&[0, 64]),
        eager_self: chance.between(0, 3) == 0,
        signed: profile == Profile::Signed,
        patience_ns: chance.pick(&[150_000, 400_000]),
        mutant,
        ..Config::new(n, mode, f)
    }
}

fn draw_liars(profile: Profile, config: &Config, chance: &mut Chance) -> Vec<(ProcessId, Lies)> {
    let most = match profile {
        Profile::LyingSender | Profile::All | Profile::Removal => 1,
        Profile::LyingHosts | Profile::Signed => config.faults,
        Profile::AllBroken => 2.min(config.processes - 1),
    };
    let count = if chance.between(0, 7) == 0 { 0 } else { most };
    let mut liars = Vec::new();
    for _ in 0..count {
        let process = ProcessId(chance.between(0, config.processes as u64 - 1) as u16);
        if liars.iter().any(|(liar, _)| *liar == process) {
            continue;
        }
        let mut coin = || chance.between(0, 1) == 1;
        let sender =
            Lies { two_values: true, rewrite: coin(), kill: coin(), half: coin(), old_laps: coin(), ..Lies::default() };
        let sender = Lies { overrun: coin(), own_host: config.mode != Mode::All, ..sender };
        let anything = matches!(profile, Profile::LyingHosts | Profile::Signed | Profile::AllBroken);
        let lies = if anything {
            // If values are signed, a liar gains nothing by torn values. Without signatures, readers would wait for
            // them.
            let torn = config.signed && sender.half;
            Lies { host: true, garbage: coin(), torn, silent: chance.between(0, 5) == 0, ..sender }
        } else {
            sender
        };
        liars.push((process, lies));
    }
    liars
}

/// Draws the rare lies: those that end a liar's stream, and old values that are shown as those of later laps. Returns a
/// number n: lies affect one in n of a liar's indices. It is 1 in runs without a lie that ends a stream, and 2 to 12 in
/// runs with one.
fn draw_more_lies(profile: Profile, config: &Config, liars: &mut [(ProcessId, Lies)], chance: &mut Chance) -> u64 {
    let replays = matches!(profile, Profile::LyingHosts | Profile::Signed) && config.mode != Mode::All;
    let mut ends = false;
    for (_, lies) in liars {
        lies.later_laps = replays && chance.between(0, 2) == 0;
        lies.gap = chance.between(0, 7) == 0;
        lies.too_long = chance.between(0, 7) == 0;
        ends |= lies.gap || lies.too_long;
    }
    if ends { chance.between(2, 12) } else { 1 }
}

/// Draws a removal of one process, or of two of five. Each may be a liar, and may crash before or after its removal
/// begins.
fn draw_removal(config: &Config, liars: &[(ProcessId, Lies)], chance: &mut Chance, plan: &mut FaultPlan) -> Removals {
    let at_ns = chance.between(30_000, 250_000);
    let count = if config.processes == 5 { chance.between(1, 2) } else { 1 };
    let mut targets = ProcessSet::EMPTY;
    if chance.between(0, 1) == 0 {
        targets.extend(liars.first().map(|(liar, _)| *liar));
    }
    while targets.len() < count as usize {
        targets.insert(ProcessId(chance.between(0, config.processes as u64 - 1) as u16));
    }
    for target in targets.iter() {
        match chance.between(0, 3) {
            0 => plan.push((at_ns.saturating_sub(chance.between(0, 30_000)), Fault::Crash(target))),
            1 => plan.push((20_000, Fault::CrashAtPost { process: target, post: chance.between(1, 80) })),
            2 => plan.push((at_ns + chance.between(0, 60_000), Fault::Crash(target))),
            _ => {}
        }
    }
    let all = chance.between(0, 1) == 0;
    let first = if all { targets } else { targets.iter().take(1).collect() };
    let deaths = chance.between(0, 3);
    let dies_after = (0..deaths).map(|_| chance.between(1, 14)).collect();
    Removals {
        at_ns,
        targets,
        first,
        reached: chance.between(0, 1) == 0,
        dies_after,
        overlap: chance.between(0, 1) == 0,
    }
}

/// With probability 1/2, cuts the links between the correct processes of the two sides for some time, in both
/// directions or in one. Liars reach all processes.
fn cut_sides(correct: &[ProcessId], other_side: ProcessSet, chance: &mut Chance, plan: &mut FaultPlan) {
    if chance.between(0, 1) == 0 {
        return;
    }
    let at = chance.between(5_000, 120_000);
    let for_ns = chance.between(20_000, 250_000);
    let one_way = chance.between(0, 2) == 0;
    for from in correct {
        for to in correct {
            let across = other_side.contains(*from) != other_side.contains(*to);
            if across && !(one_way && other_side.contains(*from)) {
                plan.push((at, Fault::Cut { from: *from, to: *to, for_ns }));
            }
        }
    }
}

/// Cuts the two sides from each other up to three times, and single links between correct processes of any side.
fn cut_more(correct: &[ProcessId], other_side: ProcessSet, chance: &mut Chance, plan: &mut FaultPlan) {
    for _ in 0..3 {
        let later = plan.len();
        cut_sides(correct, other_side, chance, plan);
        let by = chance.between(0, 600_000);
        plan[later..].iter_mut().for_each(|(at, _)| *at += by);
    }
    for _ in 0..12 {
        let (from, to) = (chance.pick(correct), chance.pick(correct));
        if from != to {
            let (at, for_ns) = (chance.between(5_000, 900_000), chance.between(10_000, 200_000));
            plan.push((at, Fault::Cut { from, to, for_ns }));
        }
    }
}

/// Crashes a random number of correct processes, at most as many as the profile permits. Returns the number.
fn crash(
    profile: Profile,
    config: &Config,
    liars: &[(ProcessId, Lies)],
    correct: &[ProcessId],
    chance: &mut Chance,
    plan: &mut FaultPlan,
) -> usize {
    let most = match profile {
        // A lying sender may be silent in the streams of others, so it counts among the f faulty processes.
        Profile::LyingSender => config.faults,
        Profile::LyingHosts | Profile::Signed => config.faults - liars.len(),
        Profile::All | Profile::Removal => 0,
        Profile::AllBroken => 1,
    };
    let count = chance.between(0, most as u64) as usize;
    let mut left: Vec<ProcessId> = correct.to_vec();
    for _ in 0..count.min(left.len()) {
        let process = left.remove(chance.between(0, left.len() as u64 - 1) as usize);
        let at = chance.between(20_000, 300_000);
        let fault = if chance.between(0, 1) == 0 {
            Fault::Crash(process)
        } else {
            Fault::CrashAtPost { process, post: chance.between(1, 60) }
        };
        plan.push((at, fault));
    }
    count
}
