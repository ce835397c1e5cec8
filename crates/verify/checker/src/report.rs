//! The result of a check.

use std::collections::BTreeMap;
use std::fmt;

/// The smallest set of events found that violates a property.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CounterExample {
    /// A description in one sentence.
    pub summary: String,
    /// The events, each as its location (`file:line` or `event N`) and the line itself.
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
    /// The property holds in this history.
    Ok,
    /// The property does not hold.
    Violated(CounterExample),
    /// The property cannot be decided from this kind of history. The value is the reason.
    NotChecked(&'static str),
    /// The property cannot be decided from these inputs, but may be from others: a file is missing or ends early, the
    /// order of a process's lives is unknown, the files are of several runs, or the groups have more histories than can
    /// be judged together. The value is the reason.
    Incomplete(String),
}

impl Verdict {
    /// Returns `ok`, `violated` or `not_checked`.
    #[must_use]
    pub fn as_str(&self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Violated(_) => "violated",
            Verdict::NotChecked(_) | Verdict::Incomplete(_) => "not_checked",
        }
    }

    /// Returns whether a counter-example was found.
    #[must_use]
    pub fn is_violated(&self) -> bool {
        matches!(self, Verdict::Violated(_))
    }
}

/// Numbers of events that were checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// All events.
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
    /// Reported ranges of skipped indices.
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
    /// Verdicts by name: M1 … M12, R1, B1 … B7, and C1 … C5. For a [`SetWatch`](crate::switch::SetWatch): S1 … S11, SL1
    /// and SL2.
    pub properties: BTreeMap<&'static str, Verdict>,
    /// The smallest of all counter-examples, with the name of its property, or `None` if there is none.
    pub counter_example: Option<String>,
    /// Numbers of events that were checked.
    pub counts: Counts,
    /// `true` if the history was known to be complete.
    pub complete: bool,
    /// Files whose last line was cut off and ignored.
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

    /// Returns whether no property is violated, and none is [`Verdict::Incomplete`]. See also
    /// [`unchecked`](Report::unchecked).
    #[must_use]
    pub fn ok(&self) -> bool {
        self.violated().next().is_none() && self.incomplete().next().is_none()
    }

    /// Returns the properties that are [`Verdict::Incomplete`], each with the reason.
    pub fn incomplete(&self) -> impl Iterator<Item = (&'static str, &str)> + '_ {
        self.properties.iter().filter_map(|(name, verdict)| match verdict {
            Verdict::Incomplete(reason) => Some((*name, reason.as_str())),
            Verdict::Ok | Verdict::Violated(_) | Verdict::NotChecked(_) => None,
        })
    }

    /// Returns the reason why these inputs cannot be judged. Returns `None` if some property is violated, or if some
    /// property holds and none is [`Verdict::Incomplete`].
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

    /// Returns the names of the violated properties.
    pub fn violated(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.properties.iter().filter(|(_, verdict)| verdict.is_violated()).map(|(name, _)| *name)
    }

    /// Returns the properties that were not checked, each with the reason.
    pub fn unchecked(&self) -> impl Iterator<Item = (&'static str, &str)> + '_ {
        self.properties.iter().filter_map(|(name, verdict)| match verdict {
            Verdict::NotChecked(reason) => Some((*name, *reason)),
            Verdict::Incomplete(reason) => Some((*name, reason.as_str())),
            Verdict::Ok | Verdict::Violated(_) => None,
        })
    }
}
