//! Runs each system, and parses its figures from its output.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::system::{Figures, Programs, Setting, Shape, System};
use crate::cargo::capture;

/// Runs the script of a system in separate namespaces and returns the lines that it prints. Its arguments are the
/// program of the system, the setting, the MTU of the links between hosts, and the shapes.
fn lines(programs: &Programs, system: &System, setting: &Setting, shapes: &[Shape]) -> Result<Vec<String>> {
    let shapes = shapes.iter().map(|shape| format!("{}:{}:{}", shape.bytes, shape.outstanding, shape.messages));
    let script = programs.script(system);
    let mut command = Command::new("unshare");
    command.arg("-rnm").arg(&script).arg(programs.of(system)?).args([setting.how, &setting.mtu.to_string()]);
    let (good, text) = capture(command.args(shapes))?;
    ensure!(good, "{} failed; its output is above", script.display());
    Ok(text.lines().map(str::to_owned).collect())
}

/// Runs a program of `compare`, which prints a line of JSON for each shape.
pub(super) fn rows(programs: &Programs, system: &System, setting: &Setting, shapes: &[Shape]) -> Result<Vec<Figures>> {
    let lines = lines(programs, system, setting, shapes)?;
    lines.iter().map(|line| figures_of(line)).collect()
}

/// A line of a program of `compare`.
#[derive(Deserialize)]
struct Line {
    bytes: u32,
    outstanding: u64,
    /// The rate, or `None` for round trips.
    msgs_per_s: Option<f64>,
    p50_us: f64,
    p99_us: f64,
}

fn figures_of(line: &str) -> Result<Figures> {
    let Line { bytes, outstanding, msgs_per_s, p50_us, p99_us } =
        serde_json::from_str(line).with_context(|| format!("{line:?} is not a row"))?;
    let (p50_us, p99_us) = (Some(p50_us), Some(p99_us));
    Ok(Figures { bytes, outstanding, msgs_per_s, p50_us, p99_us, ..Figures::default() })
}

/// A document of `stentor bench`.
#[derive(Deserialize)]
struct Document {
    rows: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    name: String,
    bytes: u32,
    msgs_per_s: Option<f64>,
    p50_us: Option<f64>,
    p99_us: Option<f64>,
    bound: Option<Bound>,
}

/// The bound of a row.
#[derive(Deserialize)]
struct Bound {
    value: f64,
}

/// Measures Stentor's multicast. On hosts the script runs a cluster. Otherwise the bench starts all processes.
pub(super) fn stentor(
    programs: &Programs,
    system: &System,
    setting: &Setting,
    shapes: &[Shape],
) -> Result<Vec<Figures>> {
    if setting.mtu > 0 {
        return on_hosts(&lines(programs, system, setting, shapes)?, shapes);
    }
    let one = |shape: &Shape| {
        let (bytes, window) = (shape.bytes.to_string(), shape.outstanding.to_string());
        let mut command = Command::new(programs.of(system)?);
        command.args(["bench", "multicast", "--groups", "1", "--dest", "1", "--rounds", "1", "--json"]);
        command.args(["--fabric", setting.how, "-s", &bytes, "--window", &window, "-n"]);
        let (good, text) = capture(command.arg(shape.messages.to_string()))?;
        ensure!(good, "{text}");
        figures_in(&text, *shape)
    };
    shapes.iter().map(one).collect()
}

/// Parses the lines of Stentor's script on hosts: the documents of the cluster, and as many documents of its bounds.
fn on_hosts(lines: &[String], shapes: &[Shape]) -> Result<Vec<Figures>> {
    ensure!(lines.len() == 2 * shapes.len(), "{} documents of {} shapes and their bounds", lines.len(), shapes.len());
    let (subjects, bounds) = lines.split_at(shapes.len());
    let of = |((shape, subject), bound): ((&Shape, &String), &String)| {
        let row = row_in(bound, *shape).context("the bound")?;
        let figure = if shape.outstanding == 1 { row.p50_us } else { row.msgs_per_s };
        let bound = figure.with_context(|| format!("row {} has no figure", row.name))?;
        Ok(figures_in(subject, *shape)?.beside(bound))
    };
    shapes.iter().zip(subjects).zip(bounds).map(of).collect()
}

