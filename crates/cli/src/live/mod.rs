//! What the commands that run real processes share.

mod control;
mod failure;
mod latency;
mod lines;
mod place;
mod signals;

pub(crate) use control::{Answer, Control, Question, Standing, ask};
pub(crate) use failure::unstarted;
pub(crate) use latency::{Latency, Micros};
pub(crate) use lines::{Input, Line, Lines};
pub(crate) use place::{Joined, Joining, absent};
pub(crate) use signals::{Interrupt, stop_at_end_of_input};

use std::path::{Path, PathBuf};

use stentor::ClusterConfig;
use stentor::config::FabricKind;
use stentor::runtime::{GroupId, Plan};

use crate::failure::Failure;

/// Reads a configuration whose processes can run on this host.
pub(crate) fn plan(config: &Path) -> Result<Plan, Failure> {
    let parsed = ClusterConfig::load(config)?;
    if parsed.fabric() != FabricKind::Shm {
        let what = format_args!("fabric \"{}\" has no processes of its own", parsed.fabric());
        return Err(Failure::usage(what, config.display(), "set fabric = \"shm\"; `stentor sim` simulates"));
    }
    Plan::new(parsed).map_err(|error| unstarted(error, config))
}

/// Groups by name, in rising order, each once.
pub(crate) fn groups(plan: &Plan, names: &[String], config: &Path) -> Result<Vec<GroupId>, Failure> {
    let known = || plan.config().groups().iter().map(stentor::config::GroupConfig::id).collect::<Vec<_>>().join(", ");
    let group = |name: &String| {
        plan.group(name).ok_or_else(|| {
            let what = format_args!("there is no group `{name}`");
            Failure::usage(what, config.display(), format_args!("name some of: {}", known()))
        })
    };
    let mut groups = names.iter().map(group).collect::<Result<Vec<_>, _>>()?;
    groups.sort_unstable();
    groups.dedup();
    Ok(groups)
}

/// Makes a history file; one that exists is never overwritten.
pub(crate) fn new_history(path: &Path) -> Result<std::fs::File, Failure> {
    std::fs::File::create_new(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => {
            Failure::usage("the history exists already; it was not changed", path.display(), "name another file")
        }
        _ => Failure::cannot_write(path, &error),
    })
}

/// Where the control sockets are.
pub(crate) fn directory(asked: Option<&PathBuf>) -> PathBuf {
    asked.cloned().unwrap_or_else(stentor_fabric_shm::default_directory)
}
