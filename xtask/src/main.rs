//! Everything that is run on Stentor's sources: `cargo xtask test` before every merge, `cargo xtask nightly` now and then.
#![forbid(unsafe_code)]

mod args;
mod bindings;
mod campaign;
mod cargo;
mod chaos;
mod compare;
mod failover;
mod guest;
mod instructions;
mod layers;
mod lengths;
mod licences;
mod lines;
mod loom;
mod needs;
mod nightly;
mod ofi;
mod oracle;
mod pairs;
mod programs;
mod purity;
mod roce;
mod runner;
mod source;
mod steps;
mod unsafety;
mod verbs;
mod workspace;
mod zookeeper;

use std::process::ExitCode;

use args::Request;
use cargo::Context;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (title, list, paired, context, only) = match args::parse(&arguments) {
        Ok(Request::Test { only }) => ("test", steps::TEST, steps::PAIRED, Context::new(), only),
        Ok(Request::Nightly { only }) => ("nightly", nightly::NIGHTLY, &[][..], Context::shipped(), only),
        Ok(Request::Step { name }) => return ended(steps::alone(&Context::new(), &name)),
        Ok(Request::Bindings) => return ended(bindings::write(&Context::new())),
        Ok(Request::Instructions { record: true }) => return ended(instructions::record(&Context::new())),
        Ok(Request::Instructions { record: false }) => return ended(instructions::step(&Context::new()).map(drop)),
        Ok(Request::Oracle { record: true }) => return ended(oracle::record(&Context::new())),
        Ok(Request::Oracle { record: false }) => return ended(oracle::step(&Context::new()).map(drop)),
        Ok(Request::Lines { root }) => {
            return ended(lines::print(&root.unwrap_or_else(|| Context::new().root)));
        }
        Ok(Request::Compare(options)) => {
            return match compare::run(&Context::shipped(), &options) {
                Ok(compare::Ended::NotSlower) => ExitCode::SUCCESS,
                Ok(compare::Ended::CannotBeTold) => ExitCode::from(3),
                Ok(compare::Ended::Slower) => ExitCode::FAILURE,
                Err(error) => ended(Err(error)),
            };
        }
        Ok(Request::Help) => {
            print!("{}", args::usage());
            return ExitCode::SUCCESS;
        }
        Err(problem) => {
            eprint!("error: {problem}\n\n{}", args::usage());
            return ExitCode::from(2);
        }
    };
    let chosen: Vec<_> = list.iter().filter(|step| only.is_empty() || only.iter().any(|o| o == step.name)).collect();
    if runner::run(title, &context, &chosen, list.len(), paired) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn ended(result: anyhow::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
