//! The systems that are measured: the promise of each, and how it is set up.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use crate::cargo::{Context, capture, run};
use crate::needs::Needs;
use crate::programs;

/// The end of the name of a system that is measured between two processes beside another place.
pub(super) const PAIR: &str = "-pair";

/// A system, and what it promises.
pub(crate) struct System {
    /// Its name on the command line, and, without [`PAIR`], that of its folder in `compare`.
    pub name: &'static str,
    /// The promise that holds when it is done with a message.
    pub guarantee: &'static str,
    /// The event at which a latency ends.
    pub until: &'static str,
    /// The way in which its processes wait.
    pub wait: &'static str,
    /// Messages that a sender has outstanding in a stream: as many as it does best with. With 1 there is no stream.
    pub outstanding: u64,
    /// Its settings. Of those with the same place the best counts.
    pub settings: &'static [Setting],
    /// The packages that it takes.
    pub needs: &'static Needs,
    pub(super) program: Program,
    pub(super) measure: Measure,
    pub(super) version: Version,
}

/// Runs a system in a setting. Returns the figures of all shapes.
pub(super) type Measure = fn(&Programs, &System, &Setting, &[Shape]) -> Result<Vec<Figures>>;

/// The program that has to be built for a system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// Our command.
    Stentor,
    /// A program of the workspace `compare`.
    Other(&'static str),
    /// A program of that name and folder in `compare`, which is no member of the workspace: it builds sources that need CMake.
    Apart(&'static str),
    /// Nothing: the system's packages have what measures it.
    Packaged,
}

/// The place where the version of a system is found.
pub(super) enum Version {
    /// The output of its own program.
    Own,
    /// The output of this command.
    Says(&'static str, &'static [&'static str]),
    /// That of this dependency in a lock file.
    Locked(&'static str, &'static str),
}

/// A way of running a system.
pub(crate) struct Setting {
    /// The place at which figures of different systems are set side by side.
    pub place: &'static str,
    /// The difference from other settings of the same place.
    pub how: &'static str,
    /// MTU of the links between hosts; 0: there are none.
    pub(super) mtu: u32,
}

impl Setting {
    /// Whether two processes send messages to and fro.
    pub(super) fn is_pair(&self) -> bool {
        self.place.starts_with("two processes")
    }
}

pub(super) const fn setting(place: &'static str, how: &'static str, mtu: u32) -> Setting {
    Setting { place, how, mtu }
}

/// Messages of one size.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) struct Shape {
    pub bytes: u32,
    pub outstanding: u64,
    pub messages: u64,
}

/// The figures of a system for a shape in one run. `None`: the system does not tell it.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub(crate) struct Figures {
    pub bytes: u32,
    pub outstanding: u64,
    pub msgs_per_s: Option<f64>,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    /// The figure of the same processes without the system in the same run: the median latency one at a time, microseconds, or the
    /// messages a second of a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// The cost of a message by the bound's: 1 is at the bound, larger is worse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
}

impl Figures {
    /// Sets them beside a bound.
    pub(super) fn beside(self, bound: f64) -> Self {
        let ratio = match self.outstanding {
            1 => self.p50_us.map(|p50| p50 / bound),
            _ => self.msgs_per_s.map(|rate| bound / rate),
        };
        Figures { bound: Some(bound), ratio: ratio.filter(|ratio| ratio.is_finite()), ..self }
    }
}

/// The programs that are run.
pub(crate) struct Programs {
    root: PathBuf,
    stentor: Option<PathBuf>,
    /// The folder of the programs for other systems.
    others: PathBuf,
}

impl Programs {
    /// There is none yet.
    pub(crate) fn new(context: &Context) -> Self {
        Programs { root: context.root.clone(), stentor: None, others: context.root.join("target/compare") }
    }

    /// The program of a system.
    pub(super) fn of(&self, system: &System) -> Result<PathBuf> {
        Ok(match system.program {
            Program::Stentor => self.stentor.clone().context("our command was not built")?,
            Program::Other(name) => self.others.join("release").join(name),
            Program::Apart(name) => self.apart(name).join("release").join(name),
            Program::Packaged => PathBuf::from("none"),
        })
    }

    /// The script that runs a system: of what is measured as two systems it is that of both.
    pub(super) fn script(&self, system: &System) -> PathBuf {
        self.root.join("compare").join(system.folder()).join("nodes.sh")
    }

    /// The folder that such a program is built in.
    fn apart(&self, name: &str) -> PathBuf {
        self.others.with_file_name(name)
    }

    /// The version of a dependency in a lock file.
    fn locked(&self, file: &str, name: &str) -> Result<String> {
        let path = self.root.join(file);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        version_in(&text, name).with_context(|| format!("{} has no {name}", path.display()))
    }
}

/// The version of a package in a lock file.
fn version_in(lock: &str, name: &str) -> Option<String> {
    let line = format!("name = \"{name}\"");
    let mut lines = lock.lines().skip_while(|found| *found != line);
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"').map(|version| format!("{name} {version}"))
}

impl System {
    /// Installs what it needs, and builds its program.
    pub(crate) fn ensure(&self, context: &Context, programs: &mut Programs) -> Result<()> {
        self.needs.ensure()?;
        match self.program {
            Program::Stentor if programs.stentor.is_none() => programs.stentor = Some(programs::stentor(context)?),
            Program::Other(name) => {
                let mut command = build(context, "compare/Cargo.toml", &programs.others);
                run(command.args(["--bin", name]))?;
            }
            Program::Apart(name) => {
                ensure_cmake()?;
                let manifest = format!("compare/{}/Cargo.toml", self.folder());
                run(&mut build(context, &manifest, &programs.apart(name)))?;
            }
            Program::Stentor | Program::Packaged => {}
        }
        Ok(())
    }

    /// Its folder in `compare`.
    fn folder(&self) -> &'static str {
        self.name.strip_suffix(PAIR).unwrap_or(self.name)
    }

    /// Whether it is ours.
    pub(super) fn is_ours(&self) -> bool {
        self.program == Program::Stentor
    }

    /// Returns its version, in one line.
    pub(crate) fn version(&self, programs: &Programs) -> Result<String> {
        let version = match self.version {
            Version::Own => said(Command::new(programs.of(self)?).arg("--version")),
            Version::Says(program, arguments) => said(Command::new(program).args(arguments)),
            Version::Locked(file, name) => programs.locked(file, name),
        };
        version.with_context(|| format!("asking {} for its version", self.name))
    }

    /// Runs it in a setting. Returns the figures of all shapes.
    pub(crate) fn run(&self, programs: &Programs, setting: &Setting, shapes: &[Shape]) -> Result<Vec<Figures>> {
        let place = || format!("{} on {} ({})", self.name, setting.place, setting.how);
        let figures = (self.measure)(programs, self, setting, shapes).with_context(place)?;
        for shape in shapes {
            let is_of = |found: &&Figures| (found.bytes, found.outstanding) == (shape.bytes, shape.outstanding);
            let count = figures.iter().filter(is_of).count();
            ensure!(count == 1, "{}: {count} figures of {} bytes", place(), shape.bytes);
        }
        Ok(figures)
    }
}

