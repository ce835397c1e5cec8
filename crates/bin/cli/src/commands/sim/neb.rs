//! `stentor sim neb`.

use std::time::Instant;

use stentor_neb::Plant;
use stentor_simulation::neb::{RunReport, Scenario, Severity, record_seed};
use stentor_simulation::{NebCampaign, NemesisCounts, Sets};
use stentor_support::{Failure, Output, Verdict};

use super::recording;
use super::report::{About, Ran, Simulated, Society, impossible};
use crate::args::{SimNeb, SimSeeds};

super::planted!(Plant, "neb");

pub(super) fn run(args: &SimNeb, output: Output) -> Result<Verdict, Failure> {
    let (args, severity, sets) = (&args.seeds, args.severity, args.sets);
    #[cfg(feature = "plants")]
    if args.plants {
        let hunted = Plant::ALL.iter().filter(|plant| plant.is_for_campaigns());
        let names = hunted.map(|plant| plant.name()).collect();
        output.payload(&super::report::Names(names))?;
        return Ok(Verdict::Good);
    }
    let plant = plant(args)?;
    let planted = planted(plant, severity, sets);
    let simulated = if let Some(seed) = args.seed {
        one(seed, args, (severity, sets), plant)?
    } else {
        let (seeds, threads) = (args.seeds.clone(), args.threads);
        let campaign = NebCampaign {
            seeds,
            severity,
            sets,
            plant,
            until: planted.breaks,
            record: recording::wanted(args),
            threads,
        };
        let bar = output.progress_count("seeds", args.seeds.end - args.seeds.start);
        let report = campaign.run(|done| bar.set_position(done));
        bar.finish_and_clear();
        let report = report.map_err(|error| impossible(&error))?;
        recording::write_hashes(args, &report.hashes)?;
        let unseen = report.unseen_neb_claims(severity, sets);
        Simulated::campaign(&report, planted, &Scenario::claims_under(severity), unseen)
    };
    output.report(&simulated)?;
    Ok(Verdict::of(simulated.ok()))
}

/// What reproduces a violation names the severity as well, and which runs have sets.
fn planted(plant: Plant, severity: Severity, sets: Sets) -> super::Planted {
    let profile = (severity != Severity::Usual).then(|| severity.name());
    super::Planted { profile, sets: (sets != Sets::Drawn).then(|| sets.name()), ..known(plant) }
}

fn one(seed: u64, args: &SimSeeds, (severity, sets): (Severity, Sets), plant: Plant) -> Result<Simulated, Failure> {
    let begin = Instant::now();
    let (report, recorded) =
        record_seed(seed, severity, sets, plant, recording::wanted(args)).map_err(|error| impossible(&error))?;
    recording::write_one(args, &recorded)?;
    let wall_seconds = begin.elapsed().as_secs_f64();
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
