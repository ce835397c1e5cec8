//! The systems that are measured, each in some settings.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};

use crate::cargo::{Context, capture, run};
use crate::needs::Needs;
use crate::programs;

/// The needs of corosync's nodes and of the program in `compare`.
pub(crate) const CPG: Needs = Needs {
    things: &["corosync", "libcpg.so.4", "ip", "unshare"],
    sources: &["compare/cpg", "compare/hosts.sh", "xtask/src/compare/system.rs"],
};
/// The needs of our own.
pub(crate) const STENTOR: Needs =
    Needs { things: &["ip", "unshare"], sources: &["compare/stentor", "compare/hosts.sh"] };

/// A system, and what it promises.
pub(crate) struct System {
    /// Its name on the command line.
    pub name: &'static str,
    /// What holds once it is done with a message.
    pub guarantee: &'static str,
    /// Until when a latency counts.
    pub until: &'static str,
    /// What its processes do when there is nothing to do.
    pub wait: &'static str,
    /// Messages that a sender has outstanding in a stream: as many as it does best with.
    pub outstanding: u64,
    /// Where it is measured. Of settings with the same place the best is told.
    pub settings: &'static [Setting],
    needs: &'static Needs,
    measure: fn(&Programs, &Setting, &[Shape]) -> Result<Vec<Figures>>,
    version: fn(&Programs) -> Result<String>,
}

/// A way of running a system.
pub(crate) struct Setting {
    /// The place at which figures of different systems are set side by side.
    pub place: &'static str,
    /// What differs from other settings of the same place.
    pub how: &'static str,
    /// MTU of the links between hosts; 0: there are none.
    mtu: u32,
}

const fn setting(place: &'static str, how: &'static str, mtu: u32) -> Setting {
    Setting { place, how, mtu }
}

/// Hosts are network namespaces that a bridge joins by veth pairs.
const AT_1500: &str = "three hosts, MTU 1500";
const AT_9000: &str = "three hosts, MTU 9000";
const LOOPBACK: &str = "one host, loopback";
const MEMORY: &str = "one host, shared memory";

/// All of them; ours first.
pub(crate) const SYSTEMS: &[System] = &[
    System {
        name: "stentor",
        guarantee: "total order; a majority has the message",
        until: "the sender knows that a majority has delivered; on one host, the last member has delivered",
        wait: "adaptive",
        outstanding: 1024,
        settings: &[
            setting(AT_1500, "roce", 1500),
            setting(AT_9000, "roce", 9000),
            setting(LOOPBACK, "roce", 0),
            setting(MEMORY, "shm", 0),
        ],
        needs: &STENTOR,
        measure: stentor,
        version: |programs| said(Command::new(&programs.stentor).arg("--version")),
    },
    System {
        name: "cpg",
        guarantee: "total order (agreed, not safe)",
        until: "the last of three members has delivered",
        wait: "poll(2)",
        outstanding: 500,
        settings: &[
            setting(AT_1500, "udpu", 1500),
            setting(AT_1500, "knet", 1500),
            setting(AT_9000, "udpu", 9000),
            setting(AT_9000, "knet", 9000),
        ],
        needs: &CPG,
        measure: cpg,
        version: |_| said(Command::new("corosync").arg("-v")),
    },
];

/// Messages of one size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) struct Shape {
    pub bytes: u32,
    pub outstanding: u64,
    pub messages: u64,
}

/// What a system did with a shape in one run.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub(crate) struct Figures {
    pub bytes: u32,
    pub outstanding: u64,
    pub msgs_per_s: f64,
    pub p50_us: f64,
    pub p99_us: f64,
}

/// What is run.
pub(crate) struct Programs {
    root: PathBuf,
    stentor: PathBuf,
    /// The folder of the programs for other systems.
    others: PathBuf,
}

impl Programs {
    /// Builds them.
    pub(crate) fn build(context: &Context) -> Result<Self> {
        let others = context.root.join("target/compare");
        let manifest = context.root.join("compare/Cargo.toml");
        let mut command = context.cargo(["build", "--release", "--locked", "--manifest-path"]);
        run(command.arg(manifest).arg("--target-dir").arg(&others))?;
        let stentor = programs::stentor(context)?;
        Ok(Programs { root: context.root.clone(), stentor, others: others.join("release") })
    }

    fn script(&self, path: &str) -> PathBuf {
        self.root.join("compare").join(path)
    }
}

impl System {
    /// Installs what it needs.
    pub(crate) fn ensure(&self) -> Result<()> {
        self.needs.ensure()
    }

    /// What it says of its version, in one line.
    pub(crate) fn version(&self, programs: &Programs) -> Result<String> {
        (self.version)(programs).with_context(|| format!("asking {} for its version", self.name))
    }

