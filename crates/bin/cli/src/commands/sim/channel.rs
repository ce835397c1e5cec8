//! `stentor sim channel`.

use stentor_channel::Plant;
use stentor_simulation::channel::{RunReport, Scenario, record_seed};
use stentor_simulation::{NemesisCounts, SimulationRun};
use stentor_support::{Failure, Output, Verdict};

use super::report::{About, Ran, Simulated, Talk};
use super::{recording, run_seed, run_seeds, tell};
use crate::args::SimSeeds;

super::planted!(Plant, "channel");

pub(super) fn run(args: &SimSeeds, output: Output) -> Result<Verdict, Failure> {
    #[cfg(feature = "plants")]
    if args.plants {
        let hunted = Plant::ALL.iter().filter(|plant| plant.is_for_campaigns());
        return super::list(hunted.map(|plant| plant.name()), output);
    }
    let plant = plant(args)?;
    let planted = known(plant);
    let simulated = if let Some(seed) = args.seed {
        one(seed, args, plant)?
    } else {
        let (seeds, threads) = (args.seeds.clone(), args.threads);
        let run = SimulationRun { seeds, until: planted.breaks, record: recording::wanted(args), threads };
        let report = run_seeds(args, output, |done| run.channel(plant, done))?;
        Simulated::many(&report, planted, Scenario::claims(), report.unseen_channel_claims())
    };
    tell(&simulated, output)
}

fn one(seed: u64, args: &SimSeeds, plant: Plant) -> Result<Simulated, Failure> {
    let (report, seconds) = run_seed(args, |record| record_seed(seed, plant, record))?;
    let about = About::Channel(Talk::of(&Scenario::draw(seed, plant)));
    Ok(Simulated::one(ran(seed, report, seconds), about, known(plant), args.trace.as_deref()))
}

fn ran(seed: u64, run: RunReport, wall_seconds: f64) -> Ran {
    let counts = run.counts();
    Ran {
        seed,
        violated: run.violated().collect(),
        report: run.report,
        messages: run.writes,
        deliveries: run.reads,
        steps: run.steps,
        writes: run.posts,
        virtual_ns: run.virtual_ns,
        wall_seconds,
        faults: run.faults,
        claims: Scenario::claims().to_vec(),
        nemesis: NemesisCounts::default(),
        happened: Vec::new(),
        counts,
    }
}
