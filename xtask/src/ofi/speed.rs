//! Measures the cost of a channel relative to libfabric's own operations, on each provider of one host, with `stentor
//! bench channel`.

use std::process::Command;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::cargo::{Context, capture};
use crate::programs;
use crate::step::Outcome;

const PROVIDERS: [&str; 3] = ["tcp;ofi_rxm", SHM, "udp;ofi_rxd"];
/// The provider on which the copy of a message takes as long as its transfer between registered memory. On this
/// provider, the channels that send and read in place are judged. The figures with a copy at each end are only printed.
const SHM: &str = "shm";
/// Payloads for latencies, in bytes.
const SIZES: [u64; 3] = [8, 4 << 10, 64 << 10];
/// Payload for the bandwidth, in bytes.
const LARGE: u64 = 1 << 20;
/// Maximum ratio of a channel's median one-way latency to that of the provider's own tagged sends. The ratio, as all
/// comparisons here, is the median over the rounds.
const LATENCY: f64 = 1.15;
/// Maximum difference of the mean one-way latency from the mean of `fi_pingpong`, in µs.
const ABOVE_US: f64 = 0.3;
/// Minimum ratio of a channel's bandwidth to the bandwidth of the provider's own tagged sends.
const BANDWIDTH: f64 = 0.9;

/// A comparison with its result.
#[derive(Clone, PartialEq, Debug)]
struct Judged {
    what: String,
    good: bool,
}

/// Measures times, so no other program should run on a machine with two processors.
pub(crate) fn step(context: &Context) -> Result<Outcome> {
    super::NEEDS.ensure()?;
    let stentor = programs::stentor(context)?;
    let mut missed = 0;
    for provider in PROVIDERS {
        let mut bench = Command::new(&stentor);
        bench.args(["bench", "channel", "--fabric", "ofi", "--provider", provider, "--json"]);
        let (good, text) = capture(&mut bench)?;
        if !good {
            bail!("`stentor bench channel` failed on {provider}; its message is above");
        }
        let document: Value =
            serde_json::from_str(&text).context("cannot parse the document of `stentor bench channel`")?;
        println!("{}:", document["environment"]["carrier"]);
        for Judged { what, good } in judge(&document, provider == SHM)? {
            println!("  {}  {what}", if good { "ok    " } else { "missed" });
            missed += usize::from(!good);
        }
    }
    if missed > 0 { bail!("{missed} bars are missed: see above") } else { Ok(Outcome::Passed) }
}

/// Compares the rows of the channel's default with their bars, or the rows of messages sent and read in place if
/// `in_place` is set. The texts also name the figures of the other kind of rows.
fn judge(document: &Value, in_place: bool) -> Result<Vec<Judged>> {
    let mut all = Vec::new();
    let (way, other) = if in_place { (" in place", "copied") } else { ("", "in place") };
    let judged_and_beside = |bytes| -> Result<(&Value, &Value)> {
        let (copied, placed) = (row(document, bytes, is_default)?, row(document, bytes, is_in_place)?);
        Ok(if in_place { (placed, copied) } else { (copied, placed) })
    };
    for bytes in SIZES {
        let (judged, beside) = judged_and_beside(bytes)?;
        let (ratio, beside) = (number(judged, "ratio")?, number(beside, "ratio")?);
        let (ours, theirs) = (number(judged, "p50_us")?, bound(judged)?);
        all.push(Judged {
            what: format!(
                "{bytes} bytes{way}: median {ours:.2} us, raw {theirs:.2}: {ratio:.3} times, at most {LATENCY} ({other} \
                 {beside:.3})"
            ),
            good: ratio <= LATENCY,
        });
        let ours = number(judged, "round_avg_us")?;
        let theirs = number(row(document, bytes, |name| name.starts_with("fi_pingpong"))?, "round_avg_us")?;
        let (more, raw) = (number(judged, "above_pingpong_us")?, number(judged, "bound_round_avg_us")?);
        all.push(Judged {
            what: format!(
                "{bytes} bytes{way}: mean {ours:.2} us, fi_pingpong's {theirs:.2}: {more:+.2} us, at most +{ABOVE_US} (raw {raw:.2})"
            ),
            good: more <= ABOVE_US,
        });
    }
    let (judged, beside) = judged_and_beside(LARGE)?;
    // For rates, the document's ratio is the bound's rate divided by the channel's.
    let (ratio, beside) = (1.0 / number(judged, "ratio")?, 1.0 / number(beside, "ratio")?);
    let (ours, theirs) = (number(judged, "mb_per_s")?, bound(judged)? * LARGE as f64 / 1e6);
    all.push(Judged {
        what: format!(
            "{LARGE} bytes{way}: {ours:.0} MB/s, raw {theirs:.0}: {ratio:.3} times, at least {BANDWIDTH} ({other} {beside:.3})"
        ),
        good: ratio >= BANDWIDTH,
    });
    Ok(all)
}

/// Returns whether a row belongs to the channel's default. Its name is `channel, ` and a scheme, such as `eager`,
/// without a variant.
fn is_default(name: &str) -> bool {
    name.strip_prefix("channel, ").is_some_and(|scheme| !scheme.contains([',', '(']))
}

