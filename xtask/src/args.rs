//! The command line of `cargo xtask`.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{Parser, Subcommand};

use crate::{compare, prose, regression};
use crate::{nightly::NIGHTLY, step::Step, steps::TEST};

/// Checks and measurements of Stentor's sources.
#[derive(Parser, Debug)]
#[command(name = "cargo xtask", bin_name = "cargo xtask", after_help = list(), arg_required_else_help = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub request: Request,
}

/// The requested subcommand.
#[derive(Subcommand, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// Runs the steps that run before every merge.
    Test {
        /// Runs only these steps.
        #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = names(TEST), hide_possible_values = true)]
        only: Vec<String>,
    },
    /// Runs the long steps.
    Nightly {
        /// Runs only these steps.
        #[arg(long, value_name = "STEP", value_delimiter = ',', value_parser = names(NIGHTLY), hide_possible_values = true)]
        only: Vec<String>,
    },
    /// Runs one step of `test` alone, without a summary. `pairs` starts it.
    #[command(hide = true)]
    Step {
        /// The step's name.
        #[arg(value_parser = names(TEST))]
        name: String,
    },
    /// Changes the links of the book for its HTML. mdBook runs it as a preprocessor.
    #[command(hide = true)]
    BookLinks {
        /// `supports` and the name of a renderer, when mdBook asks whether the preprocessor supports it.
        question: Vec<String>,
    },
    /// Generates the bindings of `fabric-verbs` and `fabric-ofi` and writes them to their files.
    Bindings,
    /// Compares the instructions of the hot paths with their baseline.
    Instructions {
        /// Records a new baseline instead.
        #[arg(long)]
        record: bool,
    },
    /// Compares the behaviour of simulated seeds with the recorded behaviour.
    Oracle {
        /// Records the present behaviour instead.
        #[arg(long)]
        record: bool,
    },
    /// Compares the public items of the crate `stentor` with their list.
    Api {
        /// Records a new list instead.
        #[arg(long)]
        record: bool,
    },
    /// Counts the lines of code of each crate.
    Lines {
        /// The root of the checkout; this checkout by default.
        root: Option<PathBuf>,
    },
    /// Counts sentences in comments that have no concrete subject, for each crate.
    Prose(prose::Options),
    /// Compares the benches of this tree with those of another tree: exit code 0 not slower, 1 slower, 3 undecided.
    Regression(regression::Options),
    /// Measures Stentor and other systems in turns on this machine, as root.
    Compare(compare::Options),
}

fn names(steps: &'static [Step]) -> PossibleValuesParser {
    PossibleValuesParser::new(steps.iter().map(|step| step.name))
}

/// Returns the list of all steps with their purposes.
fn list() -> String {
    let mut text = String::new();
    for (title, steps) in [("test", TEST), ("nightly", NIGHTLY)] {
        text += &format!("Steps of `{title}`:\n");
        text.extend(steps.iter().map(|step| format!("  {:<17} {}\n", step.name, step.what)));
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    fn parsed(line: &str) -> Result<Request, clap::Error> {
        Arguments::try_parse_from(["xtask"].into_iter().chain(line.split_whitespace())).map(|parsed| parsed.request)
    }

    #[test]
    fn commands_and_steps_are_found() {
        Arguments::command().debug_assert();
        let found = |line| parsed(line).unwrap();
        assert_eq!(found("step loom"), Request::Step { name: "loom".into() });
        assert_eq!(found("instructions --record"), Request::Instructions { record: true });
        assert_eq!(found("api --record"), Request::Api { record: true });
        assert_eq!(found("lines ../base"), Request::Lines { root: Some("../base".into()) });
        assert_eq!(found("test"), Request::Test { only: vec![] });
        let both = Request::Test { only: vec!["clippy".into(), "docs".into()] };
        assert_eq!(found("test --only clippy,docs"), both);
        assert_eq!(found("test --only clippy --only docs"), both);
    }

    #[test]
    fn unknown_commands_and_steps_are_refused() {
        for line in [
            "regression",
            "regression --base x --pairs 5",
            "regression --base x --bench fabric",
            "regression --base x --wait sleep",
            "compare --only nobody",
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
    fn the_help_names_every_step() {
        let help = Arguments::command().render_help().to_string();
        for step in TEST.iter().chain(NIGHTLY) {
            assert!(help.contains(step.name), "{}", step.name);
        }
    }
}
