//! The `stentor` command.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod failure;
mod live;
mod machine;
mod output;
mod style;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run()
}
