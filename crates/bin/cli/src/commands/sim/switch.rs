//! `stentor sim switch`.

use stentor_simulation::switch::{RunReport, Scenario, record_seed};
use stentor_simulation::{FaultCounts, NemesisCounts, SimulationRun};
use stentor_support::{Failure, Output, Verdict};
use stentor_switch::Mutant;

use super::report::{About, Bench, Ran, Simulated};
use super::{recording, run_seed, run_seeds, tell};
use crate::args::SimSeeds;

super::planted!(Mutant, "switch");

pub(super) fn run(args: &SimSeeds, output: Output) -> Result<Verdict, Failure> {
    #[cfg(feature = "plants")]
    if args.plants {
        let hunted = Mutant::ALL.iter().filter(|plant| plant.is_for_simulation());
        return super::list(hunted.map(|plant| plant.name()), output);
    }
    if args.trace.is_some() {
        let remedy = "leave it out: a seed's verdict names the packets";
        return Err(Failure::usage("the switch has no trace of time", "--trace", remedy));
    }
    let plant = plant(args)?;
    let planted = known(plant);
    let simulated = if let Some(seed) = args.seed {
        let (report, seconds) = run_seed(args, |record| record_seed(seed, plant, record))?;
        let about = About::Switch(Bench::of(&Scenario::draw(seed, plant)));
        Simulated::one(ran(seed, report, seconds), about, planted, None)
    } else {
        let (seeds, threads) = (args.seeds.clone(), args.threads);
        let run = SimulationRun { seeds, until: planted.breaks, record: recording::wanted(args), threads };
        let report = run_seeds(args, output, |done| run.switch(plant, done))?;
        Simulated::many(&report, planted, Scenario::claims(), report.unseen_switch_claims())
    };
    tell(&simulated, output)
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
