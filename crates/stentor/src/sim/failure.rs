//! The failure of a seed, and its text.

use std::fmt;

use crate::debug::debug_as_display;

/// Largest number of trace lines in the text of a failure.
const SHOWN_LINES: usize = 40;

/// Name of the environment variable that selects a single seed.
pub(super) const SEED_VARIABLE: &str = "STENTOR_SIM_SEED";

/// The property that a seed violated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[non_exhaustive]
pub enum SimProperty {
    /// A machine or a script panicked.
    Panic,
    /// A script reported an error, or made an invalid call.
    Script,
    /// A value could not be written or restored.
    Restore,
    /// [`StateMachine::read`](crate::StateMachine::read) changed the value.
    ReadChanges,
    /// Two members of a group have different values after the same calls.
    States,
    /// Two members of a group send different notifications at the same position, or members send other notifications
    /// than the model, or a session neither receives a notification once and in order nor learns that it was lost.
    Notifications,
    /// Two members of a group reply differently to the same call, although their values are equal.
    Replies,
    /// The answer to an unordered read differs from the value at the position that it names, or the position is too
    /// early for its [`Consistency`](crate::Consistency).
    Reads,
    /// No serial order of the calls that respects real time in each group, and each session, produces the replies.
    Calls,
    /// A client did not finish after the faults had stopped.
    Liveness,
    /// A call was applied twice, or not by all of its groups, or contrary to what its client learned. This is an error
    /// in Stentor, not in the machine: report it.
    Protocol,
}

impl SimProperty {
    /// Returns the property with this name in the simulation.
    pub(super) fn of(name: &str, values_differ: bool) -> SimProperty {
        match name {
            "X6" if values_differ => SimProperty::States,
            "X3" | "X6" => SimProperty::Replies,
            "X7" => SimProperty::Liveness,
            "X10" => SimProperty::Reads,
            "X11" => SimProperty::Notifications,
            _ => SimProperty::Protocol,
        }
    }

    fn text(self) -> &'static str {
        match self {
            SimProperty::Panic => "a panic",
            SimProperty::Script => "a script reported an error or made an invalid call",
            SimProperty::Restore => "a value cannot be written or restored",
            SimProperty::ReadChanges => "a read changes the value",
            SimProperty::States => {
                "members of a group have different values after the same calls: `apply` depends on more than the value, the context and the \
                 command, or `restore` does not restore what `Frozen::write` was given (`SimCluster::compare_by`, if one value can be \
                 written in several ways)"
            }
            SimProperty::Replies => "members of a group reply differently to the same call",
            SimProperty::Reads => {
                "an unordered read does not return the value at its position, or returns an older value than its consistency permits"
            }
            SimProperty::Notifications => {
                "a session did not receive the machine's notifications, each once and in order"
            }
            SimProperty::Calls => "no serial order of the calls explains the replies",
            SimProperty::Liveness => "clients do not finish although the faults have stopped",
            SimProperty::Protocol => "Stentor has violated a guarantee: please report it",
        }
    }
}

impl fmt::Display for SimProperty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// The failure of a seed: the violated property, and how to reproduce it. Its text includes the lines of the trace up
/// to the violation, if the trace shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct SimFailure {
    pub(super) seed: u64,
    /// Violated properties with an explanation in words, the most informative first. Not empty.
    pub(super) violations: Vec<(SimProperty, String)>,
    pub(super) trace: Vec<String>,
    /// The call that shows the violation, if a call does.
    pub(super) call: Option<u64>,
    /// `true` if a second run of the seed had the same result, or if there was no second run.
    pub(super) repeats: bool,
    /// Name of the test that ran, if its thread has a name.
    pub(super) test: Option<String>,
}

impl SimFailure {
    /// Returns the seed.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the violated property; the most informative one if there are several.
    #[must_use]
    pub fn property(&self) -> SimProperty {
        self.violations[0].0
    }

    /// Returns all violated properties, each with the evidence.
    pub fn violations(&self) -> impl Iterator<Item = (SimProperty, &str)> {
        self.violations.iter().map(|(property, witness)| (*property, witness.as_str()))
    }

    /// Returns the evidence of the violation: calls, members or the text of a panic.
    #[must_use]
    pub fn witness(&self) -> &str {
        &self.violations[0].1
    }

    /// Returns the trace: one line for each event, in order. A long run keeps the last 4000 lines.
    #[must_use]
    pub fn trace(&self) -> &[String] {
        &self.trace
    }

    /// Returns whether a second run of the seed had the same result. If not, the machine or a script depends on other
    /// input than the seed. Returns `true` if the seed was run only once, as by [`replay`](super::SimCluster::replay).
    #[must_use]
    pub fn repeats(&self) -> bool {
        self.repeats
    }

    /// Returns the range of lines up to the first one that shows a violation, or the last lines if none does.
    fn shown(&self) -> std::ops::Range<usize> {
        let ends = self.call.map(|call| format!(" has the answer to call {call}: "));
        let shows =
            |line: &&String| line.contains(" VIOLATION: ") || ends.as_ref().is_some_and(|ends| line.contains(ends));
        let at = self.trace.iter().position(|line| shows(&line));
        let end = at.map_or(self.trace.len(), |at| at + 1);
        end.saturating_sub(SHOWN_LINES)..end
    }
}

debug_as_display!(SimFailure);

impl fmt::Display for SimFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let test = self.test.as_deref().map_or(String::new(), |test| format!(" {test}"));
        writeln!(f, "seed {:#x} fails: {}", self.seed, self.property())?;
        writeln!(f, "reproduce it with: {SEED_VARIABLE}={:#x} cargo test{test}", self.seed)?;
        if !self.repeats {
            writeln!(
                f,
                "a second run of the seed had another result: the machine or a script depends on more than the seed"
            )?;
        }
        self.violations.iter().try_for_each(|(_, witness)| writeln!(f, "  {witness}"))?;
        let shown = self.shown();
        writeln!(f, "lines {} to {} of {} of the trace:", shown.start + 1, shown.end, self.trace.len())?;
        self.trace[shown].iter().try_for_each(|line| writeln!(f, "  {line}"))
    }
}

impl std::error::Error for SimFailure {}
