//! Where the figures come from.

use std::fs;

use serde::Serialize;
use stentor_support::args::Networks;

use super::clock::Grain;

/// The machine and how it was used.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Environment {
    pub(super) version: &'static str,
    /// `release` or `debug`; only release figures mean anything.
    pub(super) profile: &'static str,
    pub(super) cpu: String,
    /// Processors that this process may use.
    pub(super) cores: usize,
    pub(super) kernel: String,
    pub(super) fabric: String,
    /// What really carried it, where that is chosen at start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) carrier: Option<String>,
    /// What an idle process does.
    pub(super) wait: String,
    /// Where the processes stay.
    pub(super) pinning: String,
    /// Processes that were running or waiting to on average, when the bench began.
    pub(super) load: f64,
    /// What was done to packets besides measuring them: captures take time, and so does a bad network.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) network: Option<String>,
    /// What reading the clock costs is subtracted from the latencies of `bench fabric`.
    pub(super) clock: Grain,
}

impl Environment {
    pub(super) fn new(fabric: impl Into<String>, wait: impl Into<String>, pinning: String) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let cpu =
            cpuinfo.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name));
        let load = read("/proc/loadavg").split(' ').next().and_then(|load| load.parse().ok()).unwrap_or(0.0);
        Environment {
            version: env!("CARGO_PKG_VERSION"),
            profile: if cfg!(debug_assertions) { "debug" } else { "release" },
            cpu: cpu.unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            fabric: fabric.into(),
            carrier: None,
            wait: wait.into(),
            pinning,
            load,
            network: None,
            clock: Grain::measure(),
        }
    }

    /// With captures or a bad network.
    pub(super) fn with(self, networks: &Networks) -> Self {
        let bad = &networks.bad;

        let captured = networks.pcap.iter().map(|_| "captured".to_owned());
        let chances = bad.named().into_iter().filter(|(.., chance)| *chance > 0.0);
        let chances = chances.map(|(_, what, chance)| format!("{what} with chance {chance}"));
        let delay = (bad.delay > 0).then(|| format!("{} us late", bad.delay));
        let all: Vec<_> = captured.chain(chances).chain(delay).collect();
        Environment { network: (!all.is_empty()).then(|| format!("packets are {}", all.join(", "))), ..self }
    }
}
