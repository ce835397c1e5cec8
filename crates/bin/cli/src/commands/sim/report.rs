//! The reports of simulation runs and of single seeds.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;
use stentor_simulation::{
    FaultCounts, NemesisCounts, Profile, RECOVERY_STEPS, Scenario, SimulationReport, channel, neb, sessions, switch,
};
use stentor_support::{Failure, Human, Style, Verdicts, columns, verdict_lines, verdicts};

use super::Planted;

/// The document.
#[derive(Serialize)]
pub(super) struct Simulated {
    pub(super) ok: bool,
    /// Number of seeds that were run.
    pub(super) seeds: u64,
    /// Number of seeds that violated a property.
    pub(super) violations: u64,
    pub(super) first_violation: Option<First>,
    pub(super) plant: Option<&'static str>,
    #[serde(flatten)]
    pub(super) totals: Totals,
    /// Number of faults of each kind that the simulation claims to inject, and of each other kind that happened.
    pub(super) faults: BTreeMap<&'static str, u64>,
    /// Kinds of faults that the simulation claims to inject, and that never happened.
    pub(super) unseen_faults: Vec<&'static str>,
    /// Further counts.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) counts: BTreeMap<&'static str, u64>,
    /// Recovery, under a profile of failures.
    #[serde(flatten)]
    pub(super) recovery: Option<Recovery>,
    /// Details of a single seed.
    #[serde(flatten)]
    pub(super) one: Option<One>,
}

/// Totals of a run.
#[derive(Clone, Copy, Serialize)]
pub(super) struct Totals {
    pub(super) messages: u64,
    pub(super) deliveries: u64,
    pub(super) steps: u64,
    pub(super) writes: u64,
    pub(super) wall_seconds: f64,
}

/// Recovery under a profile of failures.
#[derive(Serialize)]
pub(super) struct Recovery {
    profile: &'static str,
    /// Largest number of steps of all processes from the end of the failures until everything was delivered.
    most_recovery_steps: u64,
    /// Upper bound of the recovery steps. More steps violate property M9.
    recovery_steps_bound: u64,
}

#[derive(Serialize)]
pub(super) struct First {
    pub(super) seed: u64,
    pub(super) property: &'static str,
    pub(super) reproduce: String,
    /// All properties that this seed violated.
    pub(super) properties: Vec<&'static str>,
    pub(super) counter_example: String,
}

/// Details of a single seed.
#[derive(Serialize)]
pub(super) struct One {
    pub(super) seed: u64,
    pub(super) scenario: About,
    /// Verdicts by property: `ok`, `violated` or `not_checked`.
    pub(super) properties: Verdicts,
    pub(super) virtual_ns: u64,
    /// The actions of the nemesis, as text.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) happened: Vec<String>,
    pub(super) trace: Option<PathBuf>,
}

/// The scenario of a seed.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum About {
    Multicast(Cluster),
    Neb(Society),
    Channel(Talk),
    Switch(Bench),
    Sessions(Callers),
}

/// The scenario of a seed of `sim sessions`: the cluster and the sessions.
#[derive(Serialize)]
pub(super) struct Callers {
    groups: Vec<usize>,
    clients: u16,
    commands_per_client: u64,
    sessions_per_group: u32,
    window: u32,
    time_to_live_ns: u64,
    profile: &'static str,
}

impl Callers {
    pub(super) fn of(scenario: &sessions::Scenario) -> Self {
        Callers {
            groups: scenario.base.groups.clone(),
            clients: scenario.base.clients,
            commands_per_client: scenario.commands,
            sessions_per_group: scenario.sessions.sessions,
            window: scenario.sessions.window,
            time_to_live_ns: scenario.ttl_ns,
            profile: scenario.profile.name(),
        }
    }
}

/// The scenario of a seed of `sim switch`: the fan-out set and its load.
#[derive(Serialize)]
pub(super) struct Bench {
    hosts: u8,
    senders: u8,
    most_receivers: u8,
    requests: usize,
    window: u32,
    mtu: u16,
    receives: u32,
    aggregation: String,
    trouble: String,
}

impl Bench {
    pub(super) fn of(scenario: &switch::Scenario) -> Self {
        Bench {
            hosts: scenario.hosts,
            senders: scenario.senders,
            most_receivers: scenario.receivers,
            requests: scenario.programs.iter().map(Vec::len).sum(),
            window: scenario.setup.window,
            mtu: scenario.setup.mtu,
            receives: scenario.setup.receives,
            aggregation: format!("{:?}", scenario.aggregation),
            trouble: format!("{:?}", scenario.trouble),
        }
    }
}

