//! `stentor sim channel`.

use std::time::Instant;

use stentor_channel::Plant;
use stentor_simulation::channel::{RunReport, Scenario, record_seed};
use stentor_simulation::{ChannelCampaign, NemesisCounts};
use stentor_support::{Failure, Output, Verdict};

use super::recording;
use super::report::{About, Ran, Simulated, Talk, impossible};
use crate::args::SimSeeds;

super::planted!(Plant, "channel");

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
        let (seeds, threads) = (args.seeds.clone(), args.threads);
        let campaign =
            ChannelCampaign { seeds, plant, until: planted.breaks, record: recording::wanted(args), threads };
        let bar = output.progress_count("seeds", args.seeds.end - args.seeds.start);
        let report = campaign.run(|done| bar.set_position(done));
        bar.finish_and_clear();
        let report = report.map_err(|error| impossible(&error))?;
        recording::write_hashes(args, &report.hashes)?;
        Simulated::campaign(&report, planted, Scenario::claims(), report.unseen_channel_claims())
    };
    output.report(&simulated)?;
    Ok(Verdict::of(simulated.ok()))
}

fn one(seed: u64, args: &SimSeeds, plant: Plant) -> Result<Simulated, Failure> {
    let begin = Instant::now();
    let (report, recorded) = record_seed(seed, plant, recording::wanted(args)).map_err(|error| impossible(&error))?;
    recording::write_one(args, &recorded)?;
    let about = About::Channel(Talk::of(&Scenario::draw(seed, plant)));
    Ok(Simulated::one(ran(seed, report, begin.elapsed().as_secs_f64()), about, known(plant), args.trace.as_deref()))
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
