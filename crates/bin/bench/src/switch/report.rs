//! What the bench of the switch tells besides rows: counts, and bars that must hold.

use std::fmt::Write;

use serde::Serialize;
use stentor_support::{Style, columns};

use crate::report::table;

/// What is counted of the switch.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct SwitchReport {
    /// What a message costs its sender.
    pub(crate) sender: Vec<Sender>,
    /// How acknowledgements become one: two ways.
    pub(crate) aggregation: Vec<Aggregated>,
    /// What must hold of what was measured.
    pub(crate) bars: Vec<Bar>,
}

/// Packets and bytes of a sender for a message, IP headers included; and of what it hears.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sender {
    pub(crate) receivers: u8,
    /// `switch` or `unicast`.
    pub(crate) way: &'static str,
    pub(crate) packets: f64,
    pub(crate) bytes: f64,
    pub(crate) answers: f64,
    pub(crate) answer_bytes: f64,
}

/// 16 packets without any loss; times are in those of a packet.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Aggregated {
    pub(crate) receivers: u8,
    /// Of acknowledgements.
    pub(crate) jitter: f64,
    pub(crate) runs: u32,
    /// Part of the runs in which the sender must time out.
    pub(crate) round_stalls: f64,
    pub(crate) exact_stalls: f64,
    /// Mean until everything is acknowledged.
    pub(crate) round_packet_times: f64,
    pub(crate) exact_packet_times: f64,
}

impl SwitchReport {
    pub(crate) fn human(&self, style: Style) -> String {
        let mut text = String::new();
        let head = ["receivers", "by", "packets", "bytes", "answers", "answer bytes"];
        let cells = |line: &Sender| {
            let mut cells = vec![line.receivers.to_string(), line.way.to_owned()];
            let figures = [line.packets, line.bytes, line.answers, line.answer_bytes];
            cells.extend(figures.map(|figure| format!("{figure:.2}")));
            cells
        };
        let sender = table(&head, self.sender.iter().map(cells));
        if !sender.is_empty() {
            let _ = write!(text, "\nwhat a message costs its sender\n{}", columns(&sender));
        }
        let head = ["receivers", "jitter", "runs", "stalls: rounds", "exact", "packet times: rounds", "exact"];
        let cells = |line: &Aggregated| {
            let stalls = [line.round_stalls, line.exact_stalls].map(|part| format!("{:.1} %", 100.0 * part));
            let times = [line.round_packet_times, line.exact_packet_times].map(|time| format!("{time:.1}"));
            let mut cells = vec![line.receivers.to_string(), line.jitter.to_string(), line.runs.to_string()];
            cells.extend(stalls);
            cells.extend(times);
            cells
        };
        let aggregation = table(&head, self.aggregation.iter().map(cells));
        if !aggregation.is_empty() {
            let what =
                "acknowledgements of 16 packets in rounds with a bitmap, and by the exact least; nothing is lost";
            let _ = write!(text, "\n{what}\n{}", columns(&aggregation));
        }
        let head = ["", "bar", "must be", "is"];
        let cells = |bar: &Bar| {
            let verdict = if bar.ok { style.good("ok") } else { style.bad("missed") };
            let must = format!("{} {}", if bar.at_least { "at least" } else { "at most" }, bar.limit);
            vec![verdict, bar.name.to_owned(), must, format!("{:.3}", bar.value)]
        };
        let bars = table(&head, self.bars.iter().map(cells));
        if !bars.is_empty() {
            let _ = write!(text, "\n{}", columns(&bars));
        }
        text
    }
}

/// A figure of this run and its limit.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Bar {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    /// Whether the value is to be at least the limit, instead of at most.
    pub(crate) at_least: bool,
    pub(crate) limit: f64,
    pub(crate) ok: bool,
}

impl Bar {
    pub(crate) fn at_most(name: &'static str, value: f64, limit: f64) -> Bar {
        Bar { name, value, at_least: false, limit, ok: value <= limit }
    }

    pub(crate) fn at_least(name: &'static str, value: f64, limit: f64) -> Bar {
        Bar { name, value, at_least: true, limit, ok: value >= limit }
    }
}
