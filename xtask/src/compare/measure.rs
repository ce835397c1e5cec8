//! Runs each system, and reads its figures from what it prints.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde::Deserialize;

use super::system::{Figures, Programs, Setting, Shape, System};
use crate::cargo::capture;

/// Runs the script of a system in namespaces of its own and returns the lines that it prints. The script gets the program of the system,
/// how it is set up, the MTU of the links between hosts, and the shapes.
fn lines(programs: &Programs, system: &System, setting: &Setting, shapes: &[Shape]) -> Result<Vec<String>> {
    let shapes = shapes.iter().map(|shape| format!("{}:{}:{}", shape.bytes, shape.outstanding, shape.messages));
    let script = programs.script(system);
    let mut command = Command::new("unshare");
    command.arg("-rnm").arg(&script).arg(programs.of(system)?).args([setting.how, &setting.mtu.to_string()]);
    let (good, text) = capture(command.args(shapes))?;
    ensure!(good, "{} failed; what it said is above", script.display());
    Ok(text.lines().map(str::to_owned).collect())
}

/// Runs a program in `compare`, which prints a line of JSON for each shape.
pub(super) fn rows(programs: &Programs, system: &System, setting: &Setting, shapes: &[Shape]) -> Result<Vec<Figures>> {
    let lines = lines(programs, system, setting, shapes)?;
    lines.iter().map(|line| figures_of(line)).collect()
}

/// A line of a program in `compare`.
#[derive(Deserialize)]
struct Line {
    bytes: u32,
    outstanding: u64,
    msgs_per_s: f64,
    p50_us: f64,
    p99_us: f64,
}

fn figures_of(line: &str) -> Result<Figures> {
    let Line { bytes, outstanding, msgs_per_s, p50_us, p99_us } =
        serde_json::from_str(line).with_context(|| format!("{line:?} is no row"))?;
    Ok(Figures { bytes, outstanding, msgs_per_s: Some(msgs_per_s), p50_us: Some(p50_us), p99_us: Some(p99_us) })
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
}

