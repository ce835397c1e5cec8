//! The report of a bench: the columns of perftest, with the bound of each figure beside it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::PathBuf;

use serde::Serialize;
use stentor_support::{Human, Style, Verdicts, in_order, table};

use super::computed::Computed;
use super::environment::Environment;
use super::samples::{Percentile, Samples, median};
use super::switch_report::SwitchReport;

/// The best that the machine can do, measured in the same run, or a target for a figure in virtual time.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Bound {
    pub(super) what: String,
    pub(super) value: f64,
    pub(super) unit: &'static str,
}

impl Bound {
    /// Returns a bound on a latency, in microseconds.
    pub(super) fn us(what: impl Into<String>, value: f64) -> Self {
        Bound { what: what.into(), value, unit: MICROSECONDS }
    }

    /// Returns a bound on a rate of messages.
    pub(super) fn rate(what: impl Into<String>, value: f64) -> Self {
        Bound { what: what.into(), value, unit: MESSAGES_PER_SECOND }
    }
}

/// Units of figures.
pub(super) const MICROSECONDS: &str = "us";
pub(super) const MESSAGES_PER_SECOND: &str = "msgs/s";

/// One row of a report.
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
    /// Median of the rounds' means, for rows beside a program that reports only a mean.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) round_avg_us: Option<f64>,
    /// Median of the bound's means of the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bound_round_avg_us: Option<f64>,
    /// Difference to the mean of `fi_pingpong` in the same round, in microseconds: the median over the rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) above_pingpong_us: Option<f64>,
    pub(super) stdev_us: Option<f64>,
    pub(super) p99_us: Option<f64>,
    pub(super) p999_us: Option<f64>,
    pub(super) msgs_per_s: Option<f64>,
    /// Rate in 10^6 bytes of payload per second.
    pub(super) mb_per_s: Option<f64>,
    /// Figure of each round: messages per second if the main figure of the row is a rate, otherwise the median latency.
    /// Empty if the row has no rounds.
    pub(super) of_rounds: Vec<f64>,
    /// Unit of `of_rounds`, or `None` if the row has no rounds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) of_rounds_unit: Option<&'static str>,
    /// Distribution of the latencies of all rounds.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) distribution: Vec<Percentile>,
    /// Fixed rate in messages per second. Latencies then count from the due times.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) due_per_s: Option<f64>,
    /// The bound, or `None` if this program measures none for the row.
    pub(super) bound: Option<Bound>,
    /// Ratio to the bound: 1.0 is at the bound, larger is worse.
    pub(super) ratio: Option<f64>,
    /// Remote writes per message by step, for the multicast.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) writes: Option<Writes>,
    /// Description of the computation, for rows whose figures are computed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) computed: Option<Computed>,
}

/// Remote writes of the multicast.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Writes {
    /// Writes of steps 1 to 4, per message.
    pub(super) per_message: f64,
    /// Number of writes of a lone message, by the protocol's formula.
    pub(super) formula: f64,
    /// Writes per message, by step.
    pub(super) by_step: BTreeMap<&'static str, f64>,
}

impl Row {
    /// Returns a row without figures, beside a bound.
    pub(super) fn new(name: impl Into<String>, bytes: usize, rounds: u32, bound: Bound, ratio: f64) -> Self {
        Row { bound: Some(bound), ratio: Some(ratio), ..Row::alone(name, bytes, rounds) }
    }

    /// Returns a row without figures and without a bound.
    pub(super) fn alone(name: impl Into<String>, bytes: usize, rounds: u32) -> Self {
        Row { name: name.into(), bytes, rounds, ..Row::default() }
    }

    /// Returns a row with a latency beside a bound.
    pub(super) fn latency(name: impl Into<String>, bytes: usize, rounds: u32, bound: Bound, found: &Samples) -> Self {
        let ratio = found.summary().typical / bound.value;
        Row::new(name, bytes, rounds, bound, ratio).with_samples(found)
    }

