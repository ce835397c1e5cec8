//! `stentor sim multicast`.

use stentor_simulation::{Mutant, Profile, RunReport, Scenario, record_seed};
use stentor_support::{Failure, Output, Verdict};

use super::report::{About, Cluster, Ran, Recovery, Simulated, Totals};
use super::{run_seed, run_seeds, simulate};
use crate::args::SimMulticast;

super::planted!(Mutant, "multicast", shows_in_calm);

pub(super) fn run(args: &SimMulticast, output: Output) -> Result<Verdict, Failure> {
    let (args, profile, sets) = (&args.seeds, args.profile, args.sets);
    let (plant, planted) = planted(args)?;
    let planted = planted.under((profile != Profile::Calm).then(|| profile.name()), sets);
    let one = |seed| {
        let (report, wall_seconds) = run_seed(args, |record| record_seed(seed, profile, sets, plant, record))?;
        let about = About::Multicast(Cluster::of(&Scenario::draw_under(seed, profile)));
        let recovery = Recovery::of(profile, report.recovery_steps);
        let ran = ran(seed, report, wall_seconds);
        Ok(Simulated::one(ran, about, planted, args.trace.as_deref()).under(recovery))
    };
    let many = || {
        let report = run_seeds(args, planted, output, |run, done| run.multicast(profile, sets, plant, done))?;
        let (claims, unseen) = (Scenario::claims_under(profile), report.unseen_claims(profile, sets));
        let recovery = Recovery::of(profile, report.most_recovery_steps);
        Ok(Simulated::many(&report, planted, &claims, unseen).under(recovery))
    };
    simulate(args, output, one, many)
}

fn ran(seed: u64, run: RunReport, wall_seconds: f64) -> Ran {
    let (messages, deliveries, steps, writes) = (run.messages, run.deliveries, run.steps, run.writes);
    let totals = Totals { messages, deliveries, steps, writes, wall_seconds };
    let (violated, counts) = (run.violated().collect(), run.counts());
    Ran {
        virtual_ns: run.virtual_ns,
        faults: run.faults,
        claims: Scenario::claims_under(run.profile),
        nemesis: run.nemesis,
        happened: run.log,
        ..Ran::of(seed, violated, counts, totals, run.report)
    }
}
