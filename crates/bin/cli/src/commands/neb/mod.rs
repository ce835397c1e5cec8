//! `stentor neb`: the broadcast, the keys of its processes, and the removal of processes that have stopped.

mod history;
mod key;
mod remove;
mod run;
mod unsent;

use stentor_support::{Failure, Output, Verdict};

use super::demo;
use crate::args::NebCommand;

pub(super) use history::NebHistory;

pub(super) fn run(command: &NebCommand, output: Output) -> Result<Verdict, Failure> {
    match command {
        NebCommand::Run(args) => run::run(args, output),
        NebCommand::Remove(args) => remove::run(args, output),
        NebCommand::Key { file } => key::run(file, output),
        NebCommand::Process { spec } => demo::process(spec),
    }
}
