//! `stentor sim`: simulation runs over many seeds, and single seeds.

mod channel;
mod multicast;
mod neb;
mod recording;
mod report;
mod sessions;
mod switch;

use std::fmt::Display;
use std::time::Instant;

use stentor_simulation::{Record, Recorded, Sets, SimulationReport, SimulationRun};
use stentor_support::{Failure, Output, Verdict};

use crate::args::{SimCommand, SimSeeds};
use report::Simulated;

pub(super) fn run(command: &SimCommand, output: Output) -> Result<Verdict, Failure> {
    #[cfg(feature = "plants")]
    if let Some(names) = asked_names(command) {
        output.payload(&report::Names(names))?;
        return Ok(Verdict::Good);
    }
    match command {
        SimCommand::Multicast(args) => multicast::run(args, output),
        SimCommand::Neb(args) => neb::run(args, output),
        SimCommand::Channel(args) => channel::run(args, output),
        SimCommand::Switch(args) => switch::run(args, output),
        SimCommand::Sessions(args) => sessions::run(args, output),
    }
}

/// Returns the names of mutants if `--plants` asks for them.
#[cfg(feature = "plants")]
fn asked_names(command: &SimCommand) -> Option<Vec<&'static str>> {
    match command {
        SimCommand::Multicast(args) => args.seeds.plants.then(multicast::names),
        SimCommand::Neb(args) => args.seeds.plants.then(neb::names),
        SimCommand::Channel(args) => args.plants.then(channel::names),
        SimCommand::Switch(args) => args.plants.then(switch::names),
        SimCommand::Sessions(args) => args.plants.then(sessions::names),
    }
}

/// The protocol, and the mutant that is on, if there is one.
#[derive(Clone, Copy)]
struct Planted {
    protocol: &'static str,
    name: Option<&'static str>,
    /// Name of the profile of faults, if the command that reproduces a violation must name it.
    profile: Option<&'static str>,
    /// Value of `--sets`, which decides which runs have fan-out sets, or `None` if the seeds decide.
    sets: Option<&'static str>,
    /// Property that the mutant is known to break.
    breaks: Option<&'static str>,
}

impl Planted {
    fn none(protocol: &'static str) -> Self {
        Planted { protocol, name: None, profile: None, sets: None, breaks: None }
    }

    /// Adds the profile and the choice of sets, which the command that reproduces a violation must name.
    fn under(self, profile: Option<&'static str>, sets: Sets) -> Self {
        Planted { profile, sets: (sets != Sets::Drawn).then(|| sets.name()), ..self }
    }
}

/// Defines a protocol's mutants for the command line. `$hunted` is the method that returns whether simulations find a
/// mutant.
macro_rules! planted {
    ($plant:ty, $protocol:literal, $hunted:ident) => {
        #[cfg(feature = "plants")]
        fn planted(args: &crate::args::SimSeeds) -> Result<($plant, super::Planted), Failure> {
            let none = super::Planted::none($protocol);
            let Some(name) = &args.plant else { return Ok((<$plant>::None, none)) };
            let plant = <$plant>::named(name).ok_or_else(|| {
                let what = format_args!("there is no mutant `{name}`");
                let remedy = concat!("`stentor sim ", $protocol, " --plants` lists their names");
                Failure::usage(what, "--plant", remedy)
            })?;
            let on = plant != <$plant>::None;
            let (name, breaks) = (on.then(|| plant.name()), on.then(|| plant.breaks()));
            Ok((plant, super::Planted { name, breaks, ..none }))
        }

        #[cfg(not(feature = "plants"))]

        fn planted(_: &crate::args::SimSeeds) -> Result<($plant, super::Planted), Failure> {
            Ok((<$plant>::None, super::Planted::none($protocol)))
        }

        /// Returns the names of the mutants that simulations find.
        #[cfg(feature = "plants")]
        pub(super) fn names() -> Vec<&'static str> {
            <$plant>::ALL.iter().filter(|plant| plant.$hunted()).map(|plant| plant.name()).collect()
        }
    };
}
use planted;

/// Runs one seed, or all that the arguments name, and prints the result.
fn simulate(
    args: &SimSeeds,
    output: Output,
    one: impl FnOnce(u64) -> Result<Simulated, Failure>,
    many: impl FnOnce() -> Result<Simulated, Failure>,
) -> Result<Verdict, Failure> {
    let simulated = args.seed.map_or_else(many, one)?;
    output.conclude(&simulated, Verdict::of(simulated.ok))
}

/// Runs all seeds that the arguments name, with a progress bar, and writes their hashes if these were requested. A run
/// with a mutant ends early, at the first violation of the property that the mutant breaks.
fn run_seeds<E: Display>(
    args: &SimSeeds,
    planted: Planted,
    output: Output,
    run: impl FnOnce(&SimulationRun, &(dyn Fn(u64) + Sync)) -> Result<SimulationReport, E>,
) -> Result<SimulationReport, Failure> {
    let (seeds, threads) = (args.seeds.clone(), args.threads);
    let simulation = SimulationRun { seeds, until: planted.breaks, record: recording::wanted(args), threads };
    let bar = output.progress_count("seeds", args.seeds.end - args.seeds.start);
    let report = run(&simulation, &|done| bar.set_position(done));
    bar.finish_and_clear();
    let report = report.map_err(|error| report::impossible(&error))?;
    recording::write_hashes(args, &report.hashes)?;
    Ok(report)
}

/// Runs one seed, and writes the requested recordings. Returns its report and the duration in seconds.
fn run_seed<R, E: Display>(
    args: &SimSeeds,
    run: impl FnOnce(Record) -> Result<(R, Recorded), E>,
) -> Result<(R, f64), Failure> {
    let begin = Instant::now();
    let (report, recorded) = run(recording::wanted(args)).map_err(|error| report::impossible(&error))?;
    recording::write_one(args, &recorded)?;
    Ok((report, begin.elapsed().as_secs_f64()))
}
