//! The results of the suite.

use std::fmt;

use super::bed::{Outcome, Stop};

/// The result of one case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verdict {
    /// The fabric kept the contract.
    Passed,
    /// The case was skipped, because the fabric or the testbed lacks this capability.
    Skipped(&'static str),
    /// The fabric violated the contract. The text describes the expected and the actual behaviour.
    Failed(String),
}

impl From<Outcome> for Verdict {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Ok(()) => Verdict::Passed,
            Err(Stop::Skip(capability)) => Verdict::Skipped(capability),
            Err(Stop::Fail(text)) => Verdict::Failed(text),
        }
    }
}

/// The report of one case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CaseReport {
    /// Topic and name of the case.
    pub name: &'static str,
    /// Result of the case.
    pub verdict: Verdict,
}

/// The reports of all cases, in order.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Report {
    /// The cases.
    pub cases: Vec<CaseReport>,
}

impl Report {
    pub(super) fn add(&mut self, name: &'static str, verdict: Verdict) {
        self.cases.push(CaseReport { name, verdict });
    }

    /// Returns the names of the cases that failed.
    #[must_use]
    pub fn failed(&self) -> Vec<&'static str> {
        self.named(|verdict| matches!(verdict, Verdict::Failed(_)))
    }

    /// Returns the names of the cases that were skipped.
    #[must_use]
    pub fn skipped(&self) -> Vec<&'static str> {
        self.named(|verdict| matches!(verdict, Verdict::Skipped(_)))
    }

    fn named(&self, wanted: impl Fn(&Verdict) -> bool) -> Vec<&'static str> {
        self.cases.iter().filter(|case| wanted(&case.verdict)).map(|case| case.name).collect()
    }

    /// Panics unless all cases passed or were skipped.
    ///
    /// # Panics
    /// Panics if a case failed, or none ran. The message lists all failures.
    pub fn assert_ok(&self) {
        assert!(!self.cases.is_empty(), "no conformance case ran");
        assert!(self.failed().is_empty(), "the fabric breaks its contract:\n{self}");
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for CaseReport { name, verdict } in &self.cases {
            match verdict {
                Verdict::Passed => writeln!(f, "passed   {name}")?,
                Verdict::Skipped(capability) => writeln!(f, "skipped  {name}: the fabric has no {capability}")?,
                Verdict::Failed(text) => writeln!(f, "FAILED   {name}: {text}")?,
            }
        }
        let (failed, skipped) = (self.failed().len(), self.skipped().len());
        write!(f, "{} passed, {skipped} skipped, {failed} failed", self.cases.len() - failed - skipped)
    }
}
