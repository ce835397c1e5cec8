//! `stentor sim switch`.

use std::time::Instant;

use stentor_simulation::switch::{RunReport, Scenario, record_seed};
use stentor_simulation::{FaultCounts, NemesisCounts, SimulationRun};
use stentor_switch::Mutant;

use super::recording;
use super::report::{About, Bench, Ran, Simulated, impossible};
use crate::args::SimSeeds;
use crate::failure::{Failure, Verdict};
use crate::output::Output;

super::planted!(Mutant, "switch");

pub(super) fn run(args: &SimSeeds, output: Output) -> Result<Verdict, Failure> {
    #[cfg(feature = "plants")]
    if args.plants {
        let hunted = Mutant::ALL.iter().filter(|plant| plant.is_for_simulation());
        let names = hunted.map(|plant| plant.name()).collect();
        output.payload(&super::report::Names(names))?;
        return Ok(Verdict::Good);
    }
    if args.trace.is_some() {
        let remedy = "leave it out: a seed's verdict names the packets";
        return Err(Failure::usage("the switch has no trace of time", "--trace", remedy));
    }
    let plant = plant(args)?;
    let planted = known(plant);
    let simulated = if let Some(seed) = args.seed {
        let begin = Instant::now();
        let (report, recorded) =
            record_seed(seed, plant, recording::wanted(args)).map_err(|error| impossible(&error))?;
        recording::write_one(args, &recorded)?;
        let about = About::Switch(Bench::of(&Scenario::draw(seed, plant)));
        Simulated::one(ran(seed, report, begin.elapsed().as_secs_f64()), about, planted, None)
    } else {
        let (seeds, threads) = (args.seeds.clone(), args.threads);
        let run = SimulationRun { seeds, until: planted.breaks, record: recording::wanted(args), threads };
        let bar = output.progress_count("seeds", args.seeds.end - args.seeds.start);
        let report = run.switch(plant, |done| bar.set_position(done));
        bar.finish_and_clear();
        let report = report.map_err(|error| impossible(&error))?;
        recording::write_hashes(args, &report.hashes)?;
        Simulated::many(&report, planted, Scenario::claims(), report.unseen_switch_claims())
    };
    output.report(&simulated)?;
    Ok(Verdict::of(simulated.ok()))
}

fn ran(seed: u64, run: RunReport, wall_seconds: f64) -> Ran {
    Ran {
        seed,
        violated: run.violated().collect(),
        report: run.report,
        messages: run.posted,
        deliveries: run.executed,
        steps: run.steps,
        writes: run.passes,
        virtual_ns: 0,
        wall_seconds,
        faults: FaultCounts::default(),
        claims: Scenario::claims().to_vec(),
        nemesis: NemesisCounts::default(),
        happened: Vec::new(),
        counts: run.counts,
    }
}
