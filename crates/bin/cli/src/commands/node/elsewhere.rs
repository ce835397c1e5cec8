//! Finds members that run on this host although this process is not connected to them.

use std::path::Path;

use stentor::config::FabricKind;
use stentor::runtime::{ClusterRuntime, find};
use stentor_fabric::ProcessId;

use super::loss::stopped;

/// A member that runs on this host but is not connected.
pub(super) struct RunsHere {
    /// The member's process id and the settings with which it was started.
    pub(super) as_what: String,
    /// The likely reason.
    pub(super) why: String,
}

/// Returns where member `process`, which is not connected, runs on this host, or `None` if it does not. `directory` is
/// where this process has its sockets.
pub(super) fn runs_here(plan: &ClusterRuntime, process: ProcessId, directory: &Path) -> Option<RunsHere> {
    let found = find(plan, process).into_iter().find(|found| found.is_same)?;
    // Only on shared memory must processes meet in a directory.
    let is_elsewhere = plan.config().fabric() == FabricKind::Shm && found.elsewhere(directory).is_some();
    let why = if is_elsewhere {
        "start both with the same --directory".to_owned()
    } else {
        format!("it is {}, or its log says why", stopped(&[Some(found.pid())]))
    };
    Some(RunsHere { as_what: found.where_it_is(), why })
}
