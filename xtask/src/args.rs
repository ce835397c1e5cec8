//! The command line.

use std::fmt::Write as _;
use std::path::PathBuf;

use crate::compare::Options;
use crate::{nightly::NIGHTLY, runner::Step, steps::TEST};

/// What was asked for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// The steps that run before every merge; all of them if `only` is empty.
    Test {
        /// Names of steps.
        only: Vec<String>,
    },
    /// The long ones.
    Nightly {
        /// Names of steps.
        only: Vec<String>,
    },
    /// One step of `test` alone, without a summary: what `pairs` starts.
    Step {
        /// Its name.
        name: String,
    },
    /// Writes `fabric-verbs`' bindings anew.
    Bindings,
    /// Counts the instructions of the hot paths.
    Instructions {
        /// Write the baseline anew instead of comparing with it.
        record: bool,
    },
    /// Compares what simulated seeds do with what they did.
    Oracle {
        /// Record what they do instead of comparing.
        record: bool,
    },
    /// Counts lines of code.
    Lines {
        /// The checkout; this one if there is none.
        root: Option<PathBuf>,
    },
    /// Sets this tree's benches beside another tree's.
    Compare(Options),
    /// The usage.
    Help,
}

/// Reads the arguments after the program's name.
pub(crate) fn parse(arguments: &[String]) -> Result<Request, String> {
    let Some((command, rest)) = arguments.split_first() else { return Ok(Request::Help) };
    match command.as_str() {
        "test" => Ok(Request::Test { only: only(rest, TEST)? }),
        "nightly" => Ok(Request::Nightly { only: only(rest, NIGHTLY)? }),
        "step" => match rest {
            [name] if TEST.iter().any(|step| step.name == *name) => Ok(Request::Step { name: name.clone() }),
            _ => Err("`step` takes the name of one step of `test`".into()),
        },
        "bindings" if rest.is_empty() => Ok(Request::Bindings),
        "compare" => Ok(Request::Compare(Options::parse(rest)?)),
        "instructions" => Ok(Request::Instructions { record: records(command, rest)? }),
        "oracle" => Ok(Request::Oracle { record: records(command, rest)? }),
        "lines" => match rest {
            [] => Ok(Request::Lines { root: None }),
            [root] if !root.starts_with('-') => Ok(Request::Lines { root: Some(root.into()) }),
            _ => Err("`lines` takes the path of a checkout or nothing".into()),
        },
        "help" | "--help" | "-h" => Ok(Request::Help),
        other => Err(format!("there is no command `{other}`")),
    }
}

/// Reads what follows a command that compares with a record, or makes one.
fn records(command: &str, rest: &[String]) -> Result<bool, String> {
    match rest {
        [] => Ok(false),
        [flag] if flag == "--record" => Ok(true),
        _ => Err(format!("`{command}` takes `--record` or nothing")),
    }
}

fn only(rest: &[String], steps: &[Step]) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    let mut rest = rest.iter();
    while let Some(flag) = rest.next() {
        if flag != "--only" {
            return Err(format!("there is no argument `{flag}`"));
        }
        let list = rest.next().ok_or("`--only` wants the name of a step")?;
        names.extend(list.split(',').map(str::to_owned));
    }
    match names.iter().find(|name| steps.iter().all(|step| step.name != **name)) {
        Some(unknown) => Err(format!("there is no step `{unknown}`")),
        None => Ok(names),
    }
}

/// The usage, with every step and what it is for.
pub(crate) fn usage() -> String {
    let mut text = String::from(
        "Usage: cargo xtask test|nightly [--only STEP[,STEP…]]…\n       cargo xtask bindings   writes fabric-verbs' bindings anew\n       \
         cargo xtask instructions [--record]   compares the hot paths with their baseline, or writes it anew\n       \
         cargo xtask oracle [--record]   compares what simulated seeds do with what they did, or records it anew\n       \
         cargo xtask lines [CHECKOUT]   counts the lines of code of each crate\n       \
         cargo xtask compare --base BINARY|REVISION [--bench multicast,neb,channel] [--pairs 60] [--wait adaptive] [--new BINARY]\n                   \
         benches of this tree beside another's: exit code 0 not slower, 1 slower, 3 cannot be told\n",
    );
    for (title, steps) in [("test", TEST), ("nightly", NIGHTLY)] {
        let _ = write!(text, "\nSteps of `{title}`:\n");
        for step in steps {
            let _ = writeln!(text, "  {:<16} {}", step.name, step.what);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Request, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn commands_and_steps_are_found() {
        assert_eq!(parsed(""), Ok(Request::Help));
        assert_eq!(parsed("step loom"), Ok(Request::Step { name: "loom".into() }));
        assert_eq!(parsed("bindings"), Ok(Request::Bindings));
        assert_eq!(parsed("instructions"), Ok(Request::Instructions { record: false }));
        assert_eq!(parsed("instructions --record"), Ok(Request::Instructions { record: true }));
        assert_eq!(parsed("oracle"), Ok(Request::Oracle { record: false }));
        assert_eq!(parsed("oracle --record"), Ok(Request::Oracle { record: true }));
        assert_eq!(parsed("lines"), Ok(Request::Lines { root: None }));
        assert_eq!(parsed("lines ../base"), Ok(Request::Lines { root: Some("../base".into()) }));
        assert!(matches!(parsed("compare --base main"), Ok(Request::Compare(options)) if options.base == "main"));
        assert_eq!(parsed("test"), Ok(Request::Test { only: vec![] }));
        let both = Request::Test { only: vec!["clippy".into(), "docs".into()] };
        assert_eq!(parsed("test --only clippy,docs"), Ok(both));
        assert_eq!(parsed("test --only clippy --only docs"), parsed("test --only clippy,docs"));
    }

    #[test]
    fn what_does_not_exist_is_refused() {
        for line in [
            "compare",
            "instructions record",
            "lines --all",
            "lines a b",
            "oracle record",
            "tset",
            "step",
            "step clipy",
            "step clippy,docs",
            "test clippy",
            "test --only",
            "test --only clipy",
            "nightly --only clippy",
        ] {
            assert!(parsed(line).is_err(), "{line}");
        }
    }

    #[test]
    fn every_step_is_explained_to_contributors() {
        let text = include_str!("../../CONTRIBUTING.md");
        let table: String = text.lines().filter(|line| line.starts_with('|')).collect();
        for step in TEST {
            assert!(table.contains(&format!("`{}`", step.name)), "{}", step.name);
        }
    }

    #[test]
    fn the_usage_names_every_step() {
        let usage = usage();
        for step in TEST.iter().chain(NIGHTLY) {
            assert!(usage.contains(step.name), "{}", step.name);
        }
    }
}
