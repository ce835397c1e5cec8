//! `stentor config`.

mod check;
mod init;

use stentor_support::{Failure, Output, Verdict};

use crate::args::ConfigCommand;
pub(super) use init::write_example;

pub(super) fn run(command: &ConfigCommand, output: Output) -> Result<Verdict, Failure> {
    match command {
        ConfigCommand::Init(args) => init::run(args, output),
        ConfigCommand::Check { file } => check::run(file, output),
    }
}
