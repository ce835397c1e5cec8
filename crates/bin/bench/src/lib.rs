//! `stentor bench`: performance, and the distance to the best that the machine can do.
//!
//! A bench is a conductor and processes of the same binary, which share plain memory (`shared_area`). In that memory,
//! the conductor starts one phase after the other: the bound, the subject, the bound again. The processes write their
//! results to it.
#![forbid(unsafe_code)]

mod args;
mod bells;
mod channel;
mod clock;
mod cluster;
mod compare;
mod computed;
mod datagrams;
mod environment;
mod fabric;
mod failover;
mod harness;
mod kinds;
mod lane;
mod multicast;
mod neb;
mod ofi;
mod packets;
mod pause;
mod plain;
mod report;
mod rings;
mod roce;
mod samples;
mod schedule;
mod shared_area;
mod still;
mod switch;
mod switch_report;
mod way;
mod worker_spec;
mod workers;

use stentor_support::{Failure, Output, Verdict};

pub use args::BenchCommand;
use still::Still;
use worker_spec::{Part, Worker, WorkerSpec};

/// Runs a bench, or one of the processes that a bench starts, and prints the result.
///
/// # Errors
/// Returns an error if the arguments are wrong, or if the system or a process of the bench fails.
pub fn run(command: &BenchCommand, output: Output) -> Result<Verdict, Failure> {
    // The processes that a bench starts run this command, too.
    let is_worker =
        matches!(command, BenchCommand::Load { .. } | BenchCommand::Mortal { .. } | BenchCommand::Process { .. });
    let still = (!is_worker).then(|| Still::begin(output));
    let (mut report, verdict) = match command {
        BenchCommand::Fabric(args) => (fabric::run(args)?, Verdict::Good),
        BenchCommand::Multicast(args) => (multicast::run(args)?, Verdict::Good),
        BenchCommand::Neb(args) => (neb::run(args)?, Verdict::Good),
        BenchCommand::Channel(args) => (channel::run(args)?, Verdict::Good),
        BenchCommand::Cluster(args) => (cluster::run(args)?, Verdict::Good),
        BenchCommand::Bound(args) => (multicast::hosts::run(args)?, Verdict::Good),
        BenchCommand::Switch(args) => switch::run(args)?,
        BenchCommand::Failover(args) => failover::run(args, output)?,
        BenchCommand::Compare(args) => {
            let (comparison, verdict) = compare::run(args)?;
            return output.conclude(&comparison, verdict);
        }
        BenchCommand::Load { spec } => return failover::process::run(spec),
        BenchCommand::Mortal { spec } => return failover::death::live(spec),
        BenchCommand::Process { spec } => return process(&WorkerSpec::parse(spec)?),
    };
    drop(still);
    report.environment.conclude();
    output.conclude(&report, verdict)
}

/// Runs one of the processes that a bench starts.
fn process(spec: &WorkerSpec) -> Result<Verdict, Failure> {
    let worker = Worker { spec, area: &spec.enter()? };
    match &spec.part {
        Part::Fabric { bytes, carrier } => fabric::process::run(worker, *bytes, *carrier)?,
        Part::Channel { network, ofi, every_byte } => {
            channel::process::run(worker, *network, ofi.as_deref(), *every_byte)?;
        }
        Part::Neb(neb) => neb::process::run(worker, neb)?,
        Part::Multicast(cluster) => multicast::process::run(worker, cluster)?,
        Part::Hosts(hosts) => multicast::hosts::process(worker, hosts)?,
        Part::CriticalPath { cluster, ends } => multicast::critical_path::process::run(worker, cluster, *ends)?,
    }
    Ok(Verdict::Good)
}