/// The scenario of a seed of `sim channel`: the connections and their load.
#[derive(Serialize)]
pub(super) struct Talk {
    scheme: &'static str,
    processes: u16,
    connections: u16,
    messages_per_end: u64,
    longest_bytes: u64,
    lengths: u32,
    pieces: u32,
    piece_bytes: u32,
    eager_bytes: u32,
    trouble: String,
}

impl Talk {
    pub(super) fn of(scenario: &channel::Scenario) -> Self {
        let config = &scenario.endpoint.channel;
        Talk {
            scheme: config.scheme.name(),
            processes: scenario.processes,
            connections: scenario.endpoint.connections,
            messages_per_end: scenario.messages,
            longest_bytes: scenario.longest,
            lengths: config.lengths,
            pieces: config.pieces,
            piece_bytes: config.piece_bytes,
            eager_bytes: config.eager_bytes,
            trouble: format!("{:?}", scenario.trouble).to_lowercase(),
        }
    }
}

/// The scenario of a seed of `sim neb`: the processes and their load.
#[derive(Serialize)]
pub(super) struct Society {
    profile: String,
    processes: usize,
    mode: String,
    faults: usize,
    quorum: usize,
    liars: Vec<u16>,
    window: u32,
    broadcasts_per_process: u64,
    signed: bool,
    fast_path: bool,
    longest_pause_ns: u64,
}

impl Society {
    pub(super) fn of(scenario: &neb::Scenario) -> Self {
        let config = &scenario.config;
        Society {
            profile: format!("{:?}", scenario.profile),
            processes: config.processes,
            mode: config.mode.to_string(),
            faults: config.faults,
            quorum: config.quorum(),
            liars: scenario.liars.iter().map(|(liar, _)| liar.0).collect(),
            window: config.window,
            broadcasts_per_process: scenario.broadcasts,
            signed: config.signed,
            fast_path: config.fast_path,
            longest_pause_ns: scenario.pause_ns,
        }
    }
}

/// The result of one seed of any protocol.
pub(super) struct Ran {
    pub(super) seed: u64,
    pub(super) violated: Vec<&'static str>,
    pub(super) report: stentor_checker::Report,
    pub(super) totals: Totals,
    pub(super) virtual_ns: u64,
    pub(super) faults: FaultCounts,
    pub(super) claims: Vec<&'static str>,
    pub(super) nemesis: NemesisCounts,
    pub(super) happened: Vec<String>,
    pub(super) counts: Vec<(&'static str, u64)>,
}

impl Ran {
    /// Returns a result without virtual time and without faults, to which the caller adds those of its protocol.
    pub(super) fn of(
        seed: u64,
        violated: Vec<&'static str>,
        counts: Vec<(&'static str, u64)>,
        totals: Totals,
        report: stentor_checker::Report,
    ) -> Self {
        let (faults, nemesis) = (FaultCounts::default(), NemesisCounts::default());
        let (claims, happened) = (Vec::new(), Vec::new());
        Ran { seed, violated, report, totals, virtual_ns: 0, faults, claims, nemesis, happened, counts }
    }
}

#[derive(Serialize)]
pub(super) struct Cluster {
    groups: Vec<usize>,
    clients: u16,
    messages_per_client: u64,
    window: u32,
    message_bytes: usize,
    body_ring_bytes: u64,
    control_ring_bytes: u64,
    variant: &'static str,
    longest_pause_ns: u64,
}

impl First {
    /// Describes the first violation. Its `property` is the one that the mutant is known to break or, if that was not
    /// violated, the first of `properties`.
    fn new(seed: u64, properties: Vec<&'static str>, counter_example: String, planted: Planted) -> Self {
        let known = planted.breaks.filter(|property| properties.contains(property));
        let property = known.or_else(|| properties.first().copied()).unwrap_or("nothing");
        let plant = planted.name.map(|name| format!(" --plant {name}")).unwrap_or_default();
        let under = planted.profile.map(|name| format!(" --profile {name}")).unwrap_or_default();
        let sets = planted.sets.map(|name| format!(" --sets {name}")).unwrap_or_default();
        let reproduce = format!("stentor sim {} --seed {seed}{under}{sets}{plant}", planted.protocol);
        First { seed, property, reproduce, properties, counter_example }
    }
}

impl Cluster {
    pub(super) fn of(scenario: &Scenario) -> Self {
        let limits = scenario.limits;
        Cluster {
            groups: scenario.groups.clone(),
            clients: scenario.clients,
            messages_per_client: scenario.messages,
            window: limits.window,
            message_bytes: limits.message_bytes,
            body_ring_bytes: limits.body_ring_bytes,
            control_ring_bytes: limits.control_ring_bytes,
            variant: match scenario.variant {
                stentor_simulation::Variant::V1 => "v1",
                stentor_simulation::Variant::V2 => "v2",
            },
            longest_pause_ns: scenario.pause_ns,
        }
    }
}

impl Recovery {
    pub(super) fn of(profile: Profile, most_recovery_steps: u64) -> Option<Self> {
        let recovery = Recovery { profile: profile.name(), most_recovery_steps, recovery_steps_bound: RECOVERY_STEPS };
        (profile != Profile::Calm).then_some(recovery)
    }
}

impl Simulated {
    pub(super) fn many(
        report: &SimulationReport,
        planted: Planted,
        claims: &[&str],
        unseen_faults: Vec<&'static str>,
    ) -> Self {
        let first =
            report.first.clone().map(|first| First::new(first.seed, first.properties, first.counter_example, planted));
        Simulated {
            ok: report.violations == 0 && unseen_faults.is_empty(),
            seeds: report.seeds,
            violations: report.violations,
            first_violation: first,
            plant: planted.name,
            totals: Totals {
                messages: report.messages,
                deliveries: report.deliveries,
                steps: report.steps,
                writes: report.writes,
                wall_seconds: report.wall.as_secs_f64(),
            },
            faults: told(&report.faults, &report.nemesis, claims),
            unseen_faults,
            counts: report.more.iter().copied().collect(),
            recovery: None,
            one: None,
        }
    }

