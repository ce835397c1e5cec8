//! `stentor sim neb`.

use std::time::Instant;

use stentor_campaign::neb::{RunReport, Scenario, run_seed, trace_seed};
use stentor_campaign::{NebCampaign, NemesisCounts};
use stentor_neb::Plant;

use super::report::{About, Ran, Simulated, Society, impossible};
use crate::args::SimSeeds;
use crate::failure::{Failure, Verdict};
use crate::output::Output;

super::planted!(Plant, "neb");

pub(super) fn run(args: &SimSeeds, output: Output) -> Result<Verdict, Failure> {
    #[cfg(feature = "plants")]
    if args.plants {
        let hunted = Plant::ALL.iter().filter(|plant| plant.is_for_campaigns());
        let names = hunted.map(|plant| plant.name()).collect();
        output.payload(&super::report::Names(names))?;
        return Ok(Verdict::Good);
    }
    let plant = plant(args)?;
    let planted = known(plant);
    let simulated = if let Some(seed) = args.seed {
        one(seed, args, plant)?
    } else {
        let campaign = NebCampaign { seeds: args.seeds.clone(), plant, until: planted.breaks, threads: args.threads };
        let bar = output.progress_count("seeds", args.seeds.end - args.seeds.start);
        let report = campaign.run(|done| bar.set_position(done));
        bar.finish_and_clear();
        let report = report.map_err(|error| impossible(&error))?;
        Simulated::campaign(&report, planted, Scenario::claims(), report.unseen_neb_claims())
    };
    output.report(&simulated)?;
    Ok(Verdict::of(simulated.ok()))
}

fn one(seed: u64, args: &SimSeeds, plant: Plant) -> Result<Simulated, Failure> {
    let begin = Instant::now();
    let report = match &args.trace {
        None => run_seed(seed, plant).map_err(|error| impossible(&error))?,
        Some(path) => {
            let (report, trace) = trace_seed(seed, plant).map_err(|error| impossible(&error))?;
            std::fs::write(path, trace).map_err(|error| Failure::cannot_write(path, &error))?;
            report
        }
    };
    let wall_seconds = begin.elapsed().as_secs_f64();
    let about = About::Neb(Society::of(&Scenario::draw(seed, plant)));
    Ok(Simulated::one(ran(seed, report, wall_seconds), about, known(plant), args.trace.as_deref()))
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