/// Returns the row of a shape in a document. The document has a row for one message at a time and, if more are
/// outstanding, another row.
fn row_in(text: &str, shape: Shape) -> Result<Row> {
    let document: Document = serde_json::from_str(text).with_context(|| format!("{text:?} is not a document"))?;
    let outstanding = match shape.outstanding {
        1 => ", one outstanding".to_owned(),
        many => format!(", {many} outstanding"),
    };
    let row = document.rows.into_iter().find(|row| row.bytes == shape.bytes && row.name.ends_with(&outstanding));
    row.with_context(|| format!("no row of {} bytes{outstanding}", shape.bytes))
}

/// Returns the figures of the row of a shape in a document, with the row's bound if it has one.
fn figures_in(text: &str, shape: Shape) -> Result<Figures> {
    let row = row_in(text, shape)?;
    let figure = |figure: Option<f64>| figure.with_context(|| format!("row {} has no figure", row.name));
    let figures = Figures {
        bytes: shape.bytes,
        outstanding: shape.outstanding,
        msgs_per_s: Some(figure(row.msgs_per_s)?),
        p50_us: Some(figure(row.p50_us)?),
        p99_us: Some(figure(row.p99_us)?),
        ..Figures::default()
    };
    Ok(row.bound.map_or(figures, |bound| figures.beside(bound.value)))
}

/// Name of the row of the channel in its default use.
const CHANNEL: &str = "channel, counted";
/// Name of the row of messages that are sent from registered memory and read there.
const IN_PLACE: &str = "channel, counted, sent and read in place, every byte";

/// Measures round trips on Stentor's channel.
pub(super) fn channel(
    programs: &Programs,
    system: &System,
    setting: &Setting,
    shapes: &[Shape],
) -> Result<Vec<Figures>> {
    to_and_fro(programs, system, setting, (CHANNEL, shapes))
}

/// Measures the channel without a copy at either end. The receiver loads every byte.
pub(super) fn channel_in_place(
    programs: &Programs,
    system: &System,
    setting: &Setting,
    shapes: &[Shape],
) -> Result<Vec<Figures>> {
    to_and_fro(programs, system, setting, (IN_PLACE, shapes))
}

fn to_and_fro(
    programs: &Programs,
    system: &System,
    setting: &Setting,
    (row, shapes): (&str, &[Shape]),
) -> Result<Vec<Figures>> {
    let one = |shape: &Shape| {
        let (bytes, messages) = (shape.bytes.to_string(), shape.messages.to_string());
        let mut command = Command::new(programs.of(system)?);
        command.args(["bench", "channel", "--every-byte", "--rounds", "1", "--json", "--fabric", setting.how]);
        let (good, text) = capture(command.args(["-s", &bytes, "-n", &messages]))?;
        ensure!(good, "{text}");
        to_and_fro_in(&text, row, *shape)
    };
    shapes.iter().map(one).collect()
}

fn to_and_fro_in(text: &str, name: &str, shape: Shape) -> Result<Figures> {
    let document: Document = serde_json::from_str(text).with_context(|| format!("{text:?} is not a document"))?;
    let row = document.rows.iter().find(|row| row.bytes == shape.bytes && row.name == name);
    let row = row.with_context(|| format!("no row {name:?} of {} bytes", shape.bytes))?;
    let p50_us = Some(row.p50_us.with_context(|| format!("row {name:?} has no latency"))?);
    let figures = Figures { bytes: shape.bytes, outstanding: 1, p50_us, p99_us: row.p99_us, ..Figures::default() };
    Ok(row.bound.as_ref().map_or(figures, |bound| figures.beside(bound.value)))
}

/// Runs `fi_pingpong`.
pub(super) fn pingpong(
    programs: &Programs,
    system: &System,
    setting: &Setting,
    shapes: &[Shape],
) -> Result<Vec<Figures>> {
    lines(programs, system, setting, shapes)?.iter().map(|line| pingpong_of(line)).collect()
}

