//! The report of a bench: the columns of perftest, and the bound of each figure beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;
use stentor_support::{Human, Style, Verdicts, in_order, table};

use super::computed::Computed;
use super::environment::Environment;
use super::samples::{Percentile, Samples, median};
use super::switch_report::SwitchReport;

/// What the machine can do at best, measured in the same run.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Bound {
    pub(super) what: String,
    pub(super) value: f64,
    pub(super) unit: &'static str,
}

impl Bound {
    /// On a latency, microseconds.
    pub(super) fn us(what: impl Into<String>, value: f64) -> Self {
        Bound { what: what.into(), value, unit: "us" }
    }

    /// On a rate of messages.
    pub(super) fn rate(what: impl Into<String>, value: f64) -> Self {
        Bound { what: what.into(), value, unit: "msgs/s" }
    }
}

/// One row.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) bytes: usize,
    pub(super) iterations: u64,
    pub(super) rounds: u32,
    pub(super) min_us: Option<f64>,
    pub(super) max_us: Option<f64>,
    pub(super) p50_us: Option<f64>,
    pub(super) avg_us: Option<f64>,
    /// Median of the rounds' means, where rows are set beside a program that tells of a mean only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round_avg_us: Option<f64>,
    /// The bound's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bound_round_avg_us: Option<f64>,
    /// So much more than the mean of `fi_pingpong` in the same round, the median of the rounds, microseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) above_pingpong_us: Option<f64>,
    pub(super) stdev_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    pub(super) p999_us: Option<f64>,
    pub(super) msgs_per_s: Option<f64>,
    /// 10^6 bytes of payload.
    pub(super) mb_per_s: Option<f64>,
    /// Of each round: the median latency where the row is about a latency, else messages a second. None where there are no
    /// rounds.
    pub(super) of_rounds: Vec<f64>,
    /// How the latencies of all rounds are distributed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) distribution: Vec<Percentile>,
    /// Messages a second that were due, at a fixed rate: latencies count from when a message was due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) due_per_s: Option<f64>,
    /// None where nothing that this program measures is one.
    pub(super) bound: Option<Bound>,
    /// 1.0 is at the bound, larger is worse.
    pub(super) ratio: Option<f64>,
    /// Remote writes per message by step; for the multicast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) writes: Option<Writes>,
    /// Of a row whose figures are computed: how.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) computed: Option<Computed>,
}

/// Remote writes of the multicast.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Writes {
    /// Steps 1 to 4, per message.
    pub(super) per_message: f64,
    /// What the protocol's formula says for a message alone.
    pub(super) formula: f64,
    /// Per message.
    pub(super) by_step: BTreeMap<&'static str, f64>,
}

impl Row {
    /// A row without figures, beside a bound.
    pub(super) fn new(name: impl Into<String>, bytes: usize, rounds: u32, bound: Bound, ratio: f64) -> Self {
        Row { bound: Some(bound), ratio: Some(ratio), ..Row::alone(name, bytes, rounds) }
    }

    /// A row without figures and without a bound.
    pub(super) fn alone(name: impl Into<String>, bytes: usize, rounds: u32) -> Self {
        Row { name: name.into(), bytes, rounds, ..Row::default() }
    }

    /// A row about a latency beside a bound.
    pub(super) fn latency(name: impl Into<String>, bytes: usize, rounds: u32, bound: Bound, found: &Samples) -> Self {
        let ratio = found.summary().typical / bound.value;
        Row::new(name, bytes, rounds, bound, ratio).with_samples(found)
    }

    /// A row about a rate beside a bound; `rates` are those of the rounds.
    pub(super) fn rate(name: impl Into<String>, bytes: usize, bound: Bound, rates: &[f64]) -> Self {
        let ratio = bound.value / median(rates.iter().copied());
        Row::new(name, bytes, rates.len() as u32, bound, ratio).with_rates(rates)
    }

    /// A row about a rate beside the rate of a bound in the same rounds.
    pub(super) fn rate_beside(
        name: impl Into<String>,
        bytes: usize,
        what: impl Into<String>,
        (bounds, rates): (&[f64], &[f64]),
    ) -> Self {
        let ratio = median(bounds.iter().zip(rates).map(|(bound, rate)| bound / rate));
        let bound = Bound::rate(what, median(bounds.iter().copied()));
        Row::new(name, bytes, rates.len() as u32, bound, ratio).with_rates(rates)
    }

    /// With the latencies of all rounds.
    pub(super) fn with_samples(self, samples: &Samples) -> Self {
        let summary = samples.summary();
        let of_rounds = if self.is_rate() { self.of_rounds } else { samples.medians_us() };
        Row {
            iterations: summary.iterations,
            min_us: Some(summary.min),
            max_us: Some(summary.max),
            p50_us: Some(summary.typical),
            avg_us: Some(summary.avg),
            stdev_us: Some(summary.stdev),
            p99_us: Some(summary.p99),
            p999_us: Some(summary.p999),
            of_rounds,
            distribution: samples.distribution(),
            ..self
        }
    }

