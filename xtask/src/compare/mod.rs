//! `cargo xtask compare`: measures Stentor and other systems on this machine, in turns.
//!
//! Systems at the same place run on the same number of processes and send the same messages from one sender: one at a
//! time, and with the number of outstanding messages that suits each system best. The systems take turns, so a drift of
//! the machine's speed affects all of them alike. Programs for other systems are in the workspace `compare`, which
//! links no crate of Stentor.

mod chart;
mod markdown;
mod measure;
mod options;
mod report;
mod system;
mod table;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail, ensure};

use crate::cargo::{Context, run as run_command};
use crate::step::Outcome;
pub(crate) use options::Options;
use report::{Measured, Report};
use system::Setting;
pub(crate) use system::{Programs, Shape, System};
pub(crate) use table::{LOOPBACK, SYSTEMS};

/// Payloads, in bytes.
const SIZES: [u32; 5] = [64, 1024, 4096, 16_384, 65_536];
/// The shortest payload between two processes, in bytes.
const SHORTEST: u32 = 8;
/// Number of messages of 64 bytes that are sent one at a time. For this constant and the two below, fewer messages are
/// sent if the messages are longer.
const ALONE: u64 = 2000;
/// Number of messages of 64 bytes in round trips between two processes.
const TO_AND_FRO: u64 = 20_000;
/// Number of messages of 64 bytes in a stream.
const STREAM: u64 = 40_000;

/// Measures, prints tables, and writes the requested files.
pub(crate) fn run(context: &Context, options: &Options) -> Result<()> {
    let wanted = |system: &&System| options.only.is_empty() || options.only.iter().any(|name| name == system.name);
    let (mut there, mut absent, mut programs) = (Vec::new(), Vec::new(), Programs::new(context));
    for system in SYSTEMS.iter().filter(wanted) {
        match system.ensure(context, &mut programs) {
            Ok(()) => there.push(system),
            Err(error) => absent.push(format!("{}: {error:#}", system.name)),
        }
    }
    if there.is_empty() {
        bail!("nothing can be measured:\n{}", absent.join("\n"));
    }
    let runs = if options.quick { 1 } else { options.runs };
    let mut measured = Vec::new();
    for system in &there {
        let version = system.version(&programs)?;
        measured.extend(system.settings.iter().map(|setting| Measured::new(system, setting, version.clone())));
    }
    let mut failed = Vec::new();
    for n in 0..runs {
        let mut going_on = Vec::new();
        for mut measured in measured {
            println!("run {} of {runs}: {}", n + 1, measured.named());
            let shapes = shapes(measured.system, measured.setting, options.quick);
            match measured.system.run(&programs, measured.setting, &shapes) {
                Ok(figures) => {
                    measured.add(figures);
                    going_on.push(measured);
                }
                Err(error) => failed.push(format!("{error:#}")),
            }
        }
        measured = going_on;
    }
    tell(&Report::of(&measured, absent, failed.clone()), options)?;
    ensure!(failed.is_empty(), "{} of the settings could not be measured:\n{}", failed.len(), failed.join("\n"));
    Ok(())
}

/// Prints the report, and writes the requested files.
fn tell(report: &Report, options: &Options) -> Result<()> {
    let text = markdown::text(report);
    print!("{text}");
    let written = |path: &Option<PathBuf>, text: &str| match path {
        Some(path) => fs::write(path, text).with_context(|| format!("cannot write {}", path.display())),
        None => Ok(()),
    };
    written(&options.json, &(serde_json::to_string_pretty(report)? + "\n"))?;
    written(&options.markdown, &text)?;
    written(&options.svg, &chart::svg(report))
}

/// Checks the programs for other systems as `cargo xtask test` checks Stentor, and measures all systems.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let manifest = context.root.join("compare/Cargo.toml");
    let on = |arguments: &[&str]| {
        let mut command = context.cargo(arguments);
        command.arg("--manifest-path").arg(&manifest);
        command
    };
    run_command(on(&["fmt", "--all"]).args(["--", "--check"]))?;
    // Aeron is not a member of the workspace, because its dependencies cannot be built on every machine.
    let mut apart = context.cargo(["fmt", "--manifest-path", "compare/aeron/Cargo.toml", "--", "--check"]);
    run_command(&mut apart)?;
    run_command(on(&["clippy", "--workspace", "--all-targets", "--locked"]).args(["--", "-D", "warnings"]))?;
    run_command(&mut on(&["test", "--workspace", "--locked"]))?;
    let file = |ending: &str| Some(context.root.join("target/compare").with_extension(ending));
    let (json, markdown, svg) = (file("json"), file("md"), file("svg"));
    run(context, &Options { only: Vec::new(), runs: 5, quick: false, json, markdown, svg })?;
    Ok(Outcome::Passed)
}

/// Returns the shapes that a system is measured with in a setting: each payload one at a time and in a stream.
fn shapes(system: &System, setting: &Setting, quick: bool) -> Vec<Shape> {
    let shape = |bytes: u32, outstanding, messages: u64| {
        let messages = messages / (1 + u64::from(bytes) / 2048) / if quick { 10 } else { 1 };
        Shape { bytes, outstanding, messages: messages.max(100) }
    };
    let stream = |bytes| (system.outstanding > 1).then(|| shape(bytes, system.outstanding, STREAM));
    let (shortest, alone) = if setting.is_pair() { (Some(SHORTEST), TO_AND_FRO) } else { (None, ALONE) };
    let sizes = shortest.into_iter().chain(SIZES);
    sizes.flat_map(|bytes| [Some(shape(bytes, 1, alone)), stream(bytes)]).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_payload_goes_alone_and_in_a_stream() {
        for (system, setting) in SYSTEMS.iter().flat_map(|system| system.settings.iter().map(move |at| (system, at))) {
            let all = shapes(system, setting, false);
            let sizes = SIZES.len() + usize::from(setting.is_pair());
            assert_eq!(all.len(), if system.outstanding > 1 { 2 } else { 1 } * sizes);
            assert_eq!(all.iter().any(|shape| shape.bytes == 8), setting.place.starts_with("two processes"));
            assert!(
                all.iter().all(|shape| shape.messages >= 100 && [1, system.outstanding].contains(&shape.outstanding))
            );
            let quick = shapes(system, setting, true);
            assert!(quick.iter().zip(&all).all(|(quick, all)| quick.messages < all.messages || all.messages == 100));
        }
    }
}
