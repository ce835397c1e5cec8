//! The result of a decision.

use std::fmt;

use super::rule::Rule;

/// The result for a history of calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The promise is kept. The value has the numbers of the calls in an order that proves this. Calls of unknown
    /// outcome that are not in it take no effect. Each stale read is at the end of its prefix.
    Kept(Vec<usize>),
    /// The promise is broken: there is no such order.
    Violated(Counterexample),
    /// The search was abandoned, so nothing is known.
    TooHard,
}

/// The smallest set of calls found that contradicts the promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counterexample {
    /// The broken rule.
    pub rule: Rule,
    /// A description in one sentence.
    pub summary: String,
    /// The numbers of the calls, in ascending order. Any other call may have taken effect or not.
    pub calls: Vec<usize>,
    /// The calls as text, and the known reasons why one must come before another.
    pub lines: Vec<String>,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)?;
        self.lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}