/// Our multicast: on hosts to a cluster that runs there, else by the bench that starts all processes.
pub(super) fn stentor(
    programs: &Programs,
    system: &System,
    setting: &Setting,
    shapes: &[Shape],
) -> Result<Vec<Figures>> {
    if setting.mtu > 0 {
        let lines = lines(programs, system, setting, shapes)?;
        return shapes.iter().zip(&lines).map(|(shape, line)| figures_in(line, *shape)).collect();
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

/// The figures of a shape in a document that has a row for messages one at a time and, if more are outstanding, another.
fn figures_in(text: &str, shape: Shape) -> Result<Figures> {
    let document: Document = serde_json::from_str(text).with_context(|| format!("{text:?} is no document"))?;
    let outstanding = match shape.outstanding {
        1 => ", one outstanding".to_owned(),
        many => format!(", {many} outstanding"),
    };
    let row = document.rows.iter().find(|row| row.bytes == shape.bytes && row.name.ends_with(&outstanding));
    let row = row.with_context(|| format!("no row of {} bytes{outstanding}", shape.bytes))?;
    let figure = |figure: Option<f64>| figure.with_context(|| format!("row {} has no figure", row.name));
    Ok(Figures {
        bytes: shape.bytes,
        outstanding: shape.outstanding,
        msgs_per_s: Some(figure(row.msgs_per_s)?),
        p50_us: Some(figure(row.p50_us)?),
        p99_us: Some(figure(row.p99_us)?),
    })
}

/// The name of our channel's row, as it is used by default.
const CHANNEL: &str = "channel, counted";

/// Our channel, to and fro.
pub(super) fn channel(
    programs: &Programs,
    system: &System,
    setting: &Setting,
    shapes: &[Shape],
) -> Result<Vec<Figures>> {
    let one = |shape: &Shape| {
        let (bytes, messages) = (shape.bytes.to_string(), shape.messages.to_string());
        let mut command = Command::new(programs.of(system)?);
        command.args(["bench", "channel", "--rounds", "1", "--json", "--fabric", setting.how]);
        let (good, text) = capture(command.args(["-s", &bytes, "-n", &messages]))?;
        ensure!(good, "{text}");
        to_and_fro_in(&text, *shape)
    };
    shapes.iter().map(one).collect()
}

fn to_and_fro_in(text: &str, shape: Shape) -> Result<Figures> {
    let document: Document = serde_json::from_str(text).with_context(|| format!("{text:?} is no document"))?;
    let row = document.rows.iter().find(|row| row.bytes == shape.bytes && row.name == CHANNEL);
    let row = row.with_context(|| format!("no row {CHANNEL:?} of {} bytes", shape.bytes))?;
    let p50_us = Some(row.p50_us.with_context(|| format!("row {CHANNEL:?} has no latency"))?);
    Ok(Figures { bytes: shape.bytes, outstanding: 1, msgs_per_s: None, p50_us, p99_us: row.p99_us })
}

/// `fi_pingpong`.
pub(super) fn pingpong(
    programs: &Programs,
    system: &System,
    setting: &Setting,
    shapes: &[Shape],
) -> Result<Vec<Figures>> {
    lines(programs, system, setting, shapes)?.iter().map(|line| pingpong_of(line)).collect()
}

/// The payload, 1, and the last line of `fi_pingpong`: payload, sent, acknowledged, total, time, MB/s, µs for each way, millions a second.
fn pingpong_of(line: &str) -> Result<Figures> {
    let wrong = || format!("{line:?} is no line of fi_pingpong");
    let words: Vec<_> = line.split_whitespace().collect();
    let [bytes, outstanding, again, _, _, _, _, _, mean, _] = words[..] else { bail!(wrong()) };
    ensure!(again == short(bytes), "{}: it is of another payload", wrong());
    let (bytes, outstanding) = (bytes.parse().with_context(wrong)?, outstanding.parse().with_context(wrong)?);
    let p50_us = Some(mean.parse().with_context(wrong)?);
    Ok(Figures { bytes, outstanding, msgs_per_s: None, p50_us, p99_us: None })
}

/// A payload as `fi_pingpong` writes it: whole KiB with a `k`.
fn short(bytes: &str) -> String {
    match bytes.parse::<u32>() {
        Ok(many) if many >= 1024 && many % 1024 == 0 => format!("{}k", many / 1024),
        _ => bytes.to_owned(),
    }
}

/// `ucx_perftest`.
pub(super) fn ucx(programs: &Programs, system: &System, setting: &Setting, shapes: &[Shape]) -> Result<Vec<Figures>> {
    lines(programs, system, setting, shapes)?.iter().map(|line| ucx_of(line)).collect()
}

/// The payload, how many are outstanding, and the last line of `ucx_perftest -f -v`: iterations, latencies in µs (median, mean, mean of
/// all), MB/s (twice) and messages a second (twice). In a stream its latencies are the times from one message to the next.
fn ucx_of(line: &str) -> Result<Figures> {
    let wrong = || format!("{line:?} is no line of ucx_perftest");
    let words: Vec<_> = line.split_whitespace().collect();
    let [bytes, outstanding, figures] = words[..] else { bail!(wrong()) };
    let (bytes, outstanding) = (bytes.parse().with_context(wrong)?, outstanding.parse().with_context(wrong)?);
    let words: Vec<_> = figures.split(',').collect();
    let [_, p50, _, _, _, _, _, rate] = words[..] else { bail!(wrong()) };
    let (p50, rate) = (p50.parse().with_context(wrong)?, rate.parse().with_context(wrong)?);
    Ok(match outstanding {
        1 => Figures { bytes, outstanding, msgs_per_s: None, p50_us: Some(p50), p99_us: None },
        _ => Figures { bytes, outstanding, msgs_per_s: Some(rate), p50_us: None, p99_us: None },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_row_with_the_window_is_taken_and_one_at_a_time_another() {
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
    fn a_line_of_a_program_is_read() {
        let line =
            r#"{"bytes":64,"outstanding":500,"messages":9,"msgs_per_s":1.5,"p50_us":2.5,"p99_us":3.5,"p999_us":4}"#;
        let figures =
            Figures { bytes: 64, outstanding: 500, msgs_per_s: Some(1.5), p50_us: Some(2.5), p99_us: Some(3.5) };
        assert_eq!(figures_of(line).unwrap(), figures);
        assert!(figures_of("corosync said something").is_err());
    }

    #[test]
    fn the_default_of_the_channel_is_taken_and_not_its_variants() {
        let text = r#"{"rows": [{"name": "channel, counted, sent in place", "bytes": 64, "p50_us": 1.0},
            {"name": "channel, counted", "bytes": 1048576, "msgs_per_s": 3.0},
            {"name": "channel, counted", "bytes": 64, "p50_us": 2.0, "p99_us": 4.0}]}"#;
        let shape = |bytes| Shape { bytes, outstanding: 1, messages: 10 };
        let wanted = Figures { bytes: 64, outstanding: 1, msgs_per_s: None, p50_us: Some(2.0), p99_us: Some(4.0) };
        assert_eq!(to_and_fro_in(text, shape(64)).unwrap(), wanted);
        assert!(to_and_fro_in(text, shape(1 << 20)).unwrap_err().to_string().contains("no latency"));
        assert!(to_and_fro_in(text, shape(8)).is_err());
    }

    #[test]
    fn what_fi_pingpong_prints_is_read() {
        let line = "4096 1 4k 500 =500 3.9m 0.05s 80.01 51.19 0.02";
        let wanted = Figures { bytes: 4096, outstanding: 1, msgs_per_s: None, p50_us: Some(51.19), p99_us: None };
        assert_eq!(pingpong_of(line).unwrap(), wanted);
        assert!(pingpong_of("64 1 4k 500 =500 3.9m 0.05s 80.01 51.19 0.02").is_err(), "another payload");
        assert!(pingpong_of("64 1 fi_getinfo: -61").is_err());
    }

    #[test]
    fn what_ucx_perftest_prints_is_read() {
        let alone = ucx_of("64 1  1000,4.087,296.538,1253.123,0.21,0.05,3372,798").unwrap();
        assert_eq!((alone.p50_us, alone.msgs_per_s), (Some(4.087), None));
        let stream = ucx_of("64 32 1000,0.562,0.618,0.618,98.77,98.77,1618173,1618173").unwrap();
        assert_eq!((stream.outstanding, stream.p50_us, stream.msgs_per_s), (32, None, Some(1_618_173.0)));
        assert!(ucx_of("64 32 1000,0.562").is_err() && ucx_of("[error] no transport").is_err());
    }
}
