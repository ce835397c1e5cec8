//! `stentor check`: judges whether histories have the properties of the multicast, the broadcast and the channels.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::fs::File;
use std::io::BufReader;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use serde::Serialize;
use stentor_checker::history::{Told, check_inputs_told};
use stentor_checker::{Counts, Report, Verdict as Finding};
use stentor_support::{Failure, Human, Output, Style, Verdict, Verdicts, counted, in_order, title, verdicts};

use crate::args::Check;

#[derive(Serialize)]
struct Judgement {
    /// `true` if no property is violated and nothing prevented the judgement.
    ok: bool,
    /// Verdicts by property: `ok`, `violated` or `not_checked`.
    properties: Verdicts,
    /// The smallest counter-example of all.
    counter_example: Option<String>,
    /// Counter-example of each violated property.
    counter_examples: BTreeMap<&'static str, String>,
    /// Reason why a property was not checked.
    not_checked: BTreeMap<&'static str, String>,
    /// Reason why there is no verdict, if there is none.
    undecided: Option<String>,
    /// Files whose last line is incomplete and was skipped.
    cut_off: Vec<String>,
    complete: bool,
    #[serde(serialize_with = "CountsDocument::serialize")]
    counts: Counts,
}

/// The order of the counts in the document.
#[derive(Serialize)]
#[serde(remote = "Counts")]
struct CountsDocument {
    events: u64,
    messages: u64,
    deliveries: u64,
    crashes: u64,
    remote_ops: u64,
    broadcasts: u64,
    broadcast_deliveries: u64,
    equivocations: u64,
    skips: u64,
    sends: u64,
    receptions: u64,
}

/// Buffer size in bytes, large enough that reading costs little compared with parsing.
const BUFFER_BYTES: usize = 256 << 10;

pub(super) fn run(args: &Check, output: Output) -> Result<Verdict, Failure> {
    let files = args.histories.iter().map(open).collect::<Result<Vec<_>, _>>()?;
    refuse_twice(&files)?;
    let bar = output.progress("reading", files.iter().map(|opened| opened.bytes).sum());
    let buffered = |file| BufReader::with_capacity(BUFFER_BYTES, bar.wrap_read(file));
    let inputs = files.into_iter().map(|opened| (opened.name, buffered(opened.file)));
    let told = Told { complete: args.complete, faulty: &args.faulty, lives_in_order: args.lives_in_order };
    let report = check_inputs_told(inputs, told);
    bar.finish_and_clear();
    let judgement = Judgement::from(report?);
    output.conclude(
        &judgement,
        if judgement.undecided.is_some() { Verdict::Undecided } else { Verdict::of(judgement.ok) },
    )
}

/// An open history.
struct Opened {
    name: String,
    file: File,
    bytes: u64,
    /// Device and inode number, which identify a file whatever its name.
    inode: (u64, u64),
}

/// Refuses a file that is named twice. Every delivery in it would be read twice, and would look like a violation.
fn refuse_twice(files: &[Opened]) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    let twice = files.iter().find(|opened| !seen.insert(opened.inode));
    twice.map_or(Ok(()), |opened| {
        Err(Failure::usage("the history is named twice", &opened.name, "name each file of the run once"))
    })
}

fn open(path: &PathBuf) -> Result<Opened, Failure> {
    let name = path.display().to_string();
    let refuse = |what: String| Failure::usage(what, &name, "name a history file (JSON Lines) that this user may read");
    let file = File::open(path).map_err(|error| refuse(format!("cannot read the history: {error}")))?;
    let metadata = file.metadata().map_err(|error| refuse(format!("cannot read the history: {error}")))?;
    if metadata.is_dir() {
        return Err(refuse("cannot read the history: it is a directory".to_owned()));
    }
    Ok(Opened { name, file, bytes: metadata.len(), inode: (metadata.dev(), metadata.ino()) })
}

impl From<Report> for Judgement {
    fn from(report: Report) -> Self {
        let examples = report.properties.iter().filter_map(|(name, finding)| match finding {
            Finding::Violated(example) => Some((*name, example.to_string())),
            Finding::Ok | Finding::NotChecked(_) | Finding::Incomplete(_) => None,
        });
        Judgement {
            ok: report.ok() && report.undecided().is_none(),
            undecided: report.undecided().map(str::to_owned),
            properties: verdicts(&report),
            counter_examples: examples.collect(),
            not_checked: report.unchecked().map(|(name, why)| (name, why.to_owned())).collect(),
            complete: report.complete,
            cut_off: report.cut_off,
            counts: report.counts,
            counter_example: report.counter_example,
        }
    }
}

impl Human for Judgement {
    fn human(&self, style: Style) -> String {
        let mut text = String::new();
        for (name, state) in in_order(&self.properties) {
            let state = match state {
                "ok" => style.good("ok"),
                "violated" => style.bad("violated"),
                _ => {
                    format!("{}: {}", style.fair("not checked"), self.not_checked.get(name).map_or("", String::as_str))
                }
            };
            let _ = writeln!(text, "{name:3} {:22} {state}", title(name));
        }
        text += &looked_at(&self.counts, if self.complete { "complete" } else { "not known to be complete" });
        for file in &self.cut_off {
            let _ = writeln!(text, "{file}: the last line is cut off, and was left out");
        }
        for (name, example) in &self.counter_examples {
            let _ = writeln!(text, "\n{} {name}: {example}", style.bad("counter-example"));
        }
        if let Some(why) = &self.undecided {
            let _ = writeln!(text, "\n{}: {why}", style.fair("cannot be judged"));
        }
        text
    }
}

/// Returns a description of what was checked.
fn looked_at(counts: &Counts, rest: &str) -> String {
    let Counts { broadcasts, broadcast_deliveries, sends, receptions, .. } = *counts;
    let events = counted(counts.events, "event", "events");
    let messages = counted(counts.messages, "message", "messages");
    let deliveries = counted(counts.deliveries, "delivery", "deliveries");
    let crashes = counted(counts.crashes, "crash", "crashes");
    let mut text = format!("{events}, {messages}, {deliveries}, {crashes}; {rest}\n");
    if broadcasts + broadcast_deliveries > 0 {
        let broadcasts = counted(broadcasts, "broadcast", "broadcasts");
        let deliveries = counted(broadcast_deliveries, "delivery", "deliveries");
        let equivocations = counted(counts.equivocations, "equivocation", "equivocations");
        let skips = counted(counts.skips, "skip", "skips");
        let _ = writeln!(text, "{broadcasts}, {deliveries} of them, {equivocations} reported, {skips}");
    }
    if sends + receptions > 0 {
        let sends = counted(sends, "message", "messages");
        let _ = writeln!(text, "{sends} written on channels, {receptions} read");
    }
    text
}
