//! The parts of the switch bench's report other than its rows: counts, and limits that must hold.

use std::fmt::Write;

use serde::Serialize;
use stentor_support::{Style, table};

/// The counts and limits of the switch bench.
#[derive(Clone, Debug, Serialize)]
pub(super) struct SwitchReport {
    /// Cost of a message for its sender.
    pub(super) sender: Vec<Sender>,
    /// Two ways to aggregate acknowledgements.
    pub(super) aggregation: Vec<Aggregated>,
    /// Limits that the results must satisfy.
    pub(super) bars: Vec<Bar>,
}

/// Packets and bytes that a sender transmits and receives for a message, including IP headers.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Sender {
    pub(super) receivers: u8,
    /// `switch` or `unicast`.
    pub(super) way: &'static str,
    pub(super) packets: f64,
    pub(super) bytes: f64,
    pub(super) answers: f64,
    pub(super) answer_bytes: f64,
}

/// Aggregation of the acknowledgements of 16 packets without loss. The unit of time is the time of a packet.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Aggregated {
    pub(super) receivers: u8,
    /// Upper bound of the random delay of each acknowledgement, in packet times.
    pub(super) jitter: f64,
    pub(super) runs: u32,
    /// Share of the runs in which the sender must time out.
    pub(super) round_stalls: f64,
    pub(super) exact_stalls: f64,
    /// Mean time until all packets are acknowledged.
    pub(super) round_packet_times: f64,
    pub(super) exact_packet_times: f64,
}

impl SwitchReport {
    pub(super) fn human(&self, style: Style) -> String {
        let mut text = String::new();
        let head = ["receivers", "by", "packets", "bytes", "answers", "answer bytes"];
        let cells = |line: &Sender| {
            let mut cells = vec![line.receivers.to_string(), line.way.to_owned()];
            let figures = [line.packets, line.bytes, line.answers, line.answer_bytes];
            cells.extend(figures.map(|figure| format!("{figure:.2}")));
            cells
        };
        let section = |text: &mut String, title: &str, table: String| {
            if !table.is_empty() {
                let _ = write!(text, "\n{title}{table}");
            }
        };
        section(&mut text, "what a message costs its sender\n", table(&head, self.sender.iter().map(cells)));
        let head = ["receivers", "jitter", "runs", "stalls: rounds", "exact", "packet times: rounds", "exact"];
        let cells = |line: &Aggregated| {
            let stalls = [line.round_stalls, line.exact_stalls].map(|part| format!("{:.1} %", 100.0 * part));
            let times = [line.round_packet_times, line.exact_packet_times].map(|time| format!("{time:.1}"));
            let cells = vec![line.receivers.to_string(), line.jitter.to_string(), line.runs.to_string()];
            [cells.as_slice(), &stalls, &times].concat()
        };
        let what = "acknowledgements of 16 packets in rounds with a bitmap, and by the exact least; nothing is lost\n";
        section(&mut text, what, table(&head, self.aggregation.iter().map(cells)));
        let head = ["", "bar", "must be", "is"];
        let cells = |bar: &Bar| {
            let verdict = if bar.ok { style.good("ok") } else { style.bad("missed") };
            let must = format!("{} {}", if bar.at_least { "at least" } else { "at most" }, bar.limit);
            vec![verdict, bar.name.to_owned(), must, format!("{:.3}", bar.value)]
        };
        section(&mut text, "", table(&head, self.bars.iter().map(cells)));
        text
    }
}

/// A figure of this run and its limit.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Bar {
    pub(super) name: &'static str,
    pub(super) value: f64,
    /// `true` if the limit is a lower bound, `false` if it is an upper bound.
    pub(super) at_least: bool,
    pub(super) limit: f64,
    pub(super) ok: bool,
}

impl Bar {
    pub(super) fn at_most(name: &'static str, value: f64, limit: f64) -> Bar {
        Bar { name, value, at_least: false, limit, ok: value <= limit }
    }

    pub(super) fn at_least(name: &'static str, value: f64, limit: f64) -> Bar {
        Bar { name, value, at_least: true, limit, ok: value >= limit }
    }
}
