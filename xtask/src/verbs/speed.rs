//! Measures the cost that `fabric-verbs` adds to libibverbs: `stentor bench fabric` and a plain program in one guest.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;
use stentor_testutil::{TempDir, median};

use crate::cargo::{Context, run};
use crate::guest::Guest;
use crate::needs::Needs;
use crate::programs;
use crate::roce;
use crate::step::Outcome;

pub(super) const NEEDS: Needs = Needs {
    things: &["gcc", "stdio.h", "infiniband/verbs.h", "ip", "rdma", "busybox", "rxe.driver"],
    sources: &[
        "crates/bin/cli/tests/guests/speed.sh",
        "crates/fabric/verbs/tests/device.sh",
        "xtask/src/verbs/speed.rs",
    ],
};

/// Number of rounds of the comparison with the plain program.
const ROUNDS: usize = 20;
/// Number of round trips in a round.
const HOPS: usize = 2000;
/// Number of messages of each stream in a round.
const STREAM: usize = 1500;
/// The comparisons: files of the plain program, the bench's file and row, and the bar for the median of the rounds'
/// ratios. The figures of both programs differ by a factor of two between rounds, because other processes also need the
/// guest's only processor. A disturbance of one of a round's two programs often affects the other, too.
const COMPARED: [Compared; 6] = [
    Compared { raw: "raw-write-lat", ours: "lat", row: "raw WRITE inline, write to seen", bar: Bar::AtMost(1.1) },
    Compared { raw: "raw-write-lazy", ours: "lat", row: "raw WRITE inline, write to seen", bar: Bar::AtMost(1.1) },
    Compared { raw: "raw-send-lat", ours: "lat", row: "SEND/RECV, one way", bar: Bar::AtMost(1.1) },
    Compared { raw: "raw-send-lazy", ours: "lat", row: "SEND/RECV, one way", bar: Bar::AtMost(1.1) },
    Compared { raw: "raw-write-bw", ours: "bw", row: "WRITE unsignalled, rate", bar: Bar::AtLeast(0.9) },
    Compared { raw: "raw-send-bw", ours: "bw", row: "SEND/RECV, rate", bar: Bar::AtLeast(0.9) },
];

struct Compared {
    raw: &'static str,
    ours: &'static str,
    row: &'static str,
    bar: Bar,
}

/// The limit of the ratio of the bench's figure to the plain program's figure.
#[derive(Clone, Copy)]
enum Bar {
    /// Maximum ratio of latencies in µs.
    AtMost(f64),
    /// Minimum ratio of bandwidths in MB/s.
    AtLeast(f64),
}

/// Runs `stentor bench fabric --fabric verbs` and a plain program in one guest, in turns.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    let guest = Guest::ready(context, &NEEDS)?;
    let stentor = programs::stentor(context)?;
    let work = TempDir::new();
    let raw = work.join("raw");
    let source = context.root.join("crates/fabric/verbs/tests/raw.c");
    run(Command::new("gcc").arg(source).args(["-O2", "-Wall", "-Werror", "-o"]).arg(&raw).arg("-libverbs"))?;
    let sizes = format!("ROUNDS={ROUNDS} HOPS={HOPS} STREAM={STREAM}");
    let set = format!("RAW='{}' STENTOR='{}' {sizes}", raw.display(), stentor.display());
    roce::in_guest(context, &guest, "crates/bin/cli/tests/guests/speed.sh", &work, &set)?;
    let judged = COMPARED.iter().map(|compared| compare(&work, compared)).collect::<Result<Vec<_>>>()?;
    if judged.contains(&false) { bail!("a figure is worse than its bar: see above") } else { Ok(Outcome::Passed) }
}