    /// Runs it in a setting. Returns the figures of all shapes.
    pub(crate) fn run(&self, programs: &Programs, setting: &Setting, shapes: &[Shape]) -> Result<Vec<Figures>> {
        let place = || format!("{} on {} ({})", self.name, setting.place, setting.how);
        let figures = (self.measure)(programs, setting, shapes).with_context(place)?;
        for shape in shapes {
            let is_of = |found: &&Figures| (found.bytes, found.outstanding) == (shape.bytes, shape.outstanding);
            let count = figures.iter().filter(is_of).count();
            ensure!(count == 1, "{}: {count} figures of {} bytes", place(), shape.bytes);
        }
        Ok(figures)
    }
}

fn said(command: &mut Command) -> Result<String> {
    let (good, text) = capture(command)?;
    ensure!(good, "it failed");
    Ok(text.lines().next().unwrap_or_default().trim().to_owned())
}

/// Runs a script in namespaces of its own and returns the lines that it prints.
fn on_hosts(script: &Path, arguments: &[&str], shapes: &[Shape]) -> Result<Vec<String>> {
    let shapes = shapes.iter().map(|shape| format!("{}:{}:{}", shape.bytes, shape.outstanding, shape.messages));
    let mut command = Command::new("unshare");
    let (good, text) = capture(command.arg("-rnm").arg(script).args(arguments).args(shapes))?;
    ensure!(good, "{} failed; what it said is above", script.display());
    Ok(text.lines().map(str::to_owned).collect())
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

fn cpg(programs: &Programs, setting: &Setting, shapes: &[Shape]) -> Result<Vec<Figures>> {
    let (program, mtu) = (programs.others.join("compare-cpg"), setting.mtu.to_string());
    let program = program.to_str().context("a path that is no text")?;
    let lines = on_hosts(&programs.script("cpg/nodes.sh"), &[program, setting.how, &mtu], shapes)?;
    lines.iter().map(|line| figures_of(line)).collect()
}

fn figures_of(line: &str) -> Result<Figures> {
    let Line { bytes, outstanding, msgs_per_s, p50_us, p99_us } =
        serde_json::from_str(line).with_context(|| format!("{line:?} is no row"))?;
    Ok(Figures { bytes, outstanding, msgs_per_s, p50_us, p99_us })
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

fn stentor(programs: &Programs, setting: &Setting, shapes: &[Shape]) -> Result<Vec<Figures>> {
    let program = programs.stentor.to_str().context("a path that is no text")?;
    if setting.mtu > 0 {
        let mtu = setting.mtu.to_string();
        let lines = on_hosts(&programs.script("stentor/nodes.sh"), &[program, &mtu], shapes)?;
        return shapes.iter().zip(&lines).map(|(shape, line)| figures_in(line, *shape)).collect();
    }
    let one = |shape: &Shape| {
        let (bytes, window) = (shape.bytes.to_string(), shape.outstanding.to_string());
        let mut command = Command::new(program);
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
        msgs_per_s: figure(row.msgs_per_s)?,
        p50_us: figure(row.p50_us)?,
        p99_us: figure(row.p99_us)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_of_another_system_is_one_of_ours() {
        let ours: Vec<_> = SYSTEMS[0].settings.iter().map(|setting| setting.place).collect();
        for system in &SYSTEMS[1..] {
            assert!(system.settings.iter().all(|setting| ours.contains(&setting.place)), "{}", system.name);
        }
    }

    #[test]
    fn the_row_with_the_window_is_taken_and_one_at_a_time_another() {
        let row = |name: &str, rate: f64| {
            format!(r#"{{"name": "x, {name}", "bytes": 64, "msgs_per_s": {rate}, "p50_us": 1.5, "p99_us": 2.0}}"#)
        };
        let text = format!(r#"{{"rows": [{}, {}]}}"#, row("one outstanding", 7.0), row("256 outstanding", 9.0));
        let shape = |outstanding| Shape { bytes: 64, outstanding, messages: 10 };
        assert_eq!(figures_in(&text, shape(1)).unwrap().msgs_per_s, 7.0);
        assert_eq!(figures_in(&text, shape(256)).unwrap().msgs_per_s, 9.0);
        assert!(figures_in(&text, shape(56)).unwrap_err().to_string().contains("no row"));
        assert!(figures_in(&text, Shape { bytes: 8, ..shape(1) }).is_err());
    }

    #[test]
    fn a_line_of_a_program_is_read() {
        let line =
            r#"{"bytes":64,"outstanding":500,"messages":9,"msgs_per_s":1.5,"p50_us":2.5,"p99_us":3.5,"p999_us":4}"#;
        let figures = Figures { bytes: 64, outstanding: 500, msgs_per_s: 1.5, p50_us: 2.5, p99_us: 3.5 };
        assert_eq!(figures_of(line).unwrap(), figures);
        assert!(figures_of("corosync said something").is_err());
    }
}