    /// Returns a row with a rate beside a bound. `rates` are those of the rounds.
    pub(super) fn rate(name: impl Into<String>, bytes: usize, bound: Bound, rates: &[f64]) -> Self {
        let ratio = bound.value / median(rates.iter().copied());
        Row::new(name, bytes, rates.len() as u32, bound, ratio).with_rates(rates)
    }

    /// Returns a row with a rate beside the rate of a bound in the same rounds.
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

    /// Adds the latencies of all rounds.
    pub(super) fn with_samples(self, samples: &Samples) -> Self {
        let summary = samples.summary();
        let (of_rounds, of_rounds_unit) = if self.is_rate() {
            (self.of_rounds, self.of_rounds_unit)
        } else {
            (samples.medians_us(), Some(MICROSECONDS))
        };
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
            of_rounds_unit,
            distribution: samples.distribution(),
            ..self
        }
    }

    /// Adds the rates of the rounds, in messages per second.
    pub(super) fn with_rates(self, rates: &[f64]) -> Self {
        let of_rounds_unit = Some(MESSAGES_PER_SECOND);
        Row { of_rounds: rates.to_vec(), of_rounds_unit, ..self.with_rate(median(rates.iter().copied())) }
    }

    /// Adds the fixed rate, and the median of the rates at which messages were delivered in the rounds.
    pub(super) fn with_due(self, due_per_s: f64, rates: &[f64]) -> Self {
        Row { due_per_s: Some(due_per_s), ..self.with_rate(median(rates.iter().copied())) }
    }

    /// Returns whether the main figure of the row is a rate; otherwise it is a latency. The unit of the bound decides.
    /// Without a bound, the row must have a rate, but neither latencies nor a fixed rate.
    fn is_rate(&self) -> bool {
        let bare = self.msgs_per_s.is_some() && self.p50_us.is_none() && self.due_per_s.is_none();
        self.bound.as_ref().map_or(bare, |bound| bound.unit == MESSAGES_PER_SECOND)
    }

    /// Adds a rate of messages.
    pub(super) fn with_rate(self, msgs_per_s: f64) -> Self {
        let mb_per_s = Some(msgs_per_s * self.bytes as f64 / 1e6);
        Row { msgs_per_s: Some(msgs_per_s), mb_per_s, ..self }
    }
}

/// The result of a bench.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Report {
    pub(super) environment: Environment,
    pub(super) rows: Vec<Row>,
    /// Result of a bench that kills processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) trial: Option<Trial>,
    /// Result of the bench of the switch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) switch: Option<SwitchReport>,
}

/// Real processes that were killed and restarted, and the verdict on their histories.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Trial {
    /// `true` if every property that this run can check was checked and holds.
    pub(super) ok: bool,
    pub(super) seed: u64,
    /// Number of kills by role.
    pub(super) kills: BTreeMap<&'static str, u64>,
    /// Verdicts by property: `ok`, `violated` or `not_checked`.
    pub(super) properties: Verdicts,
    pub(super) counter_example: Option<String>,
    pub(super) messages: u64,
    pub(super) deliveries: u64,
    /// Times from the kill of a leader to the first delivery, in a later ballot, of a message that was sent after the
    /// kill.
    pub(super) outage_ms: Vec<f64>,
    /// Times from each member's restart until it had caught up with the others.
    pub(super) rejoin_ms: Vec<f64>,
    /// Number of kills of leaders without an outage, usually because another process had taken over before.
    pub(super) unobserved: u64,
    /// Directory of the histories, if they were kept.
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
            let _ = writeln!(
                text,
                "from the restart until a member had caught up: median {median:.1} ms, at most {most:.1} ms"
            );
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

/// Share of a fixed rate that must be delivered for the rate to count as kept.
const BEHIND: f64 = 0.99;
const RATIO: &str = "ratio: 1.00 is at the bound, larger is worse; bound and row took turns in the same run";
const NO_BOUND: &str =
    "no bound: set these figures beside those of ib_write_lat, ib_send_lat, ib_write_bw and ib_send_bw";

fn number(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
}

impl Report {
    /// Returns a report that consists of rows only.
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

    /// Describes how far the fixed rates were kept.
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
