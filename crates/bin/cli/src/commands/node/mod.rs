//! `stentor node`: runs a member of a group until it is asked to stop.

mod artificial;
mod elsewhere;
#[cfg(feature = "zookeeper")]
mod ensemble;
mod hindrance;
mod keeping;
mod loss;
mod majority;
mod report;
mod sink;
mod talk;
mod transfers;
mod watching;

use std::sync::Arc;

use stentor::Cluster;
use stentor::runtime::{BindConfig, Stop};

use crate::args::{self, OnRoce};
use artificial::Artificial;
pub(super) use report::Served;
use stentor_support::live::{self, Need, stop_at_end_of_input, unstarted};
use stentor_support::{Failure, Level, Output, Verdict};
use watching::{Left, Watching};

pub(super) fn run(args: &args::Node, output: Output) -> Result<Verdict, Failure> {
    let meeting = &args.meeting;
    let config = &meeting.config;
    args.follow.map_or(Ok(()), live::follow)?;
    let plan = Arc::new(live::plan(config)?);
    let failed = |error| unstarted(error, config);
    plan.process(&args.id).map_err(failed)?;
    let need = Need::of(&plan);
    need.refuse(config.display())?;
    make_room(&need, &args.id, output);
    let OnRoce { bind, network } = &meeting.roce;
    live::refuse_foreign(&plan, *bind, network, config)?;
    let directory = live::directory(meeting.directory.as_ref());
    let told = BindConfig { faults: args.faults, ..live::bind_config(config, directory, *bind, network) };
    let (input, left) = (Arc::new(Stop::default()), Left::default());
    let watching = Watching::new(args, &plan, output, (Arc::clone(&input), left.clone()));
    let node =
        Cluster::of(plan).node(&args.id, Artificial::new(args.state_bytes)).wait(meeting.wait.into()).bind_with(told);
    let mut node = node.start_hooked(watching).map_err(failed)?;
    if let Some(Err(failure)) = left.take() {
        return Err(failure);
    }
    if args.until_eof {
        stop_at_end_of_input(input)?;
    }
    let ended = node.run();
    let served = left.take();
    drop(node);
    ended.map_err(|error| Failure::run(error.what(), &args.id, error.remedy()))?;
    let lost = || Failure::run("the node has ended without a report", &args.id, "start it again");
    let served = served.ok_or_else(lost)??;
    if output.is_json() {
        output.report(&served)?;
    } else {
        output.log(Level::Info, &args.id, &served.text());
    }
    Ok(Verdict::Good)
}

/// Raises the limit of open files so that all peers can connect. If the limit stays too low, logs a warning.
pub(super) fn make_room(need: &Need, name: &str, output: Output) {
    need.make_room().into_iter().for_each(|short| output.log(Level::Warn, name, &short));
}
