//! What a campaign or a seed prints.

use std::collections::BTreeMap;
use std::fmt::{Display, Write};
use std::path::PathBuf;

use serde::Serialize;
use stentor_campaign::{CampaignReport, FaultCounts, NemesisCounts, Plant, Profile, RECOVERY_STEPS, Scenario};

use super::{breaks, name};
use crate::commands::check::{in_order, title};
use crate::failure::Failure;
use crate::output::Human;
use crate::style::{Style, columns};

/// The document.
#[derive(Serialize)]
pub(super) struct Simulated {
    pub(super) ok: bool,
    /// How many were run.
    pub(super) seeds: u64,
    /// Seeds that violated a property.
    pub(super) violations: u64,
    pub(super) first_violation: Option<First>,
    pub(super) plant: Option<&'static str>,
    pub(super) profile: Option<&'static str>,
    /// Steps of all processes from the end of the faults until everything was delivered, at most, and the bound.
    pub(super) most_recovery_steps: Option<u64>,
    pub(super) recovery_steps_bound: Option<u64>,
    pub(super) messages: u64,
    pub(super) deliveries: u64,
    pub(super) steps: u64,
    pub(super) writes: u64,
    pub(super) wall_seconds: f64,
    /// What is claimed, and what else happened.
    pub(super) faults: BTreeMap<&'static str, u64>,
    /// Claimed, but it never happened.
    pub(super) unseen_faults: Vec<&'static str>,
    /// Of a single seed.
    #[serde(flatten)]
    pub(super) one: Option<One>,
}

#[derive(Serialize)]
pub(super) struct First {
    pub(super) seed: u64,
    pub(super) property: &'static str,
    pub(super) reproduce: String,
    /// All that this seed violated.
    pub(super) properties: Vec<&'static str>,
    pub(super) counter_example: String,
}

/// What is told of a single seed besides.
#[derive(Serialize)]
pub(super) struct One {
    pub(super) seed: u64,
    pub(super) scenario: Cluster,
    /// By name: `ok`, `violated` or `not_checked`.
    pub(super) properties: BTreeMap<&'static str, &'static str>,
    pub(super) virtual_ns: u64,
    /// What was done to it, in words.
    pub(super) happened: Vec<String>,
    pub(super) trace: Option<PathBuf>,
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
    /// `property` is the first of them, or the one that the planted bug is known to break.
    pub(super) fn new(
        seed: u64,
        properties: Vec<&'static str>,
        counter_example: String,
        profile: Option<Profile>,
        plant: Plant,
    ) -> Self {
        let known = breaks(plant).filter(|property| properties.contains(property));
        let property = known.or_else(|| properties.first().copied()).unwrap_or("nothing");
        let planted = name(plant).map(|name| format!(" --plant {name}")).unwrap_or_default();
        let under = profile.map(|profile| format!(" --profile {profile}")).unwrap_or_default();
        let reproduce = format!("stentor sim multicast --seed {seed}{under}{planted}");
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
                stentor_campaign::Variant::V1 => "v1",
                stentor_campaign::Variant::V2 => "v2",
            },
            longest_pause_ns: scenario.pause_ns,
        }
    }
}

impl Simulated {
    pub(super) fn campaign(report: &CampaignReport, plant: Plant) -> Self {
        let profile = report.profile;
        let first = report.first.clone();
        let first = first.map(|first| First::new(first.seed, first.properties, first.counter_example, profile, plant));
        let unseen_faults = report.unseen_claims();
        Simulated {
            ok: report.violations == 0 && unseen_faults.is_empty(),
            seeds: report.seeds,
            violations: report.violations,
            first_violation: first,
            plant: name(plant),
            messages: report.messages,
            deliveries: report.deliveries,
            steps: report.steps,
            writes: report.writes,
            wall_seconds: report.wall.as_secs_f64(),
            faults: told(&report.faults, profile, &report.nemesis),
            profile: profile.map(Profile::name),
            most_recovery_steps: profile.map(|_| report.most_recovery_steps),
            recovery_steps_bound: profile.map(|_| RECOVERY_STEPS),
            unseen_faults,
            one: None,
        }
    }

    pub(super) fn ok(&self) -> bool {
        self.ok
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
            None if self.plant.is_some() => text.push_str("the planted bug was not found\n"),
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

/// The claimed kinds of fault, whatever their count, and those that happened although nobody claimed it.
pub(super) fn told(
    faults: &FaultCounts,
    profile: Option<Profile>,
    nemesis: &NemesisCounts,
) -> BTreeMap<&'static str, u64> {
    let claims = profile.map_or_else(|| Scenario::claims().to_vec(), Profile::claims);
    let all = faults.named().into_iter().chain(nemesis.named());
    all.filter(|(kind, count)| *count > 0 || claims.contains(kind)).collect()
}

pub(super) fn impossible(error: &impl Display) -> Failure {
    Failure::run(format_args!("a drawn scenario is impossible: {error}"), "sim multicast", "report this as a bug")
}

impl Human for One {
    fn human(&self, style: Style) -> String {
        let Cluster { groups, clients, messages_per_client, window, variant, .. } = &self.scenario;
        let sizes = groups.iter().map(ToString::to_string).collect::<Vec<_>>().join("+");
        let mut text = format!(
            "seed {}: groups of {sizes}, {clients} clients with {messages_per_client} messages each, window {window}, \
             {variant}; {:.3} ms of virtual time\n",
            self.seed,
            self.virtual_ns as f64 / 1e6
        );
        for (property, state) in in_order(&self.properties) {
            let state = match state {
                "ok" => style.good("ok"),
                "violated" => style.bad("violated"),
                other => style.fair(other.replace('_', " ")),
            };
            let _ = writeln!(text, "{property:3} {:22} {state}", title(property));
        }
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
        let Simulated { seeds, messages, deliveries, steps, violations, wall_seconds, .. } = self;
        let _ = writeln!(
            text,
            "{seeds} seeds, {messages} messages, {deliveries} deliveries, {steps} steps in {wall_seconds:.1} s; \
             {violations} seeds with a violation"
        );
        if let (Some(profile), Some(most), Some(bound)) =
            (self.profile, self.most_recovery_steps, self.recovery_steps_bound)
        {
            let _ = writeln!(
                text,
                "profile {profile}: everything was delivered within {most} steps after the faults stopped; the bound is {bound}"
            );
        }
        let row = |(kind, count): (&&str, &u64)| vec![format!("  {}", kind.replace('_', " ")), count.to_string()];
        text.push_str("faults\n");
        text += &columns(&self.faults.iter().map(row).collect::<Vec<_>>());
        text + &self.found(style)
    }
}

/// The planted bugs.
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