/// Prints both figures. Returns whether the bench's figure is within the bar.
fn compare(work: &Path, compared: &Compared) -> Result<bool> {
    let Compared { raw, ours, row, bar } = compared;
    let read = |name: &str, round: usize| {
        let file = work.join(format!("{name}.{round}"));
        fs::read_to_string(&file).with_context(|| format!("the guest left no {}", file.display()))
    };
    let (mut theirs, mut own) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        theirs.push(read(raw, round)?.trim().parse::<f64>().with_context(|| format!("{raw}, round {round}"))?);
        let document: Value = serde_json::from_str(&read(ours, round)?).with_context(|| format!("{ours}, {round}"))?;
        own.push(figure(&document, row, *bar)?);
    }
    let ratio = median(own.iter().zip(&theirs).map(|(own, theirs)| own / theirs));
    let (good, wanted, unit) = match bar {
        Bar::AtMost(most) => (ratio <= *most, format!("at most {most}"), "us"),
        Bar::AtLeast(least) => (ratio >= *least, format!("at least {least}"), "MB/s"),
    };
    println!(
        "{row}: {} {unit}; {raw}, in turns: {}; median of {ROUNDS} ratios {ratio:.3} ({wanted})",
        spread(&own),
        spread(&theirs)
    );
    Ok(good)
}

/// Formats the median, minimum and maximum.
fn spread(values: &[f64]) -> String {
    let (least, most) = values.iter().fold((f64::INFINITY, 0.0_f64), |(l, m), value| (l.min(*value), m.max(*value)));
    format!("{:.1} ({least:.1} to {most:.1})", median(values.iter().copied()))
}

fn figure(document: &Value, row: &str, bar: Bar) -> Result<f64> {
    let rows = document["rows"].as_array().context("the bench has no rows")?;
    let found =
        rows.iter().find(|found| found["name"] == row).with_context(|| format!("the bench has no row {row}"))?;
    let of = match bar {
        Bar::AtMost(_) => "p50_us",
        Bar::AtLeast(_) => "mb_per_s",
    };
    let figure = found[of].as_f64().with_context(|| format!("row {row} has no {of}"))?;
    // The bench subtracts the cost of reading the clock, once for each round trip. The plain program reads the clock as
    // often.
    let clock = document["environment"]["clock"]["cost_ns"]
        .as_f64()
        .context("the bench does not report the cost of its clock")?;
    Ok(match bar {
        Bar::AtMost(_) => figure + clock / 2000.0,
        Bar::AtLeast(_) => figure,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn slow_figures_are_found() {
        let work = TempDir::new();
        let rows = |us: f64, mb: f64| {
            json!({"environment": {"clock": {"cost_ns": 2000.0}}, "rows": [
                {"name": COMPARED[0].row, "p50_us": us - 1.0, "mb_per_s": null},
                {"name": COMPARED[4].row, "p50_us": null, "mb_per_s": mb},
            ]})
            .to_string()
        };
        let write =
            |name: &str, round: usize, text: &str| fs::write(work.join(format!("{name}.{round}")), text).unwrap();
        for round in 1..=ROUNDS {
            // The host becomes slower and slower, and sometimes one of the two is disturbed.
            let mood = round as f64;
            let disturbed = if round % 3 == 0 { 5.0 } else { 1.0 };
            write("raw-write-lat", round, &format!("{}\n", 100.0 * mood));
            write("raw-write-bw", round, &format!("{}\n", 100.0 / mood));
            let row = rows(109.0 * mood * disturbed, 91.0 / mood / disturbed);
            write("lat", round, &row);
            write("bw", round, &row);
        }
        assert!(compare(&work, &COMPARED[0]).unwrap() && compare(&work, &COMPARED[4]).unwrap());
        for round in 1..=ROUNDS {
            let mood = round as f64;
            write("lat", round, &rows(111.0 * mood, 91.0 / mood));
            write("bw", round, &rows(109.0 * mood, 89.0 / mood));
        }
        assert!(!compare(&work, &COMPARED[0]).unwrap() && !compare(&work, &COMPARED[4]).unwrap());
        assert!(compare(&work, &COMPARED[2]).unwrap_err().to_string().contains("raw-send-lat"));
        write("lat", 2, "{\"rows\": []}");
        assert!(compare(&work, &COMPARED[0]).unwrap_err().to_string().contains("no row"));
    }
}