fn build(context: &Context, manifest: &str, folder: &Path) -> Command {
    let mut command = context.cargo(["build", "--release", "--locked", "--manifest-path"]);
    command.arg(context.root.join(manifest)).arg("--target-dir").arg(folder);
    command
}

/// The oldest CMake that builds Aeron's sources, and the line that gives it to a system whose own is older.
const CMAKE: (u32, u32) = (3, 30);
const CMAKE_REMEDY: &str =
    "python3 -m venv /opt/cmake && /opt/cmake/bin/pip install 'cmake>=3.30,<4', then put /opt/cmake/bin first in PATH";

fn ensure_cmake() -> Result<()> {
    let said = said(Command::new("cmake").arg("--version"))?;
    let (major, minor) = CMAKE;
    ensure!(cmake_in(&said) >= Some(CMAKE), "it needs CMake {major}.{minor}, and this is {said:?}: {CMAKE_REMEDY}");
    Ok(())
}

/// The version that the first line of `cmake --version` tells.
fn cmake_in(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.strip_prefix("cmake version ")?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn said(command: &mut Command) -> Result<String> {
    let (good, text) = capture(command)?;
    ensure!(good, "it failed");
    Ok(text.lines().next().unwrap_or_default().trim_start_matches(['#', ' ']).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::table::SYSTEMS;
    use super::*;

    #[test]
    fn every_place_of_another_system_is_one_of_ours() {
        let of_all = |ours: bool| SYSTEMS.iter().filter(move |s| s.is_ours() == ours).flat_map(|s| s.settings);
        for setting in of_all(false) {
            assert!(of_all(true).any(|own| own.place == setting.place), "{}", setting.place);
        }
    }

    #[test]
    fn every_other_system_has_a_script_and_two_names_share_one() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned();
        let programs = Programs { others: root.join("target/compare"), root, stentor: None };
        let script = |name: &str| programs.script(SYSTEMS.iter().find(|system| system.name == name).unwrap());
        assert_eq!(script("iceoryx2-pair"), script("iceoryx2"));
        for system in SYSTEMS.iter().filter(|system| !system.is_ours()) {
            assert!(programs.script(system).is_file(), "{}", system.name);
        }
    }

    #[test]
    fn a_ratio_is_of_costs_and_larger_is_worse() {
        let figures = Figures { msgs_per_s: Some(10.0), p50_us: Some(6.0), ..Figures::default() };
        assert_eq!(Figures { outstanding: 1, ..figures }.beside(3.0).ratio, Some(2.0));
        assert_eq!(Figures { outstanding: 9, ..figures }.beside(25.0).ratio, Some(2.5));
        assert_eq!(Figures { outstanding: 1, p50_us: None, ..figures }.beside(3.0).ratio, None);
        assert_eq!(Figures { outstanding: 1, ..figures }.beside(0.0).ratio, None);
    }

    #[test]
    fn the_version_of_a_dependency_is_the_locked_one() {
        let lock =
            "[[package]]\nname = \"ab\"\nversion = \"1.0.0\"\n\n[[package]]\nname = \"a\"\nversion = \"2.3.4\"\n";
        assert_eq!(version_in(lock, "a").unwrap(), "a 2.3.4");
        assert_eq!(version_in(lock, "b"), None);
    }

    #[test]
    fn an_older_cmake_is_told_from_one_that_does() {
        assert!(cmake_in("cmake version 3.25.1") < Some(CMAKE));
        assert!(cmake_in("cmake version 3.31.10") >= Some(CMAKE) && cmake_in("cmake version 4.0") >= Some(CMAKE));
        assert_eq!(cmake_in("no such program"), None);
    }
}
