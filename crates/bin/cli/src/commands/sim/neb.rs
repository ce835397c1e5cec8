//! `stentor sim neb`.

use stentor_neb::Plant;
use stentor_simulation::neb::{RunReport, Scenario, Severity, record_seed};
use stentor_simulation::{NemesisCounts, Sets, SimulationRun};
use stentor_support::{Failure, Output, Verdict};

use super::report::{About, Ran, Simulated, Society};
use super::{recording, run_seed, run_seeds, tell};
use crate::args::{SimNeb, SimSeeds};

super::planted!(Plant, "neb");

pub(super) fn run(args: &SimNeb, output: Output) -> Result<Verdict, Failure> {
    let (args, severity, sets) = (&args.seeds, args.severity, args.sets);
    #[cfg(feature = "plants")]
    if args.plants {
        let hunted = Plant::ALL.iter().filter(|plant| plant.is_for_campaigns());
        return super::list(hunted.map(|plant| plant.name()), output);
    }
    let plant = plant(args)?;
    let planted = planted(plant, severity, sets);
    let simulated = if let Some(seed) = args.seed {
        one(seed, args, (severity, sets), plant)?
    } else {
        let (seeds, threads) = (args.seeds.clone(), args.threads);
        let run = SimulationRun { seeds, until: planted.breaks, record: recording::wanted(args), threads };
        let report = run_seeds(args, output, |done| run.neb(severity, sets, plant, done))?;
        let unseen = report.unseen_neb_claims(severity, sets);
        Simulated::many(&report, planted, &Scenario::claims_under(severity), unseen)
    };
    tell(&simulated, output)
}

/// What reproduces a violation names the severity as well, and which runs have sets.
fn planted(plant: Plant, severity: Severity, sets: Sets) -> super::Planted {
    let profile = (severity != Severity::Usual).then(|| severity.name());
    super::Planted { profile, sets: (sets != Sets::Drawn).then(|| sets.name()), ..known(plant) }
}

fn one(seed: u64, args: &SimSeeds, (severity, sets): (Severity, Sets), plant: Plant) -> Result<Simulated, Failure> {
    let (report, wall_seconds) = run_seed(args, |record| record_seed(seed, severity, sets, plant, record))?;
    let about = About::Neb(Society::of(&Scenario::draw(seed, severity, plant)));
    let ran = Ran { claims: Scenario::claims_under(severity), ..ran(seed, report, wall_seconds) };
    Ok(Simulated::one(ran, about, planted(plant, severity, sets), args.trace.as_deref()))
}

fn ran(seed: u64, run: RunReport, wall_seconds: f64) -> Ran {
    let counts = run.counts();
    Ran {
        seed,
        violated: run.violated().collect(),
        report: run.report,
        messages: run.broadcasts,
        deliveries: run.deliveries,
        steps: run.steps,
        writes: run.writes,
        virtual_ns: run.virtual_ns,
        wall_seconds,
        faults: run.faults,
        claims: Scenario::claims().to_vec(),
        nemesis: NemesisCounts::default(),
        happened: Vec::new(),
        counts,
    }
}
