//! The environment of a bench, and circumstances that make its figures misleading.

mod machine;
mod meter;
mod warning;

use serde::Serialize;
use stentor_support::args::Networks;

use super::clock::Grain;
use super::worker_spec::processors;
use machine::Machine;
use meter::Meter;
pub(super) use warning::Warning;

/// The machine and how it was used.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Environment {
    pub(super) version: &'static str,
    /// `release` or `debug`. Only release figures are meaningful.
    pub(super) profile: &'static str,
    pub(super) cpu: String,
    /// Number of processors that this process may use.
    pub(super) cores: usize,
    pub(super) kernel: String,
    pub(super) fabric: String,
    /// The provider that carried the messages, if it is chosen at start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) carrier: Option<String>,
    /// Wait mode of idle processes.
    pub(super) wait: String,
    /// Placement of the processes.
    pub(super) pinning: String,
    /// Load average when the bench began.
    pub(super) load: f64,
    /// Modes of transparent huge pages, if the kernel has them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) huge_pages: Option<String>,
    /// Captures and faults of the network, which take time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) network: Option<String>,
    /// The clock, whose cost is subtracted from the latencies of `bench fabric` and from the round trips of `bench
    /// channel`.
    pub(super) clock: Grain,
    /// Circumstances that make the figures misleading.
    pub(super) warnings: Vec<Warning>,
    #[serde(skip)]
    meter: Meter,
}

impl Environment {
    /// Describes the machine, and begins to measure the use of its processors.
    pub(super) fn new(fabric: impl Into<String>, wait: impl Into<String>, pinning: String) -> Self {
        let machine = Machine::new();
        let used = processors().unwrap_or_default();
        let load = machine.read("proc/loadavg");
        let load = load.and_then(|load| load.split(' ').next()?.parse().ok()).unwrap_or(0.0);
        let profile = if cfg!(debug_assertions) { "debug" } else { "release" };
        let mut warnings = machine.warnings(&used);
        if profile != "release" {
            let what = "this is not a release build: its figures are meaningless";
            warnings.insert(0, Warning::new(what, "build with `cargo build --release`"));
        }
        Environment {
            version: env!("CARGO_PKG_VERSION"),
            profile,
            cpu: machine.cpu().unwrap_or_else(|| "unknown".to_owned()),
            cores: used.len().max(1),
            kernel: machine.read("proc/sys/kernel/osrelease").unwrap_or_default(),
            fabric: fabric.into(),
            carrier: None,
            wait: wait.into(),
            pinning,
            load,
            huge_pages: machine.huge_pages(),
            network: None,
            clock: Grain::measure(),
            warnings,
            meter: Meter::start(&machine, &used),
        }
    }

    /// Adds captures and the faults of the network.
    pub(super) fn with(self, networks: &Networks) -> Self {
        let bad = &networks.bad;

        let captured = networks.pcap.iter().map(|_| "captured".to_owned());
        let chances = bad.named().into_iter().filter(|(.., chance)| *chance > 0.0);
        let chances = chances.map(|(_, what, chance)| format!("{what} with chance {chance}"));
        let delay = (bad.delay > 0).then(|| format!("{} us late", bad.delay));
        let all: Vec<_> = captured.chain(chances).chain(delay).collect();
        Environment { network: (!all.is_empty()).then(|| format!("packets are {}", all.join(", "))), ..self }
    }

    /// Adds a warning if more processes poll at once than there are processors.
    pub(super) fn with_processes(mut self, processes: usize) -> Self {
        if self.wait == "poll" && processes > self.cores {
            let what = format!(
                "{processes} processes poll on {} processors: each waits for the others' time slices",
                self.cores
            );
            self.warnings.push(Warning::new(what, "use `--wait adaptive`, or as many processors as processes"));
        }
        self
    }

    /// Adds the warnings about the processors since [`new`](Self::new). The processes of the bench must have ended.
    pub(super) fn conclude(&mut self) {
        self.warnings.extend(self.meter.warnings(&Machine::new()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_processes_than_processors_must_not_poll() {
        let crowded = |wait: &str, processes: usize| {
            let mut environment = Environment::new("shm", wait, "not pinned".to_owned());
            environment.cores = 2;
            let warnings = environment.with_processes(processes).warnings;
            warnings.iter().any(|warning| warning.what.starts_with(&format!("{processes} processes poll on 2")))
        };
        assert_eq!([crowded("poll", 7), crowded("poll", 2), crowded("adaptive", 7)], [true, false, false]);
    }
}