fn is_in_place(name: &str) -> bool {
    name.starts_with("channel, ") && name.ends_with(", sent and read in place")
}

fn row(document: &Value, bytes: u64, is_it: impl Fn(&str) -> bool) -> Result<&Value> {
    let rows = document["rows"].as_array().context("the bench has no rows")?;
    let found = rows.iter().find(|row| row["bytes"] == bytes && row["name"].as_str().is_some_and(&is_it));
    found.with_context(|| format!("the bench lacks a row of {bytes} bytes"))
}

fn number(row: &Value, name: &str) -> Result<f64> {
    row[name].as_f64().with_context(|| format!("row {} has no {name}", row["name"]))
}

fn bound(row: &Value) -> Result<f64> {
    number(&row["bound"], "value").with_context(|| format!("row {} has no bound", row["name"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Returns the document of a bench in which a channel has `times` the raw median latency, `above` more than the
    /// mean of `fi_pingpong`, and the share `part` of the raw bandwidth.
    fn bench(times: f64, above: f64, part: f64) -> Value {
        let latency = |name: &str, bytes: u64, us: f64, mean: f64| {
            let bound = json!({"value": 10.0, "unit": "us"});
            json!({
                "name": name, "bytes": bytes, "p50_us": us, "round_avg_us": mean, "bound": bound, "bound_round_avg_us": 11.0,
                "ratio": us / 10.0, "above_pingpong_us": mean - 12.0,
            })
        };
        let rate = |name: &str, rate: f64| {
            let bound = json!({"value": 1000.0, "unit": "msgs/s"});
            json!({"name": name, "bytes": LARGE, "mb_per_s": rate * 1.048_576, "bound": bound, "ratio": 1000.0 / rate})
        };
        let mut rows = Vec::new();
        for bytes in SIZES {
            rows.push(latency("channel, length+payload, length and payload apart", bytes, 90.0, 90.0));
            rows.push(latency("channel, eager, sent and read in place", bytes, 1.0, 1.0));
            rows.push(latency("channel, eager", bytes, 10.0 * times, 12.0 + above));
            rows.push(latency("fi_pingpong of libfabric (the mean of a round)", bytes, 12.0, 12.0));
        }
        rows.push(rate("channel, eager, sent and read in place", 9000.0));
        rows.push(rate("channel, eager", 1000.0 * part));
        json!({"rows": rows})
    }

    fn missed(document: &Value) -> Vec<String> {
        missed_of(document, false)
    }

    fn missed_of(document: &Value, in_place: bool) -> Vec<String> {
        judge(document, in_place).unwrap().into_iter().filter(|judged| !judged.good).map(|judged| judged.what).collect()
    }

    #[test]
    fn each_bar_can_be_missed() {
        assert_eq!(missed(&bench(1.14, 0.29, 0.91)), [""; 0]);
        for (document, what, count) in [
            (bench(1.16, 0.0, 1.0), "median 11.60 us, raw 10.00: 1.160 times", 3),
            (bench(1.0, 0.31, 1.0), "mean 12.31 us, fi_pingpong's 12.00: +0.31", 3),
            (bench(1.0, 0.0, 0.89), "933 MB/s, raw 1049: 0.890 times", 1),
        ] {
            let missed = missed(&document);
            assert!(missed.len() == count && missed.iter().all(|missed| missed.contains(what)), "{missed:?}");
        }
    }

    #[test]
    fn rows_in_place_are_judged_if_a_copy_is_expensive() {
        assert_eq!(missed_of(&bench(1.5, 0.9, 0.5), true), [""; 0]);
        let mut slow = bench(1.0, 0.0, 1.0);
        slow["rows"][1]["ratio"] = json!(1.16);
        slow["rows"][5]["above_pingpong_us"] = json!(0.4);
        slow["rows"][12]["ratio"] = json!(1.0 / 0.89);
        let missed = missed_of(&slow, true);
        assert!(missed.len() == 3 && missed[2].contains("1048576 bytes in place: 9437 MB/s, raw 1049: 0.890 times"));
        assert!(missed[0].contains("8 bytes in place: median 1.00 us, raw 10.00: 1.160 times"));
        assert!(missed[1].contains("4096 bytes in place: mean 1.00 us, fi_pingpong's 12.00: +0.40 us"), "{missed:?}");
        assert_eq!(missed_of(&slow, false), [""; 0]);
    }

    #[test]
    fn missing_row_or_figure_is_an_error() {
        let mut without = bench(1.0, 0.0, 1.0);
        without["rows"].as_array_mut().unwrap().retain(|row| !row["name"].as_str().unwrap().starts_with("fi_"));
        assert!(judge(&without, false).unwrap_err().to_string().contains("lacks a row of 8 bytes"));
        let mut blank = bench(1.0, 0.0, 1.0);
        blank["rows"][2]["round_avg_us"] = Value::Null;
        assert!(judge(&blank, false).unwrap_err().to_string().contains("has no round_avg_us"));
        assert!(judge(&json!({}), false).is_err());
    }
}
