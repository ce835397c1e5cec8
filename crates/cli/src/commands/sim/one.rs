//! A single seed: what it is about, its verdicts, its trace.

use std::path::Path;
use std::time::Instant;

use stentor_campaign::{Plant, Profile, RECOVERY_STEPS, RunReport, Scenario, run_seed, trace_seed};

use super::name;
use super::report::{Cluster, First, One, Simulated, impossible, told};
use crate::args::SimMulticast;
use crate::failure::{Failure, Verdict};
use crate::output::Output;

pub(super) fn run(seed: u64, args: &SimMulticast, plant: Plant, output: Output) -> Result<Verdict, Failure> {
    let begin = Instant::now();
    let report = match &args.trace {
        None => run_seed(seed, args.profile, plant).map_err(|error| impossible(&error))?,
        Some(path) => {
            let (report, trace) = trace_seed(seed, args.profile, plant).map_err(|error| impossible(&error))?;
            std::fs::write(path, trace).map_err(|error| Failure::cannot_write(path, &error))?;
            report
        }
    };
    let wall_seconds = begin.elapsed().as_secs_f64();
    let simulated = simulated(seed, report, (args.profile, plant), wall_seconds, args.trace.as_deref());
    output.report(&simulated)?;
    Ok(Verdict::of(simulated.ok()))
}

fn simulated(
    seed: u64,
    run: RunReport,
    (profile, plant): (Option<Profile>, Plant),
    wall_seconds: f64,
    trace: Option<&Path>,
) -> Simulated {
    let violated: Vec<_> = run.violated().collect();
    let mut properties: std::collections::BTreeMap<_, _> =
        run.report.properties.iter().map(|(name, verdict)| (*name, verdict.as_str())).collect();
    properties.extend(violated.iter().map(|property| (*property, "violated")));
    let one = One {
        seed,
        scenario: Cluster::of(
            &profile.map_or_else(|| Scenario::draw(seed), |profile| Scenario::draw_for(seed, profile)),
        ),
        happened: run.log,
        properties,
        virtual_ns: run.virtual_ns,
        trace: trace.map(Path::to_owned),
    };
    let first = (!violated.is_empty()).then(|| {
        let example = run.report.counter_example.unwrap_or_else(|| "no counter-example".to_owned());
        First::new(seed, violated.clone(), example, profile, plant)
    });
    Simulated {
        ok: violated.is_empty(),
        seeds: 1,
        violations: u64::from(!violated.is_empty()),
        first_violation: first,
        plant: name(plant),
        messages: run.messages,
        deliveries: run.deliveries,
        steps: run.steps,
        writes: run.writes,
        wall_seconds,
        faults: told(&run.faults, profile, &run.nemesis),
        profile: profile.map(Profile::name),
        most_recovery_steps: profile.map(|_| run.recovery_steps),
        recovery_steps_bound: profile.map(|_| RECOVERY_STEPS),
        unseen_faults: Vec::new(),
        one: Some(one),
    }
}
