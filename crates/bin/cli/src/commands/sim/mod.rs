//! `stentor sim`: simulation campaigns, and single seeds.

mod channel;
mod multicast;
mod neb;
mod recording;
mod report;
mod switch;

use crate::args::SimCommand;

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
use stentor_support::{Failure, Output, Verdict};
