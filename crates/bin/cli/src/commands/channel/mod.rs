//! `stentor channel`: ordered messages between two processes.

mod line;
mod place;
mod receive;
mod send;
mod stream;
mod words;

use std::fs::File;
use std::io::{self, Read};
use std::time::Duration;

use serde::Serialize;
use stentor::runtime::FabricDiagnostics;

use crate::args::{ChannelCat, ChannelCommand};
use line::Line;
use stentor_support::args::ChannelFabric;
use stentor_support::live::{Interrupt, refuse_network, refuse_traffic};
use stentor_support::streams::StandardInput;
use stentor_support::{Failure, Human, Output, Style, Verdict};
use stream::{Sink, Source};
use words::Whole;

/// Default time that a sender waits for its listener.
const PATIENCE: Duration = Duration::from_secs(20);
/// Names of standard input and output.
const INPUT: &str = "standard input";
const OUTPUT: &str = "standard output";

pub(super) fn run(command: &ChannelCommand, output: Output) -> Result<Verdict, Failure> {
    let ChannelCommand::Cat(args) = command;
    cat(args, output)
}

/// The result of a transfer.
#[derive(Serialize)]
struct Report {
    ok: bool,
    role: &'static str,
    fabric: &'static str,
    /// The provider that carried the transfer, if it is chosen at start.
    carrier: Option<String>,
    scheme: &'static str,
    bytes: u64,
    /// Time from the connection of the two sides to the confirmation.
    seconds: f64,
    /// Rate in 10^6 bytes per second.
    mb_per_s: f64,
    sha256: String,
    /// Size of the memory that the process registers or shares, in bytes.
    memory_bytes: u64,
}

impl Human for Report {
    fn human(&self, _: Style) -> String {
        let Report { role, fabric, bytes, seconds, mb_per_s, sha256, .. } = self;
        let carrier = self.carrier.as_ref().map_or(String::new(), |carrier| format!(" ({carrier})"));
        let done = if *role == "sender" { "sent" } else { "received" };
        format!("{done} {bytes} bytes over {fabric}{carrier} in {seconds:.2} s, {mb_per_s:.1} MB/s\nSHA-256 {sha256}\n")
    }
}

fn cat(args: &ChannelCat, output: Output) -> Result<Verdict, Failure> {
    if output.is_json() && args.listen && args.output.is_none() {
        let what = "standard output cannot carry both the received data and a JSON document";
        return Err(Failure::usage(what, "--json", "receive into a file with --output"));
    }
    let interrupt = Interrupt::catch()?;
    // Arguments are checked, and the file is opened, before the other side learns of this one.
    let task = Task::open(args)?;
    args.ofi.refuse_unless(args.fabric == ChannelFabric::Ofi, "stentor channel cat")?;
    match args.fabric {
        ChannelFabric::Shm => {
            refuse_network(args.roce.bind, &args.roce.network, "--fabric shm")?;
            task.perform(place::shm(args, output)?, args, interrupt, output)
        }
        ChannelFabric::Roce => task.perform(place::roce(args, output)?, args, interrupt, output),
        ChannelFabric::Ofi => {
            refuse_traffic(&args.roce.network, "--fabric ofi")?;
            task.perform(place::ofi(args, output)?, args, interrupt, output)
        }
    }
}

/// The file or pipe of this side.
enum Task {
    Send { source: Box<dyn Read + Send>, name: String, bytes: Option<u64> },
    Receive { sink: Sink, name: String },
}

impl Task {
    fn open(args: &ChannelCat) -> Result<Self, Failure> {
        if args.listen {
            let name = args.output.as_deref().map_or_else(|| OUTPUT.to_owned(), |path| path.display().to_string());
            let sink = Sink::new(args.output.as_deref(), &name)?;
            return Ok(Task::Receive { sink, name });
        }
        let Some(path) = &args.input else {
            return Ok(Task::Send { source: Box::new(StandardInput), name: INPUT.to_owned(), bytes: None });
        };
        let unreadable = |error: io::Error| {
            Failure::usage(format_args!("cannot read: {error}"), path.display(), "name a file that this user may read")
        };
        let file = File::open(path).map_err(unreadable)?;
        let about = file.metadata().map_err(unreadable)?;
        if about.is_dir() {
            return Err(unreadable(io::ErrorKind::IsADirectory.into()));
        }
        let bytes = about.is_file().then_some(about.len());
        Ok(Task::Send { source: Box::new(file), name: path.display().to_string(), bytes })
    }

    fn perform<F: FabricDiagnostics>(
        self,
        fabric: F,
        args: &ChannelCat,
        interrupt: Interrupt,
        output: Output,
    ) -> Result<Verdict, Failure> {
        let patience = args.timeout.map(Duration::from_secs);
        let mut line = Line::new(fabric, &args.place, patience, interrupt, output)?;
        line.meet(if args.listen { patience } else { patience.or(Some(PATIENCE)) })?;
        let (role, whole) = match self {
            Task::Send { source, name, bytes } => {
                let bar = output.transfer("sending", bytes);
                let mut source = Source::new(source)?;
                let sent = send::run(&mut line, &mut source, (&name, bytes), &bar);
                bar.finish_and_clear();
                ("sender", sent?)
            }
            Task::Receive { mut sink, name } => {
                let bar = output.transfer("receiving", None);
                let received = receive::run(&mut line, &mut sink, &name, &bar);
                bar.finish_and_clear();
                ("receiver", received?)
            }
        };
        tell(&report(role, &line, &whole), output)
    }
}

fn report<F: FabricDiagnostics>(role: &'static str, line: &Line<F>, whole: &Whole) -> Report {
    let seconds = line.time().as_secs_f64();
    Report {
        ok: true,
        role,
        fabric: F::NAME,
        carrier: line.carrier(),
        scheme: line.scheme(),
        bytes: whole.bytes,
        seconds,
        mb_per_s: whole.bytes as f64 / seconds / 1e6,
        sha256: whole.hex(),
        memory_bytes: line.memory_bytes(),
    }
}

/// Reports the result. Text goes to standard error, because standard output may carry the received data.
fn tell(report: &Report, output: Output) -> Result<Verdict, Failure> {
    if output.is_json() {
        output.report(report)?;
    } else {
        output.note(report.human(Style::of(&io::stderr())).trim_end());
    }
    Ok(Verdict::Good)
}
