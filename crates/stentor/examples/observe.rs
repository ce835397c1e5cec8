//! Follows a group, and prints the group's commands: run `observe g1` in the directory of `cluster.toml`. With the name
//! of a file, as in `observe g1 position`, the program stores its position in the file, and resumes from it after a
//! restart.
//!
//! The group may be run by `stentor node` or by another program.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use stentor::{Cluster, Observed, ObservedPosition};

/// Replaces a file atomically.
fn replace(file: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let new = file.with_extension("new");
    std::fs::write(&new, bytes)?;
    std::fs::rename(&new, file)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut words = std::env::args().skip(1);
    let group = words.next().ok_or("which group? `observe GROUP [FILE]`")?;
    let file = words.next().map(PathBuf::from);
    let cluster = Cluster::load("cluster.toml")?;
    let mut builder = cluster.observe(cluster.group(&group)?);
    if let Some(bytes) = file.as_ref().and_then(|file| std::fs::read(file).ok()) {
        builder = builder.from(ObservedPosition::from_bytes(&bytes)?);
    }
    let (mut observer, mut out) = (builder.connect()?, std::io::stdout());
    loop {
        match observer.next(Duration::from_secs(1))? {
            Some(Observed::Command(command)) => {
                let (index, sender) = (command.position.index(), &command.sender);
                writeln!(out, "{index} {sender}: {}", command.bytes.escape_ascii())?;
            }
            Some(Observed::State(state)) => {
                writeln!(out, "{} a state of {} bytes", state.position.index(), state.bytes.len())?;
            }
            Some(Observed::Reset(reset)) => {
                let what = if reset.goes_on { "continues from here" } else { "continues from another state" };
                writeln!(out, "{} the group was reset, and {what}", reset.last.index())?;
            }
            // Another step, without a command.
            Some(_) => {}
            // A pause is a good time to store the position.
            None => {
                if let (Some(file), Some(position)) = (&file, observer.position()) {
                    replace(file, &position.to_bytes())?;
                }
            }
        }
    }
}
