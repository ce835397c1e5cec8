//! `stentor sim sessions`.

use stentor_simulation::sessions::{Mutant, RunReport, Scenario, record_seed};
use stentor_support::{Failure, Output, Verdict};

use super::report::{About, Callers, Ran, Simulated, Totals};
use super::{run_seed, run_seeds, simulate};
use crate::args::SimSeeds;

super::planted!(Mutant, "sessions", is_hunted);

pub(super) fn run(args: &SimSeeds, output: Output) -> Result<Verdict, Failure> {
    let (plant, planted) = planted(args)?;
    let one = |seed| {
        let (report, seconds) = run_seed(args, |record| record_seed(seed, plant, record))?;
        let about = About::Sessions(Callers::of(&Scenario::draw(seed)));
        Ok(Simulated::one(ran(seed, report, seconds), about, planted, args.trace.as_deref()))
    };
    let many = || {
        let report = run_seeds(args, planted, output, |run, done| run.sessions(plant, done))?;
        Ok(Simulated::many(&report, planted, Scenario::claims(), report.unseen_session_claims()))
    };
    simulate(args, output, one, many)
}

fn ran(seed: u64, run: RunReport, wall_seconds: f64) -> Ran {
    let (messages, deliveries, steps, writes) = (run.messages, run.deliveries, run.steps, run.writes);
    let totals = Totals { messages, deliveries, steps, writes, wall_seconds };
    let (violated, counts) = (run.violated().collect(), run.counts.named());
    Ran {
        virtual_ns: run.virtual_ns,
        faults: run.faults,
        claims: Scenario::claims().to_vec(),
        nemesis: run.nemesis,
        happened: run.log,
        ..Ran::of(seed, violated, counts, totals, run.report)
    }
}
