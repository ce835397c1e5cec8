//! `stentor bench`: how fast, and how far from what the machine can do at best.
//!
//! A bench is a conductor and processes of the same binary. They share plain memory ([`stage`]), over which the conductor
//! begins one phase after the other: the floor, the subject, the floor again. What they find they leave in that memory.
#![forbid(unsafe_code)]

mod args;
mod channel;
mod clock;
mod crew;
mod datagrams;
mod environment;
mod errand;
mod fabric;
mod failover;
mod multicast;
mod neb;
mod ofi;
mod pause;
mod plain;
mod report;
mod roce;
mod samples;
mod stage;
mod still;
mod switch;
mod way;

use stentor_support::{Failure, Output, Verdict};

pub use args::BenchCommand;
use errand::{Errand, Part};
use still::Still;

/// Runs a bench, or one of the processes that a bench starts, and prints the result.
///
/// # Errors
/// When the arguments do not fit, or the system or a process of the bench refuses.
pub fn run(command: &BenchCommand, output: Output) -> Result<Verdict, Failure> {
    // The processes that a bench starts are this command as well.
    let is_conductor = !matches!(command, BenchCommand::Load { .. } | BenchCommand::Process { .. });
    let still = is_conductor.then(|| Still::begin(output));
    let (report, verdict) = match command {
        BenchCommand::Fabric(args) => (fabric::run(args)?, Verdict::Good),
        BenchCommand::Multicast(args) => (multicast::run(args)?, Verdict::Good),
        BenchCommand::Neb(args) => (neb::run(args)?, Verdict::Good),
        BenchCommand::Channel(args) => (channel::run(args)?, Verdict::Good),
        BenchCommand::Switch(args) => switch::run(args)?,
        BenchCommand::Failover(args) => failover::run(args, output)?,
        BenchCommand::Load { errand } => return failover::process::run(errand),
        BenchCommand::Process { errand } => return process(&Errand::parse(errand)?),
    };
    drop(still);
    output.report(&report)?;
    Ok(verdict)
}

/// One of the processes that a bench starts.
fn process(errand: &Errand) -> Result<Verdict, Failure> {
    let stage = errand.enter()?;
    match errand.part.clone() {
        Part::Fabric { bytes, carrier } => fabric::process::run(errand, &stage, bytes, carrier)?,
        Part::Channel { network, ofi } => channel::process::run(errand, &stage, network, ofi.as_deref())?,
        Part::Neb(neb) => neb::process::run(errand, &stage, &neb)?,
        Part::Multicast(cluster) => multicast::process::run(errand, &stage, &cluster)?,
    }
    Ok(Verdict::Good)
}
