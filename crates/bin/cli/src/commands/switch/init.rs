//! `stentor switch init`: a commented configuration to begin with.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Serialize;
use stentor_soft_switch::{Settings, example};
use stentor_support::streams::{Existing, PLAIN, write_whole};
use stentor_support::{Failure, Human, Output, Style, Verdict};

use crate::args::SwitchInit;

/// Where hosts ask for sets, if nothing is said.
const PORT: u16 = 7300;

#[derive(Serialize)]
struct Written {
    path: PathBuf,
    cluster: String,
}

impl Human for Written {
    fn human(&self, _: Style) -> String {
        let path = self.path.display();
        format!("{path}: a switch for cluster {}\nnext: stentor switch --config {path}\n", self.cluster)
    }
}

pub(super) fn run(args: &SwitchInit, output: Output) -> Result<Verdict, Failure> {
    let control = args.control.map_or(SocketAddr::from((args.forward, PORT)), SocketAddr::from);
    let text = example(&args.cluster, args.forward, args.backward, control, &args.key);
    // What the file would be refused for is refused before it is written.
    Settings::parse(&args.output, &text)
        .map_err(|error| Failure::usage(&error.problem, "the arguments of `stentor switch init`", error.remedy()))?;
    let existing = if args.force { Existing::Goes } else { Existing::Stays };
    write_whole(&args.output, text.as_bytes(), existing, PLAIN).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::usage(
            "the file exists already; it was not changed",
            args.output.display(),
            "name another file with -o, or overwrite it with --force",
        ),
        _ => Failure::cannot_write(&args.output, &error),
    })?;
    output.report(&Written { path: args.output.clone(), cluster: args.cluster.clone() })?;
    Ok(Verdict::Good)
}
