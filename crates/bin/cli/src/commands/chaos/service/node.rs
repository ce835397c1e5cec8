//! A member of a service, as a process: a node as programs use it, with the state machine on a separate thread.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use stentor::runtime::{BindConfig, Stop, now_ns};
use stentor_support::live::{Interrupt, stop_at_end_of_input};
use stentor_support::{Failure, Verdict};

use super::ProcessSpec;
use super::machine::Served;
use super::records::Journal;
use crate::args::Wait;

/// The time between two looks at signals.
const LOOK: Duration = Duration::from_millis(10);

/// The specification of a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::commands::chaos) struct NodeSpec {
    pub(in crate::commands::chaos) name: String,
    /// The file in which the member records its inputs.
    pub(in crate::commands::chaos) log: PathBuf,
    pub(in crate::commands::chaos) wait: String,
    /// `true` if the network can have faults.
    pub(in crate::commands::chaos) faults: bool,
    /// Seed of lost packets.
    pub(in crate::commands::chaos) seed: u64,
}

/// Writes the library's log to standard error, with times on the clock of the records.
struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        eprintln!("{} {} {}", now_ns(), record.level(), record.args());
    }

    fn flush(&self) {}
}

pub(super) fn run(process: &ProcessSpec, spec: &NodeSpec) -> Result<Verdict, Failure> {
    let interrupt = Interrupt::catch()?;
    if log::set_logger(&Logger).is_ok() {
        log::set_max_level(log::LevelFilter::Info);
    }
    let stop = Arc::new(Stop::default());
    stop_at_end_of_input(Arc::clone(&stop))?;
    let cluster = process.cluster()?;
    let machine = Served::new(Journal::open(&spec.log)?, cluster.groups().collect());
    let (sockets, faults, seed) = (process.sockets.clone(), spec.faults, spec.seed);
    let told = BindConfig { sockets, faults, seed, ..BindConfig::beside(&process.config) };
    let wait = Wait::from_str(&spec.wait, false).unwrap_or(Wait::Adaptive);
    let node = cluster.node(&spec.name, machine).wait(wait.into()).bind_with(told).spawn();
    let node = node.map_err(|error| Failure::run(&error, &spec.name, error.remedy()))?;
    while !interrupt.came() && !stop.is_stopped() && !node.has_ended() {
        std::thread::sleep(LOOK);
    }
    match node.stop() {
        Ok(_) if interrupt.came() || stop.is_stopped() => Ok(Verdict::Good),
        Ok(_) => Err(Failure::run("the node ended without a request to stop", &spec.name, "report this as a bug")),
        Err(error) => Err(Failure::run(error.what(), &spec.name, error.remedy())),
    }
}