/// Parses the payload, the number of outstanding messages, which is 1, and the last line of `fi_pingpong`. That last
/// line has payload, sent, acknowledged, total, time, MB/s, µs one way, millions per second.
fn pingpong_of(line: &str) -> Result<Figures> {
    let wrong = || format!("{line:?} is not a line of fi_pingpong");
    let words: Vec<_> = line.split_whitespace().collect();
    let [bytes, outstanding, again, _, _, _, _, _, mean, _] = words[..] else { bail!(wrong()) };
    ensure!(again == short(bytes), "{}: its payload is another one", wrong());
    let (bytes, outstanding) = (bytes.parse().with_context(wrong)?, outstanding.parse().with_context(wrong)?);
    let p50_us = Some(mean.parse().with_context(wrong)?);
    Ok(Figures { bytes, outstanding, p50_us, ..Figures::default() })
}

/// Returns a payload as `fi_pingpong` formats it: whole KiB with a `k`.
fn short(bytes: &str) -> String {
    match bytes.parse::<u32>() {
        Ok(many) if many >= 1024 && many % 1024 == 0 => format!("{}k", many / 1024),
        _ => bytes.to_owned(),
    }
}

/// Runs `ucx_perftest`.
pub(super) fn ucx(programs: &Programs, system: &System, setting: &Setting, shapes: &[Shape]) -> Result<Vec<Figures>> {
    lines(programs, system, setting, shapes)?.iter().map(|line| ucx_of(line)).collect()
}

