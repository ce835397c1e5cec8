//! Names of the properties that histories are checked for.

use std::collections::BTreeMap;
use std::fmt::Write;

use stentor_checker::Report;

use crate::Style;

/// Each property with its title.
const TITLES: [(&str, &str); 55] = [
    ("B1", "agreement"),
    ("B2", "validity"),
    ("B3", "integrity"),
    ("B4", "FIFO per sender"),
    ("B5", "partition safety"),
    ("B6", "bounded memory"),
    ("B7", "evidence"),
    ("C1", "delivery"),
    ("C2", "callback order"),
    ("C3", "credits"),
    ("C4", "closing"),
    ("C5", "errors"),
    ("S1", "ack soundness"),
    ("S2", "order at receivers"),
    ("S3", "windows"),
    ("S4", "progress"),
    ("S5", "offsets"),
    ("S6", "one holder"),
    ("S7", "addresses"),
    ("S8", "atomic control"),
    ("S9", "message numbers"),
    ("S10", "integrity"),
    ("S11", "conservation"),
    ("SL1", "liveness"),
    ("SL2", "no timeouts"),
    ("X1", "at most once"),
    ("X2", "all groups or none"),
    ("X3", "replies"),
    ("X4", "not applied"),
    ("X5", "unknown"),
    ("X6", "equal tables"),
    ("X7", "progress"),
    ("X8", "session order"),
    ("X9", "queries"),
    ("X10", "reads"),
    ("X11", "notifications"),
    ("X12", "times"),
    ("X13", "versions"),
    ("M1", "integrity"),
    ("M2", "uniform agreement"),
    ("M3", "validity"),
    ("M4", "uniform acyclic order"),
    ("M5", "uniform prefix order"),
    ("M6", "FIFO per client"),
    ("M7", "genuineness"),
    ("M8", "bounded memory"),
    ("M9", "liveness"),
    ("M10", "fencing"),
    ("M11", "rejoin"),
    ("M12", "session order"),
    ("R1", "real-time order"),
    ("V1", "one order, each once"),
    ("V2", "serial replies"),
    ("V3", "ordered time"),
    ("V4", "notifications"),
];

/// Verdicts by property: `ok`, `violated` or `not_checked`.
pub type Verdicts = BTreeMap<&'static str, &'static str>;

/// Returns the verdicts of a report.
pub fn verdicts(report: &Report) -> Verdicts {
    report.properties.iter().map(|(name, verdict)| (*name, verdict.as_str())).collect()
}

/// Returns the title of a property, or an empty string if it has none.
pub fn title(property: &str) -> &'static str {
    TITLES.iter().find(|(name, _)| *name == property).map_or("", |(_, title)| title)
}

/// Returns the verdicts sorted by the letter and the number of their properties.
pub fn in_order<'a>(verdicts: &'a Verdicts) -> impl Iterator<Item = (&'static str, &'static str)> + use<'a> {
    let mut names: Vec<&'static str> = verdicts.keys().copied().collect();
    names.sort_by_key(|name| (name.as_bytes().first(), name.len(), *name));
    names.into_iter().map(|name| (name, verdicts[name]))
}

/// Returns one line for each property with its verdict.
pub fn verdict_lines(verdicts: &Verdicts, style: Style) -> String {
    let mut text = String::new();
    for (property, verdict) in in_order(verdicts) {
        let verdict = match verdict {
            "ok" => style.good("ok"),
            "violated" => style.bad("violated"),
            other => style.fair(other.replace('_', " ")),
        };
        let _ = writeln!(text, "{property:3} {:22} {verdict}", title(property));
    }
    text
}
