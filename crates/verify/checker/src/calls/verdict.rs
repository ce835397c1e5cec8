//! What came out.

use std::fmt;

use super::rule::Rule;

/// The result for a history of calls.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The promise is kept: the numbers of the calls in an order that shows it. Calls of unknown outcome that are not in it
    /// took no effect in it; stale reads stand where their prefix ends.
    Kept(Vec<usize>),
    /// The promise is broken: there is no such order.
    Violated(Counterexample),
    /// The search was given up: nothing is known.
    TooHard,
}

/// The smallest set of calls found that contradicts the promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counterexample {
    /// The part of the promise that is broken.
    pub rule: Rule,
    /// One sentence.
    pub summary: String,
    /// The numbers of the calls, rising. Any other call may have taken effect or not.
    pub calls: Vec<usize>,
    /// The calls as text, and why one must come before another where that is known.
    pub lines: Vec<String>,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)?;
        self.lines.iter().try_for_each(|line| write!(f, "\n  {line}"))
    }
}