    /// With the rates of the rounds, messages a second.
    pub(super) fn with_rates(self, rates: &[f64]) -> Self {
        Row { of_rounds: rates.to_vec(), ..self.with_rate(median(rates.iter().copied())) }
    }

    /// With the messages a second that were due, and those of the rounds that were delivered.
    pub(super) fn with_due(self, due_per_s: f64, rates: &[f64]) -> Self {
        Row { due_per_s: Some(due_per_s), ..self.with_rate(median(rates.iter().copied())) }
    }

    /// Whether it is about messages a second, and so is its bound.
    fn is_rate(&self) -> bool {
        let bare = self.msgs_per_s.is_some() && self.p50_us.is_none() && self.due_per_s.is_none();
        self.bound.as_ref().map_or(bare, |bound| bound.unit == "msgs/s")
    }

    /// With a rate of messages.
    pub(super) fn with_rate(self, msgs_per_s: f64) -> Self {
        let mb_per_s = Some(msgs_per_s * self.bytes as f64 / 1e6);
        Row { msgs_per_s: Some(msgs_per_s), mb_per_s, ..self }
    }
}

/// A bench's result.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) environment: Environment,
    pub(super) rows: Vec<Row>,
    /// Of a bench that kills.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trial: Option<Trial>,
    /// Of the bench of the switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) switch: Option<SwitchReport>,
}

/// Real processes that were killed and started again, and what their histories say.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Trial {
    /// No property is violated.
    pub(super) ok: bool,
    pub(super) seed: u64,
    /// By what was killed.
    pub(super) kills: BTreeMap<&'static str, u64>,
    /// By name: `ok`, `violated` or `not_checked`.
    pub(super) properties: Verdicts,
    pub(super) counter_example: Option<String>,
    pub(super) messages: u64,
    pub(super) deliveries: u64,
    /// From each leader's death to the first delivery of what was sent after it.
    pub(super) outage_ms: Vec<f64>,
    /// Of each member: from its new start until it had what the others have.
    pub(super) rejoin_ms: Vec<f64>,
    /// Leaders' deaths without an outage to be told: others had taken over before.
    pub(super) unobserved: u64,
    /// Where the histories are, if they were kept.
    pub(super) history: Option<PathBuf>,
}

impl Trial {
    fn human(&self, style: Style) -> String {
        let Trial { seed, messages, deliveries, .. } = self;
        let kills: Vec<_> = self.kills.iter().map(|(what, n)| format!("{n} x {what}")).collect();
        let mut text = format!(
            "\nkilled and started again, seed {seed}: {}; {messages} messages, {deliveries} deliveries\n",
            kills.join(", ")
        );
        let bad: Vec<_> = self.properties.iter().filter(|(_, verdict)| **verdict != "ok").collect();
        let all: Vec<_> = in_order(&self.properties).filter(|(_, verdict)| *verdict == "ok").map(|(p, _)| p).collect();
        let _ = writeln!(text, "{}: {}", style.good("ok"), all.join(" "));
        for (property, verdict) in bad {
            let _ = writeln!(text, "{property}: {}", style.bad(verdict));
        }
        if let Some(example) = &self.counter_example {
            let _ = writeln!(text, "{}: {example}", style.bad("counter-example"));
        }
        if !self.rejoin_ms.is_empty() {
            let most = self.rejoin_ms.iter().copied().fold(0.0, f64::max);
            let median = median(self.rejoin_ms.iter().copied());
            let _ = writeln!(text, "back with all that the others have: median {median:.1} ms, at most {most:.1} ms");
        }
        if self.unobserved > 0 {
            let _ = writeln!(text, "{} of the leaders had been replaced when they were killed", self.unobserved);
        }
        if let Some(history) = &self.history {
            let _ = writeln!(text, "history: {}", history.display());
        }
        text
    }
}

/// A rate is kept if so much of it is delivered.
const BEHIND: f64 = 0.99;
const RATIO: &str = "ratio: 1.00 is at the bound, larger is worse; bound and row took turns in the same run";
const NO_BOUND: &str =
    "no bound: set these figures beside those of ib_write_lat, ib_send_lat, ib_write_bw and ib_send_bw";

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

impl Report {
    /// Rows and nothing else.
    pub(super) fn of(environment: Environment, rows: Vec<Row>) -> Self {
        Report { environment, rows, trial: None, switch: None }
    }

