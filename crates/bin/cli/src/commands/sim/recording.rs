//! The files that a simulation writes besides its report: traces, transcripts and hashes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;

use stentor_simulation::{Record, Recorded, SeedHashes};
use stentor_support::Failure;
use stentor_support::streams::{Existing, PLAIN, write_whole};

use crate::args::SimSeeds;

/// Returns what the arguments request to be recorded.
pub(super) fn wanted(args: &SimSeeds) -> Record {
    if args.transcript.is_some() {
        Record::Text
    } else if args.trace.is_some() {
        Record::Trace
    } else if args.hashes.is_some() {
        Record::Hashes
    } else {
        Record::Nothing
    }
}

/// Writes the recordings of one seed to the files that the arguments name.
pub(super) fn write_one(args: &SimSeeds, recorded: &Recorded) -> Result<(), Failure> {
    if let Some(path) = &args.trace {
        write(path, recorded.trace.as_ref())?;
    }
    args.transcript.as_ref().map_or(Ok(()), |path| write(path, &recorded.text()))
}

/// Writes a line for each seed, with its number and its hashes, after a line with the names of the columns.
pub(super) fn write_hashes(args: &SimSeeds, hashes: &BTreeMap<u64, SeedHashes>) -> Result<(), Failure> {
    let Some(path) = &args.hashes else { return Ok(()) };
    let mut text = String::from("seed");
    for (name, _) in hashes.values().next().into_iter().flatten() {
        let _ = write!(text, " {name}");
    }
    for (seed, hashes) in hashes {
        let _ = write!(text, "\n{seed}");
        for (_, hash) in hashes {
            let _ = write!(text, " {hash:016x}");
        }
    }
    text.push('\n');
    write(path, text.as_bytes())
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    write_whole(path, bytes, Existing::Goes, PLAIN).map_err(|error| Failure::cannot_write(path, &error))
}