    /// Returns the report of a single seed.
    pub(super) fn one(run: Ran, scenario: About, planted: Planted, trace: Option<&Path>) -> Self {
        let violated = run.violated;
        let mut properties = verdicts(&run.report);
        properties.extend(violated.iter().map(|property| (*property, "violated")));
        let trace = trace.map(Path::to_owned);
        let one =
            One { seed: run.seed, scenario, properties, virtual_ns: run.virtual_ns, happened: run.happened, trace };
        let first = (!violated.is_empty()).then(|| {
            let example = run.report.counter_example.unwrap_or_else(|| "no counter-example".to_owned());
            First::new(run.seed, violated.clone(), example, planted)
        });
        Simulated {
            ok: violated.is_empty(),
            seeds: 1,
            violations: u64::from(!violated.is_empty()),
            first_violation: first,
            plant: planted.name,
            totals: run.totals,
            faults: told(&run.faults, &run.nemesis, &run.claims),
            unseen_faults: Vec::new(),
            counts: run.counts.into_iter().collect(),
            recovery: None,
            one: Some(one),
        }
    }

    /// Adds the recovery, for a protocol that has profiles.
    pub(super) fn under(self, recovery: Option<Recovery>) -> Self {
        Simulated { recovery, ..self }
    }

    fn found(&self, style: Style) -> String {
        let mut text = String::new();
        match &self.first_violation {
            Some(first) => {
                let (seed, property) = (first.seed, first.property);
                let _ = writeln!(text, "{} {property} at seed {seed}", style.bad("violated"));
                let _ = writeln!(text, "{}", first.counter_example);
                let _ = writeln!(text, "REPRODUCE WITH: {}", first.reproduce);
            }
            None if self.violations > 0 => {
                let _ = writeln!(text, "{}: seeds violated other properties", style.bad("violated"));
            }
            None if self.plant.is_some() => text.push_str("the mutant was not found\n"),
            None => {
                let _ = writeln!(text, "{} every property held in every seed", style.good("ok"));
            }
        }
        for kind in &self.unseen_faults {
            let _ = writeln!(text, "{} {kind} is claimed and never happened", style.bad("failed"));
        }
        text
    }
}

/// Returns the counts of the kinds of faults in `claims`, and of all other kinds that happened.
fn told(faults: &FaultCounts, nemesis: &NemesisCounts, claims: &[&str]) -> BTreeMap<&'static str, u64> {
    let all = faults.named().into_iter().chain(nemesis.named());
    all.filter(|(kind, count)| *count > 0 || claims.contains(kind)).collect()
}

pub(super) fn impossible(error: &impl Display) -> Failure {
    Failure::run(format_args!("a drawn scenario is impossible: {error}"), "sim multicast", "report this as a bug")
}

impl Human for One {
    fn human(&self, style: Style) -> String {
        let about = match &self.scenario {
            About::Multicast(Cluster { groups, clients, messages_per_client, window, variant, .. }) => {
                let sizes = groups.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
                format!(
                    "groups of {sizes}, {clients} clients with {messages_per_client} messages each, window {window}, \
                     {variant}"
                )
            }
            About::Channel(Talk {
                scheme, processes, connections, messages_per_end, lengths, pieces, trouble, ..
            }) => {
                format!(
                    "{scheme}: {processes} processes, {connections} connections with each, {messages_per_end} messages \
                     each way, {lengths} lengths and {pieces} pieces in flight, trouble: {trouble}"
                )
            }
            About::Switch(Bench { hosts, senders, most_receivers, requests, aggregation, trouble, .. }) => {
                format!(
                    "{hosts} hosts, {senders} send {requests} requests to at most {most_receivers} receivers, \
                     {aggregation}, {trouble}"
                )
            }
            About::Sessions(Callers { groups, clients, commands_per_client, sessions_per_group, profile, .. }) => {
                let sizes = groups.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
                format!(
                    "groups of {sizes} with {sessions_per_group} sessions at most, {clients} clients with \
                     {commands_per_client} commands each, faults of profile {profile}"
                )
            }
            About::Neb(Society { profile, processes, mode, faults, quorum, liars, window, .. }) => {
                let liars = liars.iter().map(|liar| format!("p{liar}")).collect::<Vec<_>>().join(", ");
                let liars = if liars.is_empty() { "nobody lies".to_owned() } else { format!("{liars} lies") };
                format!(
                    "{profile}: {processes} processes, mode {mode}, f = {faults}, quorum {quorum}, window {window}, \
                     {liars}"
                )
            }
        };
        let mut text = format!("seed {}: {about}; {:.3} ms of virtual time\n", self.seed, self.virtual_ns as f64 / 1e6);
        text += &verdict_lines(&self.properties, style);
        for line in &self.happened {
            let _ = writeln!(text, "  {line}");
        }
        if let Some(trace) = &self.trace {
            let _ = writeln!(text, "trace: {} (ui.perfetto.dev opens it)", trace.display());
        }
        text
    }
}

impl Human for Simulated {
    fn human(&self, style: Style) -> String {
        let mut text = self.one.as_ref().map(|one| one.human(style) + "\n").unwrap_or_default();
        let Simulated { seeds, violations, totals, .. } = self;
        let Totals { messages, deliveries, steps, wall_seconds, .. } = totals;
        let _ = writeln!(
            text,
            "{seeds} seeds, {messages} messages, {deliveries} deliveries, {steps} steps in {wall_seconds:.1} s; \
             {violations} seeds with a violation"
        );
        if let Some(Recovery { profile, most_recovery_steps, recovery_steps_bound }) = &self.recovery {
            let _ = writeln!(
                text,
                "profile {profile}: at most {most_recovery_steps} steps from the end of the failures until everything was \
                 delivered; the bound is {recovery_steps_bound}"
            );
        }
        let row = |(kind, count): (&&str, &u64)| vec![format!("  {}", kind.replace('_', " ")), count.to_string()];
        text.push_str("faults\n");
        text += &columns(&self.faults.iter().map(row).collect::<Vec<_>>());
        if !self.counts.is_empty() {
            text.push_str("counted\n");
            let row = |(what, count): (&&str, &u64)| vec![format!("  {what}"), count.to_string()];
            text += &columns(&self.counts.iter().map(row).collect::<Vec<_>>());
        }
        text + &self.found(style)
    }
}

/// Names of the mutants.
#[cfg(feature = "plants")]
#[derive(Serialize)]
#[serde(transparent)]
pub(super) struct Names(pub(super) Vec<&'static str>);

#[cfg(feature = "plants")]
impl Human for Names {
    fn human(&self, _: Style) -> String {
        self.0.iter().map(|name| format!("{name}\n")).collect()
    }
}
