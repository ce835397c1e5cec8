//! `stentor sim channel`.

use stentor_channel::Mutant;
use stentor_simulation::channel::{RunReport, Scenario, record_seed};
use stentor_support::{Failure, Output, Verdict};

use super::report::{About, Ran, Simulated, Talk, Totals};
use super::{run_seed, run_seeds, simulate};
use crate::args::SimSeeds;

super::planted!(Mutant, "channel", is_for_campaigns);

pub(super) fn run(args: &SimSeeds, output: Output) -> Result<Verdict, Failure> {
    let (plant, planted) = planted(args)?;
    let one = |seed| {
        let (report, seconds) = run_seed(args, |record| record_seed(seed, plant, record))?;
        let about = About::Channel(Talk::of(&Scenario::draw(seed, plant)));
        Ok(Simulated::one(ran(seed, report, seconds), about, planted, args.trace.as_deref()))
    };
    let many = || {
        let report = run_seeds(args, planted, output, |run, done| run.channel(plant, done))?;
        Ok(Simulated::many(&report, planted, Scenario::claims(), report.unseen_channel_claims()))
    };
    simulate(args, output, one, many)
}

fn ran(seed: u64, run: RunReport, wall_seconds: f64) -> Ran {
    let (messages, deliveries, steps, writes) = (run.writes, run.reads, run.steps, run.posts);
    let totals = Totals { messages, deliveries, steps, writes, wall_seconds };
    let (violated, counts) = (run.violated().collect(), run.counts());
    Ran {
        virtual_ns: run.virtual_ns,
        faults: run.faults,
        claims: Scenario::claims().to_vec(),
        ..Ran::of(seed, violated, counts, totals, run.report)
    }
}
