//! `stentor sim channel`.

use std::path::Path;
use std::time::Instant;

use stentor_campaign::channel::{RunReport, Scenario, run_seed, trace_seed};
use stentor_campaign::{ChannelCampaign, NemesisCounts};
use stentor_channel::Plant;

use super::report::{About, Ran, Simulated, Talk, impossible};
use crate::args::SimSeeds;
use crate::failure::{Failure, Verdict};
use crate::output::Output;
use crate::streams::{Existing, PLAIN, write_whole};

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
        one(seed, args.trace.as_deref(), plant)?
    } else {
        let (seeds, threads) = (args.seeds.clone(), args.threads);
        let campaign = ChannelCampaign { seeds, plant, until: planted.breaks, threads };
        let bar = output.progress_count("seeds", args.seeds.end - args.seeds.start);
        let report = campaign.run(|done| bar.set_position(done));
        bar.finish_and_clear();
        let report = report.map_err(|error| impossible(&error))?;
        Simulated::campaign(&report, planted, Scenario::claims(), report.unseen_channel_claims())
    };
    output.report(&simulated)?;
    Ok(Verdict::of(simulated.ok()))
}

fn one(seed: u64, trace: Option<&Path>, plant: Plant) -> Result<Simulated, Failure> {
    let begin = Instant::now();
    let report = match trace {
        None => run_seed(seed, plant).map_err(|error| impossible(&error))?,
        Some(path) => {
            let (report, trace) = trace_seed(seed, plant).map_err(|error| impossible(&error))?;
            write_whole(path, trace.as_ref(), Existing::Goes, PLAIN)
                .map_err(|error| Failure::cannot_write(path, &error))?;
            report
        }
    };
    let about = About::Channel(Talk::of(&Scenario::draw(seed, plant)));
    Ok(Simulated::one(ran(seed, report, begin.elapsed().as_secs_f64()), about, known(plant), trace))
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
