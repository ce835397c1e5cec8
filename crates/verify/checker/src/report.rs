//! What came out.

use std::collections::BTreeMap;
use std::fmt;

/// The smallest set of events found that breaks a property.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterExample {
    /// One sentence.
    pub summary: String,
    /// The events, each as `file:line` and the line itself.
    pub lines: Vec<String>,
}

impl fmt::Display for CounterExample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)?;
        self.lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}

/// The result for one property.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// Holds in this history.
    Ok,
    /// Does not hold.
    Violated(CounterExample),
    /// This history cannot tell; why.
    NotChecked(&'static str),
    /// These inputs cannot tell, and others of the same run could: a file is missing, or nothing says in which order the
    /// lives of a process were. Why.
    Incomplete(String),
}

impl Verdict {
    /// `ok`, `violated` or `not_checked`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Violated(_) => "violated",
            Verdict::NotChecked(_) | Verdict::Incomplete(_) => "not_checked",
        }
    }

    /// Whether a counter-example was found.
    #[must_use]
    pub fn is_violated(&self) -> bool {
        matches!(self, Verdict::Violated(_))
    }
}

/// How much was looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Events of the multicast.
    pub events: u64,
    /// Messages that were multicast.
    pub messages: u64,
    /// Deliveries.
    pub deliveries: u64,
    /// Broadcasts.
    pub broadcasts: u64,
    /// Deliveries of broadcasts.
    pub broadcast_deliveries: u64,
    /// Reported equivocations.
    pub equivocations: u64,
    /// Reported ranges that were skipped.
    pub skips: u64,
    /// Messages written on channels.
    pub sends: u64,
    /// Messages read from channels.
    pub receptions: u64,
    /// Crashes.
    pub crashes: u64,
    /// Remote operations.
    pub remote_ops: u64,
}

/// The result for one history.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// By name: M1 … M12, R1, B1 … B7, and C1 … C5.
    pub properties: BTreeMap<&'static str, Verdict>,
    /// The smallest of all counter-examples, with the name of its property; `None` if there is none.
    pub counter_example: Option<String>,
    /// How much was looked at.
    pub counts: Counts,
    /// Whether the history was known to be complete.
    pub complete: bool,
    /// Files whose last line is cut off, and was left out.
    pub cut_off: Vec<String>,
}

impl Report {
    pub(crate) fn new(properties: BTreeMap<&'static str, Verdict>, counts: Counts, complete: bool) -> Self {
        let violated = properties.iter().filter_map(|(name, verdict)| match verdict {
            Verdict::Violated(example) => Some((name, example)),
            Verdict::Ok | Verdict::NotChecked(_) | Verdict::Incomplete(_) => None,
        });
        let smallest = violated.min_by_key(|(_, example)| example.lines.len());
        let counter_example = smallest.map(|(name, example)| format!("{name}: {example}"));
        Report { properties, counter_example, counts, complete, cut_off: Vec::new() }
    }

    /// Whether no property is violated, and none would need more than was given. Look at
    /// [`unchecked`](Report::unchecked), too.
    #[must_use]
    pub fn ok(&self) -> bool {
        self.violated().next().is_none() && self.incomplete().next().is_none()
    }

    /// Properties for which something of the run was not given, and what.
    pub fn incomplete(&self) -> impl Iterator<Item = (&'static str, &str)> + '_ {
        self.properties.iter().filter_map(|(name, verdict)| match verdict {
            Verdict::Incomplete(reason) => Some((*name, reason.as_str())),
            Verdict::Ok | Verdict::Violated(_) | Verdict::NotChecked(_) => None,
        })
    }

    /// Why these inputs cannot be judged; `None` where some property is violated, or some holds and nothing is missing.
    #[must_use]
    pub fn undecided(&self) -> Option<&str> {
        if self.violated().next().is_some() {
            return None;
        }
        if let Some((_, reason)) = self.incomplete().next() {
            return Some(reason);
        }
        let any = self.properties.values().any(|verdict| *verdict == Verdict::Ok);
        (!any).then_some("nothing in it can be judged: it has no event that a property is about")
    }

    /// Names of the properties that do not hold.
    pub fn violated(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.properties.iter().filter(|(_, verdict)| verdict.is_violated()).map(|(name, _)| *name)
    }

    /// Properties about which this history cannot tell, and why.
    pub fn unchecked(&self) -> impl Iterator<Item = (&'static str, &str)> + '_ {
        self.properties.iter().filter_map(|(name, verdict)| match verdict {
            Verdict::NotChecked(reason) => Some((*name, *reason)),
            Verdict::Incomplete(reason) => Some((*name, reason.as_str())),
            Verdict::Ok | Verdict::Violated(_) => None,
        })
    }
}
