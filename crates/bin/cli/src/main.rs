//! The `stentor` command.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod machine;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run()
}
