//! `stentor sim multicast`.

use stentor_simulation::{Plant, Profile, RunReport, Scenario, Sets, SimulationRun, record_seed};
use stentor_support::{Failure, Output, Verdict};

use super::report::{About, Cluster, Ran, Recovery, Simulated};
use super::{recording, run_seed, run_seeds, tell};
use crate::args::{SimMulticast, SimSeeds};

super::planted!(Plant, "multicast");

pub(super) fn run(args: &SimMulticast, output: Output) -> Result<Verdict, Failure> {
    let (args, profile, sets) = (&args.seeds, args.profile, args.sets);
    #[cfg(feature = "plants")]
    if args.plants {
        let names = Plant::ALL.iter().filter(|plant| plant.shows_in_calm());
        return super::list(names.map(|plant| plant.name()), output);
    }
    let plant = plant(args)?;
    let planted = planted(plant, profile, sets);
    let simulated = if let Some(seed) = args.seed {
        one(seed, args, (profile, sets), plant)?
    } else {
        let (seeds, threads) = (args.seeds.clone(), args.threads);
        let run = SimulationRun { seeds, until: planted.breaks, record: recording::wanted(args), threads };
        let report = run_seeds(args, output, |done| run.multicast(profile, sets, plant, done))?;
        let claims = Scenario::claims_under(profile);
        Simulated::many(&report, planted, &claims, report.unseen_claims(profile, sets))
            .under(Recovery::of(profile, report.most_recovery_steps))
    };
    tell(&simulated, output)
}

/// What reproduces a violation names the profile as well.
fn planted(plant: Plant, profile: Profile, sets: Sets) -> super::Planted {
    let profile = (profile != Profile::Calm).then(|| profile.name());
    super::Planted { profile, sets: (sets != Sets::Drawn).then(|| sets.name()), ..known(plant) }
}

fn one(seed: u64, args: &SimSeeds, (profile, sets): (Profile, Sets), plant: Plant) -> Result<Simulated, Failure> {
    let (report, wall_seconds) = run_seed(args, |record| record_seed(seed, profile, sets, plant, record))?;
    let about = About::Multicast(Cluster::of(&Scenario::draw_under(seed, profile)));
    let recovery = Recovery::of(profile, report.recovery_steps);
    let ran = ran(seed, report, wall_seconds);
    Ok(Simulated::one(ran, about, planted(plant, profile, sets), args.trace.as_deref()).under(recovery))
}

fn ran(seed: u64, run: RunReport, wall_seconds: f64) -> Ran {
    Ran {
        counts: run.counts(),
        seed,
        violated: run.violated().collect(),
        report: run.report,
        messages: run.messages,
        deliveries: run.deliveries,
        steps: run.steps,
        writes: run.writes,
        virtual_ns: run.virtual_ns,
        wall_seconds,
        faults: run.faults,
        claims: Scenario::claims_under(run.profile),
        nemesis: run.nemesis,
        happened: run.log,
    }
}
