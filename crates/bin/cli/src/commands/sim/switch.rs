//! `stentor sim switch`.

use stentor_simulation::switch::{RunReport, Scenario, record_seed};
use stentor_support::{Failure, Output, Verdict};
use stentor_switch::Mutant;

use super::report::{About, Bench, Ran, Simulated, Totals};
use super::{run_seed, run_seeds, simulate};
use crate::args::SimSeeds;

super::planted!(Mutant, "switch", is_for_simulation);

pub(super) fn run(args: &SimSeeds, output: Output) -> Result<Verdict, Failure> {
    if args.trace.is_some() {
        let remedy = "leave it out: a seed's verdict names the packets";
        return Err(Failure::usage("the switch has no trace of time", "--trace", remedy));
    }
    let (plant, planted) = planted(args)?;
    let one = |seed| {
        let (report, seconds) = run_seed(args, |record| record_seed(seed, plant, record))?;
        let about = About::Switch(Bench::of(&Scenario::draw(seed, plant)));
        Ok(Simulated::one(ran(seed, report, seconds), about, planted, None))
    };
    let many = || {
        let report = run_seeds(args, planted, output, |run, done| run.switch(plant, done))?;
        Ok(Simulated::many(&report, planted, Scenario::claims(), report.unseen_switch_claims()))
    };
    simulate(args, output, one, many)
}

fn ran(seed: u64, run: RunReport, wall_seconds: f64) -> Ran {
    let (messages, deliveries, steps, writes) = (run.posted, run.executed, run.steps, run.passes);
    let totals = Totals { messages, deliveries, steps, writes, wall_seconds };
    let violated = run.violated().collect();
    Ran { claims: Scenario::claims().to_vec(), ..Ran::of(seed, violated, run.counts, totals, run.report) }
}