/// Parses the payload, the number of outstanding messages, and the last line of `ucx_perftest -f -v`. This line has the
/// iterations, latencies in µs (median, mean, mean of all), MB/s (twice) and messages per second (twice). In a stream
/// the latencies are the times between messages.
fn ucx_of(line: &str) -> Result<Figures> {
    let wrong = || format!("{line:?} is not a line of ucx_perftest");
    let words: Vec<_> = line.split_whitespace().collect();
    let [bytes, outstanding, figures] = words[..] else { bail!(wrong()) };
    let (bytes, outstanding) = (bytes.parse().with_context(wrong)?, outstanding.parse().with_context(wrong)?);
    let words: Vec<_> = figures.split(',').collect();
    let [_, p50, _, _, _, _, _, rate] = words[..] else { bail!(wrong()) };
    let (p50, rate) = (p50.parse().with_context(wrong)?, rate.parse().with_context(wrong)?);
    Ok(match outstanding {
        1 => Figures { bytes, outstanding, p50_us: Some(p50), ..Figures::default() },
        _ => Figures { bytes, outstanding, msgs_per_s: Some(rate), ..Figures::default() },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn row_is_selected_by_the_number_of_outstanding_messages() {
        let row = |name: &str, rate: f64| {
            format!(r#"{{"name": "x, {name}", "bytes": 64, "msgs_per_s": {rate}, "p50_us": 1.5, "p99_us": 2.0}}"#)
        };
        let text = format!(r#"{{"rows": [{}, {}]}}"#, row("one outstanding", 7.0), row("256 outstanding", 9.0));
        let shape = |outstanding| Shape { bytes: 64, outstanding, messages: 10 };
        assert_eq!(figures_in(&text, shape(1)).unwrap().msgs_per_s, Some(7.0));
        assert_eq!(figures_in(&text, shape(256)).unwrap().msgs_per_s, Some(9.0));
        assert!(figures_in(&text, shape(56)).unwrap_err().to_string().contains("no row"));
        assert!(figures_in(&text, Shape { bytes: 8, ..shape(1) }).is_err());
    }

    #[test]
    fn figures_of_a_cluster_on_hosts_have_their_bounds() {
        let shapes = [1, 256].map(|outstanding| Shape { bytes: 64, outstanding, messages: 10 });
        let cluster = |name: &str, rate: f64, p50: f64| {
            format!(
                r#"{{"rows": [{{"name": "cluster, to g1, {name}", "bytes": 64, "msgs_per_s": {rate}, "p50_us": {p50}, "p99_us": 9, "bound": null}}]}}"#
            )
        };
        let bound =
            |name: &str, figure: &str| format!(r#"{{"rows": [{{"name": "bound, {name}", "bytes": 64, {figure}}}]}}"#);
        let lines = [
            cluster("one outstanding", 7.0, 6.0),
            cluster("256 outstanding", 100.0, 8.0),
            bound("one outstanding", r#""msgs_per_s": 1, "p50_us": 4.0"#),
            bound("256 outstanding", r#""msgs_per_s": 150.0, "p50_us": null"#),
        ];
        let figures = on_hosts(&lines, &shapes).unwrap();
        let beside: Vec<_> = figures.iter().map(|figures| (figures.bound, figures.ratio)).collect();
        assert_eq!(beside, [(Some(4.0), Some(1.5)), (Some(150.0), Some(1.5))]);
        assert!(on_hosts(&lines[..3], &shapes).unwrap_err().to_string().contains("3 documents of 2 shapes"));
        let swapped = [0, 1, 3, 2].map(|at| lines[at].clone());
        assert!(on_hosts(&swapped, &shapes).unwrap_err().to_string().contains("the bound"));
    }

    #[test]
    fn a_line_of_a_program_is_read() {
        let line =
            r#"{"bytes":64,"outstanding":500,"messages":9,"msgs_per_s":1.5,"p50_us":2.5,"p99_us":3.5,"p999_us":4}"#;
        let (msgs_per_s, p50_us, p99_us) = (Some(1.5), Some(2.5), Some(3.5));
        let figures = Figures { bytes: 64, outstanding: 500, msgs_per_s, p50_us, p99_us, ..Figures::default() };
        assert_eq!(figures_of(line).unwrap(), figures);
        let to_and_fro = figures_of(&line.replace("1.5", "null")).unwrap();
        assert_eq!(to_and_fro, Figures { msgs_per_s: None, ..figures });
        assert!(figures_of("corosync said something").is_err());
    }

    #[test]
    fn row_of_the_default_channel_is_selected() {
        let text = r#"{"rows": [{"name": "channel, counted, sent and read in place, every byte", "bytes": 64, "p50_us": 1.0},
            {"name": "channel, counted, sent and read in place", "bytes": 64, "p50_us": 0.5},
            {"name": "channel, counted", "bytes": 1048576, "msgs_per_s": 3.0},
            {"name": "channel, counted", "bytes": 64, "p50_us": 2.0, "p99_us": 4.0, "bound": {"value": 0.5}}]}"#;
        let shape = |bytes| Shape { bytes, outstanding: 1, messages: 10 };
        let of = |name, bytes| to_and_fro_in(text, name, shape(bytes));
        let wanted = Figures { bytes: 64, outstanding: 1, p50_us: Some(2.0), p99_us: Some(4.0), ..Figures::default() };
        assert_eq!(of(CHANNEL, 64).unwrap(), Figures { bound: Some(0.5), ratio: Some(4.0), ..wanted });
        assert_eq!(of(IN_PLACE, 64).unwrap(), Figures { p50_us: Some(1.0), p99_us: None, ..wanted });
        assert!(of(CHANNEL, 1 << 20).unwrap_err().to_string().contains("no latency"));
        assert!(of(CHANNEL, 8).is_err());
    }

    #[test]
    fn output_of_fi_pingpong_is_parsed() {
        let line = "4096 1 4k 500 =500 3.9m 0.05s 80.01 51.19 0.02";
        let wanted = Figures { bytes: 4096, outstanding: 1, p50_us: Some(51.19), ..Figures::default() };
        assert_eq!(pingpong_of(line).unwrap(), wanted);
        assert!(pingpong_of("64 1 4k 500 =500 3.9m 0.05s 80.01 51.19 0.02").is_err(), "another payload");
        assert!(pingpong_of("64 1 fi_getinfo: -61").is_err());
    }

    #[test]
    fn output_of_ucx_perftest_is_parsed() {
        let alone = ucx_of("64 1  1000,4.087,296.538,1253.123,0.21,0.05,3372,798").unwrap();
        assert_eq!((alone.p50_us, alone.msgs_per_s), (Some(4.087), None));
        let stream = ucx_of("64 32 1000,0.562,0.618,0.618,98.77,98.77,1618173,1618173").unwrap();
        assert_eq!((stream.outstanding, stream.p50_us, stream.msgs_per_s), (32, None, Some(1_618_173.0)));
        assert!(ucx_of("64 32 1000,0.562").is_err() && ucx_of("[error] no transport").is_err());
    }
}
