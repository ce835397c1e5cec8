//! `stentor completions`: a script with which the shell completes commands and options.

use clap::CommandFactory;
use clap_complete::Shell;
use serde::Serialize;
use stentor_support::{Failure, Human, Output, Style, Verdict};

use crate::args::CommandLine;

#[derive(Serialize)]
struct Completions {
    shell: String,
    script: String,
}

impl Human for Completions {
    fn human(&self, _: Style) -> String {
        self.script.clone()
    }
}

pub(super) fn run(shell: Shell, output: Output) -> Result<Verdict, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut CommandLine::command(), "stentor", &mut script);
    let script = String::from_utf8_lossy(&script).into_owned();
    output.payload(&Completions { shell: shell.to_string(), script })?;
    Ok(Verdict::Good)
}
