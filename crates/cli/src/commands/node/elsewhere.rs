//! Members that others miss although they run on this host.

use std::path::Path;

use stentor::config::FabricKind;
use stentor::runtime::Plan;
use stentor_fabric::ProcessId;
use stentor_fabric_shm::{Running, meeting_directories};

use super::loss::stopped;
use crate::live;

/// A member that is not connected and runs on this host.
pub(super) struct RunsHere {
    /// Which process it is, and what it was told.
    pub(super) as_what: String,
    /// What may keep it away.
    pub(super) why: String,
}

/// Looks whether a member that is not connected runs on this host. `directory`: where this process has its sockets.
pub(super) fn runs_here(plan: &Plan, process: ProcessId, directory: &Path) -> Option<RunsHere> {
    let found = live::find(plan, process).into_iter().find(|found| found.is_same)?;
    let why = if is_elsewhere(plan, process, found.pid(), directory) {
        "start both with the same --directory".to_owned()
    } else {
        format!("it is {}, or its log says why", stopped(&[Some(found.pid())]))
    };
    Some(RunsHere { as_what: found.where_it_is(), why })
}

/// Whether a process has its sockets where this one does not look. Only on shared memory they have to meet there.
fn is_elsewhere(plan: &Plan, process: ProcessId, pid: i32, directory: &Path) -> bool {
    let Some(source) = plan.source().filter(|_| plan.config().fabric() == FabricKind::Shm) else { return false };
    let running = Running::find(&source.cluster, plan.name(process)).into_iter().find(|running| running.pid == pid);
    let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let Some(about) = running.and_then(|running| running.about) else { return false };
    !meeting_directories(directory).iter().any(|path| real(path) == real(&about.directory))
}
