//! The measured systems: the guarantee of each, and its settings.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use serde::Serialize;

use crate::cargo::{Context, capture, run};
use crate::needs::Needs;
use crate::programs;

/// The suffix in the name of a system that is measured between two processes. Without the suffix, the name is that of
/// the same system at another place.
pub(super) const PAIR: &str = "-pair";

/// A system and its guarantee.
pub(crate) struct System {
    /// The name on the command line. Without [`PAIR`] it is also the name of the system's folder in `compare`, if there
    /// is one.
    pub name: &'static str,
    /// The guarantee that holds when the system has completed a message.
    pub guarantee: &'static str,
    /// The event at which a latency ends.
    pub until: &'static str,
    /// The way in which the system's processes wait.
    pub wait: &'static str,
    /// Number of messages that a sender has outstanding in a stream, chosen for the system's best rate. With 1 there is
    /// no stream.
    pub outstanding: u64,
    /// The settings of the system. If several have the same place, the best one counts.
    pub settings: &'static [Setting],
    /// The programs, headers and libraries that the system needs.
    pub needs: &'static Needs,
    pub(super) program: Program,
    pub(super) measure: Measure,
    pub(super) version: Version,
}

/// A function that runs a system in a setting. Returns the figures of all shapes.
pub(super) type Measure = fn(&Programs, &System, &Setting, &[Shape]) -> Result<Vec<Figures>>;

/// The program that has to be built for a system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    /// The command `stentor`.
    Stentor,
    /// A program of the workspace `compare`.
    Other(&'static str),
    /// A program of this name and folder in `compare` that is not a member of the workspace, because it builds sources
    /// that need CMake.
    Apart(&'static str),
    /// No program, because the system's packages contain the measuring program.
    Packaged,
}

/// The source of a system's version.
pub(super) enum Version {
    /// The output of the system's program.
    Own,
    /// The output of this command.
    Says(&'static str, &'static [&'static str]),
    /// The version of this dependency in a lock file.
    Locked(&'static str, &'static str),
}

/// A way of running a system.
pub(crate) struct Setting {
    /// The place. Only figures of the same place are compared.
    pub place: &'static str,
    /// The difference from other settings of the same place.
    pub how: &'static str,
    /// MTU of the links between hosts, or 0 if there are none.
    pub(super) mtu: u32,
}

impl Setting {
    /// Returns whether two processes exchange messages in round trips.
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

/// The figures of a system for a shape in one run. `None` means that the system does not report the figure.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub(crate) struct Figures {
    pub bytes: u32,
    pub outstanding: u64,
    pub msgs_per_s: Option<f64>,
    pub p50_us: Option<f64>,
    pub p99_us: Option<f64>,
    /// The figure of the same processes without the system in the same run: the median latency one at a time in µs, or
    /// the rate of a stream in messages per second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<f64>,
    /// The cost of a message relative to the bound's: 1 is at the bound, larger is worse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
}

impl Figures {
    /// Adds a bound to the figures.
    pub(super) fn beside(self, bound: f64) -> Self {
        let ratio = match self.outstanding {
            1 => self.p50_us.map(|p50| p50 / bound),
            _ => self.msgs_per_s.map(|rate| bound / rate),
        };
        Figures { bound: Some(bound), ratio: ratio.filter(|ratio| ratio.is_finite()), ..self }
    }
}

/// The paths of the programs that are run.
pub(crate) struct Programs {
    root: PathBuf,
    stentor: Option<PathBuf>,
    /// The folder of the programs for other systems.
    others: PathBuf,
}

impl Programs {
    /// Returns the paths before any program is built.
    pub(crate) fn new(context: &Context) -> Self {
        Programs { root: context.root.clone(), stentor: None, others: context.root.join("target/compare") }
    }

    /// Returns the program of a system.
    pub(super) fn of(&self, system: &System) -> Result<PathBuf> {
        Ok(match system.program {
            Program::Stentor => self.stentor.clone().context("the command `stentor` was not built")?,
            Program::Other(name) => self.others.join("release").join(name),
            Program::Apart(name) => self.apart(name).join("release").join(name),
            Program::Packaged => PathBuf::from("none"),
        })
    }

    /// Returns the script that runs a system. Two systems that share a folder share its script.
    pub(super) fn script(&self, system: &System) -> PathBuf {
        self.root.join("compare").join(system.folder()).join("nodes.sh")
    }

    /// Returns the folder in which a [`Program::Apart`] is built.
    fn apart(&self, name: &str) -> PathBuf {
        self.others.with_file_name(name)
    }

    /// Returns the version of a dependency in a lock file.
    fn locked(&self, file: &str, name: &str) -> Result<String> {
        let path = self.root.join(file);
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        version_in(&text, name).with_context(|| format!("{} has no {name}", path.display()))
    }
}

/// Returns the version of a package in a lock file.
fn version_in(lock: &str, name: &str) -> Option<String> {
    let line = format!("name = \"{name}\"");
    let mut lines = lock.lines().skip_while(|found| *found != line);
    lines.nth(1)?.strip_prefix("version = \"")?.strip_suffix('"').map(|version| format!("{name} {version}"))
}

impl System {
    /// Installs the required packages, and builds the program.
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

    /// Returns the system's folder in `compare`.
    fn folder(&self) -> &'static str {
        self.name.strip_suffix(PAIR).unwrap_or(self.name)
    }

    /// Returns whether the system is Stentor's.
    pub(super) fn is_ours(&self) -> bool {
        self.program == Program::Stentor
    }

    /// Returns the version in one line.
    pub(crate) fn version(&self, programs: &Programs) -> Result<String> {
        let version = match self.version {
            Version::Own => said(Command::new(programs.of(self)?).arg("--version")),
            Version::Says(program, arguments) => said(Command::new(program).args(arguments)),
            Version::Locked(file, name) => programs.locked(file, name),
        };
        version.with_context(|| format!("cannot find the version of {}", self.name))
    }

    /// Runs the system in a setting. Returns the figures of all shapes.
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

/// The oldest version of CMake that builds Aeron's sources.
const CMAKE: (u32, u32) = (3, 30);
/// The commands that install version [`CMAKE`] or a later one if the packaged version is older.
const CMAKE_REMEDY: &str =
    "python3 -m venv /opt/cmake && /opt/cmake/bin/pip install 'cmake>=3.30,<4', then put /opt/cmake/bin first in PATH";

fn ensure_cmake() -> Result<()> {
    let said = said(Command::new("cmake").arg("--version"))?;
    let (major, minor) = CMAKE;
    ensure!(
        cmake_in(&said) >= Some(CMAKE),
        "Aeron needs CMake {major}.{minor} or newer, but this is {said:?}: {CMAKE_REMEDY}"
    );
    Ok(())
}

/// Parses the version in the first line of `cmake --version`.
fn cmake_in(said: &str) -> Option<(u32, u32)> {
    let mut numbers = said.strip_prefix("cmake version ")?.split('.').map(str::parse);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

fn said(command: &mut Command) -> Result<String> {
    let (good, text) = capture(command)?;
    ensure!(good, "the command failed");
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
    fn ratio_compares_costs_and_larger_is_worse() {
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
    fn older_cmake_is_recognised() {
        assert!(cmake_in("cmake version 3.25.1") < Some(CMAKE));
        assert!(cmake_in("cmake version 3.31.10") >= Some(CMAKE) && cmake_in("cmake version 4.0") >= Some(CMAKE));
        assert_eq!(cmake_in("no such program"), None);
    }
}