    fn latencies(&self) -> String {
        let head = [
            "row",
            "#bytes",
            "#iterations",
            "t_min[usec]",
            "t_max[usec]",
            "t_typical[usec]",
            "t_avg[usec]",
            "t_stdev[usec]",
            "99% percentile[usec]",
            "99.9% percentile[usec]",
            "bound[usec]",
            "ratio",
        ];
        let cells = |row: &Row| {
            let times = [row.min_us, row.max_us, row.p50_us, row.avg_us, row.stdev_us, row.p99_us, row.p999_us];
            let mut cells = vec![row.name.clone(), row.bytes.to_string(), row.iterations.to_string()];
            cells.extend(times.map(|time| number(time, 3)));
            let bound = row.bound.as_ref().filter(|_| !row.is_rate());
            cells.push(number(bound.map(|bound| bound.value), 3));
            cells.push(number(bound.and(row.ratio), 2));
            cells
        };
        table(&head, self.rows.iter().filter(|row| row.p50_us.is_some()).map(cells))
    }

    fn rates(&self) -> String {
        let head = ["row", "#bytes", "#iterations", "msgs/s", "MB/s", "bound[msgs/s]", "ratio"];
        let cells = |row: &Row| {
            let mut cells = vec![row.name.clone(), row.bytes.to_string(), row.iterations.to_string()];
            cells.extend([number(row.msgs_per_s, 0), number(row.mb_per_s, 1)]);
            cells.extend([number(row.bound.as_ref().map(|bound| bound.value), 0), number(row.ratio, 2)]);
            cells
        };
        table(&head, self.rows.iter().filter(|row| row.is_rate()).map(cells))
    }

    /// What came of the rates that were asked for.
    fn fixed_rates(&self) -> String {
        let mut text = String::new();
        for (row, due) in self.rows.iter().filter_map(|row| Some((row, row.due_per_s?))) {
            let delivered = row.msgs_per_s.unwrap_or(0.0);
            let late = if delivered < BEHIND * due {
                ": the rate was not kept, and all latencies have the delay in them"
            } else {
                ""
            };
            let _ = writeln!(text, "{}: {due:.0} messages/s were due, {delivered:.0} were delivered{late}", row.name);
        }
        text
    }

    fn writes(&self) -> String {
        let mut text = String::new();
        for (row, writes) in self.rows.iter().filter_map(|row| Some((row, row.writes.as_ref()?))) {
            let steps: Vec<_> = writes.by_step.iter().map(|(step, writes)| format!("{step} {writes:.2}")).collect();
            let Writes { per_message, formula, .. } = writes;
            let _ = writeln!(
                text,
                "{}: {per_message:.2} remote writes per message, the formula for one alone says {formula:.0} ({})",
                row.name,
                steps.join(", ")
            );
        }
        text
    }
}

impl Human for Report {
    fn human(&self, style: Style) -> String {
        let env = &self.environment;
        let mut text = String::new();
        let carrier = env.carrier.as_ref().map_or(String::new(), |carrier| format!(" ({carrier})"));
        let _ = writeln!(text, "stentor {} ({}), fabric {}{carrier}", env.version, env.profile, env.fabric);
        let _ = writeln!(text, "{}, {} cores, Linux {}, load {:.2}", env.cpu, env.cores, env.kernel, env.load);
        let _ = writeln!(text, "wait mode {}; {}", env.wait, env.pinning);
        if let Some(network) = &env.network {
            let _ = writeln!(text, "{network}, which is in the figures but not in the bounds");
        }
        if let Some(huge_pages) = &env.huge_pages {
            let _ = writeln!(text, "transparent huge pages {huge_pages}");
        }
        for warning in &env.warnings {
            let _ = writeln!(text, "{}: {warning}", style.bad("warning"));
        }
        for table in [self.latencies(), self.rates()].iter().filter(|table| !table.is_empty()) {
            let _ = write!(text, "\n{table}");
        }
        let has_bound = self.rows.iter().any(|row| row.bound.is_some());
        let _ = writeln!(text, "\n{}", if has_bound { RATIO } else { NO_BOUND });
        let bounds = self.rows.iter().filter_map(|row| Some((&row.name, row.bound.as_ref()?)));
        let bounds = bounds.map(|(row, bound)| format!("bound of {row}: {}", bound.what));
        let mut told = BTreeSet::new();
        for bound in bounds.filter(|bound| told.insert(bound.clone())) {
            let _ = writeln!(text, "{bound}");
        }
        text.push_str(&self.fixed_rates());
        text.push_str(&self.writes());
        let computed = self.rows.iter().filter_map(|row| Some((row, row.computed.as_ref()?)));
        text.extend(computed.map(|(row, computed)| computed.human(&row.name, row.p50_us.unwrap_or(0.0))));
        text.push_str(&self.switch.as_ref().map(|switch| switch.human(style)).unwrap_or_default());
        text.push_str(&self.trial.as_ref().map(|trial| trial.human(style)).unwrap_or_default());
        text
    }
}
