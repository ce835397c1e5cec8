//! The `stentor` command.
#![forbid(unsafe_code)]

mod args;
mod commands;
mod failure;
mod live;
mod machine;
mod output;
mod streams;
mod style;
mod unique;

use std::process::ExitCode;

fn main() -> ExitCode {
    commands::run()
}
