//! The checks and measurements of Stentor's sources: `cargo xtask test` before every merge, `cargo xtask nightly` now
//! and then.
#![forbid(unsafe_code)]

mod api;
mod args;
mod bindings;
mod book;
mod bounds;
mod campaign;
mod cargo;
mod chaos;
mod compare;
mod critical_path;
mod failover;
mod features;
mod guest;
mod instructions;
mod layers;
mod lengths;
mod licences;
mod lines;
mod loom;
mod lossy;
mod modules;
mod mutants;
mod needs;
mod nightly;
mod ofi;
mod oracle;
mod pairs;
mod programs;
mod prose;
mod purity;
mod regression;
mod roce;
mod runner;
mod services;
mod slow;
mod source;
mod step;
mod steps;
mod tools;
mod unsafety;
mod verbs;
mod workspace;
mod zookeeper;

use std::process::ExitCode;

use args::{Arguments, Request};
use cargo::Context;
use clap::Parser as _;

fn main() -> ExitCode {
    let here = Context::new();
    let (title, list, paired, context, only) = match Arguments::parse().request {
        Request::Test { only } => ("test", steps::TEST, steps::PAIRED, here, only),
        Request::Nightly { only } => ("nightly", nightly::NIGHTLY, &[][..], Context::shipped(), only),
        Request::Step { name } => return ended(steps::alone(&here, &name)),
        Request::BookLinks { question } if question.is_empty() => return ended(book::preprocess()),
        Request::BookLinks { .. } => return ExitCode::SUCCESS,
        Request::Bindings => return ended(bindings::write(&here)),
        Request::Instructions { record: true } => return ended(instructions::record(&here)),
        Request::Instructions { record: false } => return ended(instructions::step(&here).map(drop)),
        Request::Oracle { record: true } => return ended(oracle::record(&here)),
        Request::Oracle { record: false } => return ended(oracle::step(&here).map(drop)),
        Request::Api { record } => return ended(api::compare(&here, record)),
        Request::Lines { root } => return ended(lines::print(&root.unwrap_or(here.root))),
        Request::Prose(options) => return ended(prose::run(&here, &options)),
        Request::Compare(options) => return ended(compare::run(&Context::shipped(), &options)),
        Request::Regression(options) => {
            return match regression::run(&Context::shipped(), &options) {
                Ok(regression::Ended::NotSlower) => ExitCode::SUCCESS,
                Ok(regression::Ended::CannotBeTold) => ExitCode::from(3),
                Ok(regression::Ended::Slower) => ExitCode::FAILURE,
                Err(error) => ended(Err(error)),
            };
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
