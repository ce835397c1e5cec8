//! The commands. Each has a module, which is a file or a folder, except that `group` is in `leader` and `bench` has its
//! own crate.

mod cast;
mod channel;
mod chaos;
mod check;
mod completions;
mod config;
mod demo;
mod doctor;
mod janitor;
mod leader;
mod man;
mod neb;
mod node;
mod roce;
mod sim;
mod stop;
mod switch;

use std::io::{stderr, stdout};
use std::process::ExitCode;

use clap::Parser;
use clap::builder::StyledStr;
use clap::error::ErrorKind;
use stentor_support::live::{outlive_file_sizes, watch_signals};
use stentor_support::streams::{complain, finish};
use stentor_support::{Failure, JANITOR, Output, Style, Verdict, print, unprinted};

use crate::args::{Command, CommandLine, GroupCommand};

/// Parses the command line and runs its command.
pub(crate) fn run() -> ExitCode {
    outlive_file_sizes();
    let code = perform();
    finish();
    code
}

fn perform() -> ExitCode {
    let line = match CommandLine::try_parse() {
        Ok(line) => line,
        Err(error) => return refuse(&error),
    };
    let output = Output::new(line.json, line.quiet);
    stentor_host::become_janitor_by(JANITOR);
    if !matches!(line.command, Command::Janitor(_)) {
        watch_signals();
    }
    match dispatch(&line.command, output) {
        Ok(verdict) => verdict.into(),
        Err(failure) => {
            output.failure(&failure);
            ExitCode::from(failure.exit_code)
        }
    }
}

fn dispatch(command: &Command, output: Output) -> Result<Verdict, Failure> {
    match command {
        Command::Demo(args) => demo::run(args, output),
        Command::Chaos(args) => chaos::run(args, output),
        Command::Node(args) => node::run(args, output),
        Command::Cast(args) => cast::run(args, output),
        Command::Stop(args) => stop::run(args, output),
        Command::Leader(command) => leader::run(command, output),
        Command::Group(GroupCommand::Reset(args)) => leader::reset(args, output),
        Command::Config(command) => config::run(command, output),
        Command::Check(args) => check::run(args, output),
        Command::Sim(command) => sim::run(command, output),
        Command::Bench(command) => stentor_bench::run(command, output),
        Command::Channel(command) => channel::run(command, output),
        Command::Roce(command) => roce::run(command, output),
        Command::Switch(args) => switch::run(args, output),
        Command::Neb(command) => neb::run(command, output),
        Command::Janitor(args) => janitor::run(args),
        Command::ChaosProcess { spec } => chaos::process(spec),
        Command::Doctor => doctor::run(output),
        Command::Completions { shell } => completions::run(*shell, output),
        Command::Man { output: directory } => man::run(directory.as_deref(), output),
    }
}

/// Handles arguments that did not parse: prints help or the version if they were asked for, or else reports bad usage.
/// The arguments did not parse, so `--json` is searched for by hand. With it, bad usage is reported as a JSON document.
fn refuse(error: &clap::Error) -> ExitCode {
    let asked = matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion);
    let json = std::env::args_os().take_while(|arg| arg != "--").any(|arg| arg == "--json");
    if asked || !json {
        let style =
            |style: Style, text: StyledStr| if style.has_colour() { text.ansi().to_string() } else { text.to_string() };
        if asked {
            // A reader that closed the stream is not an error.
            if let Err(error) = print(&style(Style::of(&stdout()), error.render())) {
                let failure = unprinted(&error);
                Output::new(json, false).failure(&failure);
                return ExitCode::from(failure.exit_code);
            }
        } else {
            complain(style(Style::of(&stderr()), error.render()));
        }
        return if asked { ExitCode::SUCCESS } else { ExitCode::from(2) };
    }
    let text = error.render().to_string();
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    let what = lines.next().unwrap_or("bad usage").trim_start_matches("error: ").to_owned();
    let remedy = lines.map(str::trim).collect::<Vec<_>>().join("; ");
    Output::new(true, false).failure(&Failure::usage(what, "command line", remedy));
    ExitCode::from(2)
}
