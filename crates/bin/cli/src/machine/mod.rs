//! The capabilities of this machine, tested by using them where that is possible.

mod container;
mod memory;
mod ofi;
mod processor;
mod shm;
mod system;
mod verbs;

use serde::Serialize;

pub(crate) use ofi::{of_cluster as ofi_of, would_take as ofi_would_take};
pub(crate) use shm::runtime_directory;
pub(crate) use verbs::would_take as verbs_would_take;

/// Severity of a finding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum State {
    /// Nothing to do.
    Ok,
    /// Information only. At most an optional fabric needs the subject.
    Info,
    /// The subject works, but not optimally.
    Limited,
    /// No cluster on shared memory works without the subject.
    Missing,
}

/// A finding about this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Finding {
    /// Subject of the finding.
    pub(crate) what: &'static str,
    /// Severity of the finding.
    pub(crate) state: State,
    /// Result of the test.
    pub(crate) detail: String,
    /// Advice, or `None` if there is nothing to do.
    pub(crate) remedy: Option<String>,
}

impl Finding {
    fn ok(what: &'static str, detail: impl Into<String>) -> Self {
        Finding { what, state: State::Ok, detail: detail.into(), remedy: None }
    }

    fn with_remedy(what: &'static str, state: State, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Finding { what, state, detail: detail.into(), remedy: Some(remedy.into()) }
    }

    fn info(what: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::with_remedy(what, State::Info, detail, remedy)
    }

    fn limited(what: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::with_remedy(what, State::Limited, detail, remedy)
    }

    fn missing(what: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::with_remedy(what, State::Missing, detail, remedy)
    }
}

/// Returns all findings, in the order in which they are printed. Takes some milliseconds and leaves nothing behind.
pub(crate) fn findings() -> Vec<Finding> {
    let mut findings = vec![
        processor::count(),
        processor::clock(),
        memory::memfd(),
        memory::seals(),
        system::futex(),
        shm::finding(),
        system::open_files(),
        system::file_sizes(),
        system::processes(),
        memory::memlock(),
        memory::huge_pages(),
        container::limits(),
    ];
    findings.extend(verbs::findings());
    findings.extend(ofi::findings());
    findings.extend(ofi::segments());
    findings
}
