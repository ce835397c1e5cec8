//! The processes, the lies and the faults of one seed.

use stentor_fabric::ProcessId;
use stentor_fabric_sim::{Fault, FaultMix, FaultPlan, NetworkModel};
use stentor_neb::{Config, FaultModel, Lies, Mode, Mutant, ProcessSet};

use crate::chance::Chance;
use crate::sets::{self, Sets};

/// What a run is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Profile {
    /// A sender lies, other hosts crash at most.
    LyingSender,
    /// Processes lie in every way.
    LyingHosts,
    /// The same, with signatures: liars delay nobody.
    Signed,
    /// Everybody must answer; a sender lies, nobody crashes.
    All,
    /// Everybody must answer; processes lie and crash, so not everything is delivered.
    AllBroken,
    /// Everybody must answer; one or two crash, lie or are only slow, and an operator removes them.
    Removal,
}

/// How much goes wrong.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Severity {
    /// Partitions, stalls, crashes and lies, on NICs that keep the order of writes on a queue pair.
    #[default]
    Usual,
    /// Three times as many faults, that last longer; queue pairs that break sooner, writes that are later, half the time
    /// in no order at all; clocks that jump; smaller rings and less patience; every liar tells every lie that it may.
    Harsh,
}

named!(Severity { Usual = "usual", Harsh = "harsh" });

/// Whom operators remove, and how.
#[derive(Clone, Debug)]
pub struct Removals {
    /// When the first begins, ns.
    pub at_ns: u64,
    /// Who is to go in the end.
    pub targets: ProcessSet,
    /// Whom the first operator names.
    pub first: ProcessSet,
    /// Whether those that are to go hear that they are.
    pub reached: bool,
    /// After so many answers an operator dies, one after the other; whoever comes then does not.
    pub dies_after: Vec<u64>,
    /// Whether one may begin before the one before is over.
    pub overlap: bool,
}

/// What one seed runs.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// What it is about.
    pub profile: Profile,
    /// Sizes and fault model.
    pub config: Config,
    /// Who lies, and how.
    pub liars: Vec<(ProcessId, Lies)>,
    /// Of so many indices of a liar one is no good.
    pub every: u64,
    /// Who mostly gets a liar's second value.
    pub other_side: ProcessSet,
    /// Broadcasts of each correct process.
    pub broadcasts: u64,
    /// The longest payload that is sent, bytes.
    pub longest: usize,
    /// Longest pause between two broadcasts, ns.
    pub pause_ns: u64,
    /// Delays and liberties.
    pub network: NetworkModel,
    /// Stalls and partitions.
    pub mix: FaultMix,
    /// Crashes, and cuts between correct processes.
    pub plan: FaultPlan,
    /// Who is removed.
    pub removal: Option<Removals>,
    /// Whether what correct processes broadcast must be delivered everywhere.
    pub lively: bool,
}

/// The stream of what is drawn about lies that a stream ends with, and about old answers shown as new ones.
const MORE_LIES: u64 = 900;
/// The stream of what is drawn about removals.
const REMOVAL: u64 = 902;
/// The streams of which runs have sets, of when these break, and of how long they are waited for.
const SETS: [u64; 3] = [903, 904, 905];
/// Sets break until then, besides when processes crash and are cut off, ns.
const SETS_BREAK_UNTIL_NS: u64 = 600_000;
/// Lively runs take no longer than this, virtual time, ns.
pub(crate) const DEADLINE_NS: u64 = 400_000_000;
/// Others end after this.
pub(crate) const SPAN_NS: u64 = 1_500_000;
/// No run takes more steps, all processes together.
pub(crate) const MOST_STEPS: u64 = 400_000;

impl Scenario {
    /// The kinds of fault that simulation runs of at least 100 seeds claim to survive.
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

    /// What simulation runs of a severity claim besides, and that every lie is told and processes are removed.
    #[must_use]
    pub fn claims_under(severity: Severity) -> Vec<&'static str> {
        let more: &[&str] =
            if severity == Severity::Harsh { &["clock_jumps", "retry_exceeded", "flushed"] } else { &[] };
        let removals = ["removals by an operator", "operators that died half-way"];
        [Self::claims(), more, &Lies::NAMES, &removals].concat()
    }

    /// Draws a profile, sizes, lies, crashes, partitions one way and both, and suspicions of processes that are up.
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
    /// With sets, or without.
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

/// All that a liar of these lies may tell within its fault model.
fn every(lies: Lies) -> Lies {
    Lies {
        rewrite: true,
        kill: true,
        half: true,
        old_laps: true,
        overrun: true,
        // Only who may lie about everything writes garbage.
        garbage: lies.host,
        ..lies
    }
}

fn draw_network(severity: Severity, chance: &mut Chance) -> NetworkModel {
    let adversarial = NetworkModel::adversarial();
    match severity {
        // Sometimes partitions outlast the retries: then live processes suspect each other.
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
            // Where values are signed a liar gains nothing by that; elsewhere readers wait for it.
            let torn = config.signed && sender.half;
            Lies { host: true, garbage: coin(), torn, silent: chance.between(0, 5) == 0, ..sender }
        } else {
            sender
        };
        liars.push((process, lies));
    }
    liars
}

/// Lies after which nothing more of a liar's is taken are rare, and then rare in its stream. Returns of how many indices
/// one is no good.
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

/// One is removed, or two of five: a liar, or one that crashes about then, or one that is well.
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

/// For a while the correct processes of the two sides do not hear each other; liars hear everybody.
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

/// Both sides again and again, and single links between correct processes, whatever their side.
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

/// Crashes as many correct processes as the fault model leaves. Returns how many.
fn crash(
    profile: Profile,
    config: &Config,
    liars: &[(ProcessId, Lies)],
    correct: &[ProcessId],
    chance: &mut Chance,
    plan: &mut FaultPlan,
) -> usize {
    let most = match profile {
        // A lying sender may be silent for others' streams: then it is one of the f.
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
