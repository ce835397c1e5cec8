//! `stentor sim`: simulation campaigns, and single seeds.

mod channel;
mod multicast;
mod neb;
mod recording;
mod report;
mod switch;

use std::fmt::Display;
use std::time::Instant;

use stentor_simulation::{Record, Recorded, SimulationReport};
use stentor_support::{Failure, Output, Verdict};

use crate::args::{SimCommand, SimSeeds};
use report::Simulated;

pub(super) fn run(command: &SimCommand, output: Output) -> Result<Verdict, Failure> {
    match command {
        SimCommand::Multicast(args) => multicast::run(args, output),
        SimCommand::Neb(args) => neb::run(args, output),
        SimCommand::Channel(args) => channel::run(args, output),
        SimCommand::Switch(args) => switch::run(args, output),
    }
}

/// A planted bug that is on, if any, and the protocol that it is in.
#[derive(Clone, Copy)]
struct Planted {
    protocol: &'static str,
    name: Option<&'static str>,
    /// The profile of faults, if it is not the calm one.
    profile: Option<&'static str>,
    /// Which runs have sets, if it is not what the seeds say.
    sets: Option<&'static str>,
    /// The property that it is known to break.
    breaks: Option<&'static str>,
}

/// Defines what a protocol's planted bugs are to the command line.
macro_rules! planted {
    ($plant:ty, $protocol:literal) => {
        #[cfg(feature = "plants")]
        fn plant(args: &crate::args::SimSeeds) -> Result<$plant, Failure> {
            let Some(name) = &args.plant else { return Ok(<$plant>::None) };
            <$plant>::named(name).ok_or_else(|| {
                let what = format_args!("there is no planted bug `{name}`");
                let remedy = concat!("`stentor sim ", $protocol, " --plants` lists their names");
                Failure::usage(what, "--plant", remedy)
            })
        }

        #[cfg(not(feature = "plants"))]
        fn plant(_: &crate::args::SimSeeds) -> Result<$plant, Failure> {
            Ok(<$plant>::None)
        }

        #[cfg(feature = "plants")]
        fn known(plant: $plant) -> super::Planted {
            let on = plant != <$plant>::None;
            let (name, breaks) = (on.then(|| plant.name()), on.then(|| plant.breaks()));
            super::Planted { protocol: $protocol, name, profile: None, sets: None, breaks }
        }

        #[cfg(not(feature = "plants"))]
        fn known(_: $plant) -> super::Planted {
            super::Planted { protocol: $protocol, name: None, profile: None, sets: None, breaks: None }
        }
    };
}
use planted;

/// Prints the names of planted bugs, as `--plants` asks.
#[cfg(feature = "plants")]
fn list(names: impl Iterator<Item = &'static str>, output: Output) -> Result<Verdict, Failure> {
    output.payload(&report::Names(names.collect()))?;
    Ok(Verdict::Good)
}

/// Runs all seeds that the arguments name, with a progress bar, and writes their hashes.
fn run_seeds<E: Display>(
    args: &SimSeeds,
    output: Output,
    run: impl FnOnce(&(dyn Fn(u64) + Sync)) -> Result<SimulationReport, E>,
) -> Result<SimulationReport, Failure> {
    let bar = output.progress_count("seeds", args.seeds.end - args.seeds.start);
    let report = run(&|done| bar.set_position(done));
    bar.finish_and_clear();
    let report = report.map_err(|error| report::impossible(&error))?;
    recording::write_hashes(args, &report.hashes)?;
    Ok(report)
}

/// Runs one seed, and writes what was recorded of it. Returns its report and how many seconds that took.
fn run_seed<R, E: Display>(
    args: &SimSeeds,
    run: impl FnOnce(Record) -> Result<(R, Recorded), E>,
) -> Result<(R, f64), Failure> {
    let begin = Instant::now();
    let (report, recorded) = run(recording::wanted(args)).map_err(|error| report::impossible(&error))?;
    recording::write_one(args, &recorded)?;
    Ok((report, begin.elapsed().as_secs_f64()))
}

/// Prints what came of it.
fn tell(simulated: &Simulated, output: Output) -> Result<Verdict, Failure> {
    output.report(simulated)?;
    Ok(Verdict::of(simulated.ok()))
}
