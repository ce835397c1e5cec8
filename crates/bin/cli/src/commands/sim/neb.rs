//! `stentor sim neb`.

use stentor_neb::Mutant;
use stentor_simulation::neb::{RunReport, Scenario, Severity, record_seed};
use stentor_support::{Failure, Output, Verdict};

use super::report::{About, Ran, Simulated, Society, Totals};
use super::{run_seed, run_seeds, simulate};
use crate::args::SimNeb;

super::planted!(Mutant, "neb", is_for_campaigns);

pub(super) fn run(args: &SimNeb, output: Output) -> Result<Verdict, Failure> {
    let (args, severity, sets) = (&args.seeds, args.severity, args.sets);
    let (plant, planted) = planted(args)?;
    let profile = (severity != Severity::Usual).then(|| severity.name());
    let planted = planted.under(profile, sets);
    let one = |seed| {
        let (report, wall_seconds) = run_seed(args, |record| record_seed(seed, severity, sets, plant, record))?;
        let about = About::Neb(Society::of(&Scenario::draw(seed, severity, plant)));
        let ran = ran(seed, report, wall_seconds, severity);
        Ok(Simulated::one(ran, about, planted, args.trace.as_deref()))
    };
    let many = || {
        let report = run_seeds(args, planted, output, |run, done| run.neb(severity, sets, plant, done))?;
        let unseen = report.unseen_neb_claims(severity, sets);
        Ok(Simulated::many(&report, planted, &Scenario::claims_under(severity), unseen))
    };
    simulate(args, output, one, many)
}

fn ran(seed: u64, run: RunReport, wall_seconds: f64, severity: Severity) -> Ran {
    let (messages, deliveries, steps, writes) = (run.broadcasts, run.deliveries, run.steps, run.writes);
    let totals = Totals { messages, deliveries, steps, writes, wall_seconds };
    let (violated, counts) = (run.violated().collect(), run.counts());
    Ran {
        virtual_ns: run.virtual_ns,
        faults: run.faults,
        claims: Scenario::claims_under(severity),
        ..Ran::of(seed, violated, counts, totals, run.report)
    }
}
