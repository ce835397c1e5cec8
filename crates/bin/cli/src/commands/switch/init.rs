//! `stentor switch init`: writes a commented configuration to begin with.

use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Serialize;
use stentor_soft_switch::{Settings, example};

use stentor_support::{Failure, Human, Output, Style, Verdict};

use crate::args::SwitchInit;
use crate::commands::config::write_example;

/// Default port at which hosts ask the switch for sets.
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
    // Refuse invalid arguments before the file is written.
    Settings::parse(&args.output, &text)
        .map_err(|error| Failure::usage(&error.problem, "the arguments of `stentor switch init`", error.remedy()))?;
    write_example(&args.output, &text, args.force)?;
    output.conclude(&Written { path: args.output.clone(), cluster: args.cluster.clone() }, Verdict::Good)
}
