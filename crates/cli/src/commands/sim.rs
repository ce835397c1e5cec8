//! `stentor sim multicast`: simulation campaigns, and single seeds.

mod one;
mod report;

use stentor_campaign::{Campaign, Plant};

use crate::args::{SimCommand, SimMulticast};
use crate::failure::{Failure, Verdict};
use crate::output::Output;
use report::{Simulated, impossible};

pub(super) fn run(command: &SimCommand, output: Output) -> Result<Verdict, Failure> {
    let SimCommand::Multicast(args) = command;
    #[cfg(feature = "plants")]
    if args.plants {
        output.payload(&report::Names(Plant::ALL.iter().map(|plant| plant.name()).collect()))?;
        return Ok(Verdict::Good);
    }
    let plant = plant(args)?;
    match args.seed {
        Some(seed) => one::run(seed, args, plant, output),
        None => campaign(args, plant, output),
    }
}

#[cfg(feature = "plants")]
fn plant(args: &SimMulticast) -> Result<Plant, Failure> {
    let Some(name) = &args.plant else { return Ok(Plant::None) };
    Plant::named(name).ok_or_else(|| {
        let what = format_args!("there is no planted bug `{name}`");
        Failure::usage(what, "--plant", "`stentor sim multicast --plants` lists their names")
    })
}

#[cfg(not(feature = "plants"))]
fn plant(_: &SimMulticast) -> Result<Plant, Failure> {
    Ok(Plant::None)
}

/// The property that a planted bug is known to break.
#[cfg(feature = "plants")]
fn breaks(plant: Plant) -> Option<&'static str> {
    (plant != Plant::None).then(|| plant.breaks())
}

#[cfg(not(feature = "plants"))]
fn breaks(_: Plant) -> Option<&'static str> {
    None
}

/// The name of a planted bug, if one is on.
#[cfg(feature = "plants")]
fn name(plant: Plant) -> Option<&'static str> {
    (plant != Plant::None).then(|| plant.name())
}

#[cfg(not(feature = "plants"))]
fn name(_: Plant) -> Option<&'static str> {
    None
}

fn campaign(args: &SimMulticast, plant: Plant, output: Output) -> Result<Verdict, Failure> {
    let campaign = Campaign {
        seeds: args.seeds.clone(),
        profile: args.profile,
        plant,
        until: breaks(plant),
        threads: args.threads,
    };
    let bar = output.progress_count("seeds", args.seeds.end - args.seeds.start);
    let report = campaign.run(|done| bar.set_position(done));
    bar.finish_and_clear();
    let simulated = Simulated::campaign(&report.map_err(|error| impossible(&error))?, plant);
    output.report(&simulated)?;
    Ok(Verdict::of(simulated.ok()))
}
