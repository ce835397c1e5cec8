//! What `fabric-verbs` adds to libibverbs: `stentor bench fabric` beside a plain program in one guest.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::cargo::{Context, run};
use crate::programs;
use crate::roce;
use crate::runner::Outcome;

/// Rounds of the comparison with what libibverbs gives to a plain program.
const ROUNDS: usize = 10;
/// What is compared: the plain program's file, the bench's file and row, its figure, and how far the best round of ours may be
/// behind that of theirs. Each figure is that of many operations, and whoever else wants the processor, which the guest has only
/// one of, makes a round slower and never faster: half of them may be disturbed, so that medians would compare the disturbance.
const COMPARED: [Compared; 4] = [
    Compared { raw: "raw-write-lat", ours: "lat", row: "raw WRITE inline, write to seen", bar: Bar::AtMost(1.1) },
    Compared { raw: "raw-send-lat", ours: "lat", row: "SEND/RECV, one way", bar: Bar::AtMost(1.1) },
    Compared { raw: "raw-write-bw", ours: "bw", row: "WRITE unsignalled, rate", bar: Bar::AtLeast(0.9) },
    Compared { raw: "raw-send-bw", ours: "bw", row: "SEND/RECV, rate", bar: Bar::AtLeast(0.9) },
];

struct Compared {
    raw: &'static str,
    ours: &'static str,
    row: &'static str,
    bar: Bar,
}

/// Of ours to theirs.
#[derive(Clone, Copy)]
enum Bar {
    /// Latencies, microseconds.
    AtMost(f64),
    /// Bandwidths, MB/s.
    AtLeast(f64),
}

/// `stentor bench fabric --fabric verbs` beside a plain program in one guest, in turns.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    roce::programs()?;
    let rxe = roce::rxe(context)?;
    let stentor = programs::stentor(context)?;
    let work = roce::work_folder("verbs-speed")?;
    let raw = work.join("raw");
    let source = context.root.join("crates/fabric-verbs/tests/raw.c");
    run(Command::new("gcc").arg(source).args(["-O2", "-Wall", "-Werror", "-o"]).arg(&raw).arg("-libverbs"))?;
    let set = format!("RAW='{}' STENTOR='{}' ROUNDS={ROUNDS}", raw.display(), stentor.display());
    roce::in_guest(context, &rxe, "crates/cli/tests/guests/speed.sh", &work, &set)?;
    let judged = COMPARED.iter().map(|compared| compare(&work, compared)).collect::<Result<Vec<_>>>()?;
    fs::remove_dir_all(&work)?;
    if judged.contains(&false) { bail!("not as fast as it should be: see above") } else { Ok(Outcome::Passed) }
}

/// Prints both; whether ours is within the bar.
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
    let best = |values: &[f64]| match bar {
        Bar::AtMost(_) => values.iter().copied().fold(f64::INFINITY, f64::min),
        Bar::AtLeast(_) => values.iter().copied().fold(0.0, f64::max),
    };
    let (ratio, medians) = (best(&own) / best(&theirs), median(&own) / median(&theirs));
    let (good, wanted, unit) = match bar {
        Bar::AtMost(most) => (ratio <= *most, format!("at most {most}"), "us"),
        Bar::AtLeast(least) => (ratio >= *least, format!("at least {least}"), "MB/s"),
    };
    println!(
        "{row}: {own:.1?} {unit}; a plain program, in turns: {theirs:.1?}; ratio of the best rounds {ratio:.3} ({wanted}), of \
         medians {medians:.3}"
    );
    Ok(good)
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
    // The bench takes off what reading the clock costs, once for each round trip; the plain program reads it as often.
    let clock = document["environment"]["clock"]["cost_ns"].as_f64().context("the bench does not tell of its clock")?;
    Ok(match bar {
        Bar::AtMost(_) => figure + clock / 2000.0,
        Bar::AtLeast(_) => figure,
    })
}

fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn who_is_slow_is_seen() {
        let work = roce::work_folder("verbs-compare").unwrap();
        let rows = |us: f64, mb: f64| {
            json!({"environment": {"clock": {"cost_ns": 2000.0}}, "rows": [
                {"name": COMPARED[0].row, "p50_us": us - 1.0, "mb_per_s": null},
                {"name": COMPARED[2].row, "p50_us": null, "mb_per_s": mb},
            ]})
            .to_string()
        };
        let write =
            |name: &str, round: usize, text: &str| fs::write(work.join(format!("{name}.{round}")), text).unwrap();
        for round in 1..=ROUNDS {
            // All but one disturbed.
            let (us, mb) = if round == 4 { (109.0, 91.0) } else { (900.0, 1.0) };
            write("raw-write-lat", round, "100.000\n");
            write("raw-write-bw", round, "100.0\n");
            write("lat", round, &rows(us, mb));
            write("bw", round, &rows(us, mb));
        }
        assert!(compare(&work, &COMPARED[0]).unwrap() && compare(&work, &COMPARED[2]).unwrap());
        write("lat", 4, &rows(111.0, 91.0));
        write("bw", 4, &rows(109.0, 89.0));
        assert!(!compare(&work, &COMPARED[0]).unwrap() && !compare(&work, &COMPARED[2]).unwrap());
        assert!(compare(&work, &COMPARED[1]).unwrap_err().to_string().contains("raw-send-lat"));
        write("lat", 2, "{\"rows\": []}");
        assert!(compare(&work, &COMPARED[0]).unwrap_err().to_string().contains("no row"));
        fs::remove_dir_all(&work).unwrap();
    }
}
