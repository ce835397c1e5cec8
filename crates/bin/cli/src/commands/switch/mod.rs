//! `stentor switch`: reliable multicast in a software switch.

mod init;
mod run;
mod show;

use std::path::Path;

use stentor::operator::Asks;
use stentor_fabric::ProcessId;
use stentor_soft_switch::{ConfigError, Settings, Shown};
use stentor_support::{Failure, Output, Verdict};

use crate::args::{Switch, SwitchCommand};

/// The only process of a switch.
const ME: ProcessId = ProcessId(0);

pub(super) fn run(args: &Switch, output: Output) -> Result<Verdict, Failure> {
    match &args.command {
        None => run::run(&args.run, output),
        Some(SwitchCommand::Show(args)) => show::run(args, output),
        Some(SwitchCommand::Init(args)) => init::run(args, output),
    }
}

fn load(path: &Path) -> Result<Settings, Failure> {
    Settings::load(path).map_err(|error: ConfigError| Failure::usage(&error.problem, error.location(), error.remedy()))
}

/// Returns the directory name of a switch's control socket. It is unique, because no two switches have the same
/// addresses.
fn meeting_name(settings: &Settings) -> String {
    format!("switch-{}-{}", settings.forward, settings.backward)
}

/// A question to a switch.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) struct Question {
    /// Number of the set whose registers are requested.
    registers_of: Option<u16>,
}

/// An answer of a switch.
#[derive(Clone, PartialEq, Debug, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Answer {
    Shown(Box<Shown>),
    /// A refusal, with the reason.
    Refused(String),
}

impl Asks for Question {
    type Answer = Answer;
    // Enough for thousands of sets, with a line of some hundred bytes each.
    const LONGEST: u64 = 4 << 20;

    fn refuse(why: String) -> Answer {
        Answer::Refused(why)
    }
}
