//! Arguments of `stentor sim`.

use std::ops::Range;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueHint};
use stentor_simulation::neb::Severity;
use stentor_simulation::{Profile, Sets};

#[derive(Subcommand, Debug)]
pub(crate) enum SimCommand {
    /// The atomic multicast: groups, clients, mixed destinations, every ordering fault of the contract
    Multicast(SimMulticast),
    /// The broadcast: processes that lie, crash, are cut off or suspected, under every ordering fault of the contract
    Neb(SimNeb),
    /// Channels: completions and arrivals in any order, crashes, cuts, connections given up
    Channel(SimSeeds),
    /// The switch: real endpoints around its data plane, losses, contention, leases that end, members that change
    Switch(SimSeeds),
    /// Sessions: commands applied exactly once, whatever happens to members and clients
    Sessions(SimSeeds),
}

#[derive(Args, Debug)]
pub(crate) struct SimNeb {
    /// Severity of the faults: usual, or harsh
    #[arg(long = "profile", value_name = "NAME", default_value_t, value_parser = severity)]
    pub(crate) severity: Severity,
    /// Runs that write to fan-out sets, whose copies the network makes: drawn (one in four), always or never
    #[arg(long, value_name = "WHICH", default_value_t, value_parser = sets)]
    pub(crate) sets: Sets,
    #[command(flatten)]
    pub(crate) seeds: SimSeeds,
}

#[derive(Args, Debug)]
pub(crate) struct SimMulticast {
    /// Faults beside those of the network: calm (none), failover (members crash, leaders change), partition (links are
    /// cut), clients (clients crash), all (those three), rings (full rings, links that are cut for a short time),
    /// rejoins (members restart under load), states (the same, with states larger than a ring), stops (members and
    /// clients stop running for a while), clocks (all, on hosts whose clocks differ), or forgets (whole groups lose
    /// their memory, and an operator resets them)
    #[arg(long, value_name = "NAME", default_value_t, value_parser = profile)]
    pub(crate) profile: Profile,
    /// Runs that write to fan-out sets, whose copies the network makes: drawn (one in four), always or never
    #[arg(long, value_name = "WHICH", default_value_t, value_parser = sets)]
    pub(crate) sets: Sets,
    #[command(flatten)]
    pub(crate) seeds: SimSeeds,
}

#[derive(Args, Debug)]
pub(crate) struct SimSeeds {
    /// The seeds, from A up to but not including B
    #[arg(long, value_name = "A..B", default_value = "0..100", value_parser = seeds)]
    pub(crate) seeds: Range<u64>,
    /// Run this seed alone: print its scenario and the verdict for each property
    #[arg(long, value_name = "N", conflicts_with = "seeds")]
    pub(crate) seed: Option<u64>,
    /// Write the trace of the seed of --seed (Chrome trace JSON; ui.perfetto.dev opens it)
    #[arg(long, value_name = "FILE", requires = "seed", value_hint = ValueHint::FilePath)]
    pub(crate) trace: Option<PathBuf>,
    /// Write the transcripts of the seed of --seed, in the encoding that `--hashes` hashes
    #[arg(long, value_name = "FILE", requires = "seed", conflicts_with = "trace", hide = true, value_hint = ValueHint::FilePath)]
    pub(crate) transcript: Option<PathBuf>,
    /// Write a line for each seed: the hashes of its transcripts
    #[arg(long, value_name = "FILE", conflicts_with = "seed", hide = true, value_hint = ValueHint::FilePath)]
    pub(crate) hashes: Option<PathBuf>,
    /// Number of threads; 0: one for each core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,
    /// Switch this mutant on, and end with the first seed that finds it
    #[cfg(feature = "plants")]
    #[arg(long, value_name = "NAME")]
    pub(crate) plant: Option<String>,
    /// Print the names of the mutants
    #[cfg(feature = "plants")]
    #[arg(long, conflicts_with_all = ["plant", "seed"])]
    pub(crate) plants: bool,
}

fn seeds(text: &str) -> Result<Range<u64>, String> {
    let wanted = || format!("`{text}` is not a range of seeds; write for example 0..1000");
    let (from, to) = text.split_once("..").ok_or_else(wanted)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| wanted());
    let range = number(from)?..number(to)?;
    if range.is_empty() { Err(format!("`{text}` has no seeds; the end comes after the beginning")) } else { Ok(range) }
}

fn profile(text: &str) -> Result<Profile, String> {
    Profile::named(text).ok_or_else(|| no_profile(text, Profile::ALL.iter().map(|profile| profile.name())))
}

fn sets(text: &str) -> Result<Sets, String> {
    Sets::named(text).ok_or_else(|| {
        let names: Vec<&str> = Sets::ALL.iter().map(|sets| sets.name()).collect();
        format!("there is no choice `{text}`; there are {}", names.join(", "))
    })
}

fn severity(text: &str) -> Result<Severity, String> {
    Severity::named(text).ok_or_else(|| no_profile(text, Severity::ALL.iter().map(|severity| severity.name())))
}

fn no_profile<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> String {
    format!("there is no profile `{text}`; there are {}", names.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_have_names() {
        assert_eq!(profile("all"), Ok(Profile::All));
        assert!(
            profile("none")
                .unwrap_err()
                .contains("calm, failover, partition, clients, all, rings, rejoins, states, stops, clocks")
        );
    }

    #[test]
    fn fault_levels_have_names() {
        assert_eq!(severity("harsh"), Ok(Severity::Harsh));
        assert!(severity("calm").unwrap_err().contains("usual, harsh"));
    }

    #[test]
    fn seeds_are_a_non_empty_range() {
        assert_eq!(seeds("0..1000"), Ok(0..1000));
        assert_eq!(seeds("7..8"), Ok(7..8));
        for text in ["", "7", "..", "3..3", "4..3", "a..b", "0..=3", "-1..3", "0...3"] {
            assert!(seeds(text).is_err(), "{text}");
        }
    }
}
