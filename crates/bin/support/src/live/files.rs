//! The limit of open files: the number that a process needs when all its peers are connected, and the number that the
//! system allows.

use std::fmt::Display;

use rustix::process::{Resource, getrlimit, setrlimit};
use stentor::config::FabricKind;
use stentor::runtime::ClusterRuntime;

use crate::Failure;
use crate::counted;

/// Upper bound of the files that a process has open without any peer: streams, sockets, locks, events, control
/// connections, a history and a capture. A lone member has 30 with a history.
const OWN: u64 = 36;

/// Files that a lone member needs to start and to answer one control connection.
const BARE: u64 = 30;

/// Returns the numbers of files that a process needs for each other member and for each client. On `shm`, a member with
/// four others was found to have 3.5 for each, plus regions while their descriptors are passed on; a client needs one
/// connection.
fn per_peer(fabric: FabricKind) -> (u64, u64) {
    match fabric {
        FabricKind::Shm | FabricKind::Sim => (4, 2),
        // One established connection, and one that is being dialled or accepted at the same time.
        FabricKind::Roce => (2, 2),
        // In addition, the files that a device or a provider opens for a queue pair.
        FabricKind::Verbs | FabricKind::Ofi => (4, 4),
    }
}

/// The number of files that a process needs when all its peers are connected, and a description of those peers.
pub struct Need {
    files: u64,
    /// Smallest useful number of files. With fewer files, a member may be unable to connect to some of the other
    /// members.
    least: u64,
    whom: String,
}

impl Need {
    /// Returns the need of a member or a client of a cluster.
    pub fn of(plan: &ClusterRuntime) -> Need {
        let (members, clients) = (plan.topology().all_members() as u64, plan.topology().clients() as u64);
        let whom =
            format!("all {} and {}", counted(members, "member", "members"), counted(clients, "client", "clients"));
        Need::among(plan, members, clients, whom)
    }

    /// Returns the need of a process of a broadcast.
    pub fn of_neb(plan: &ClusterRuntime, processes: usize) -> Need {
        Need::among(plan, processes as u64, 0, format!("all {processes} processes"))
    }

    fn among(plan: &ClusterRuntime, members: u64, clients: u64, whom: String) -> Need {
        let (member, client) = per_peer(plan.config().fabric());
        let others = member * members.saturating_sub(1);
        Need { files: OWN + others + client * clients, least: BARE + others, whom }
    }

    /// Refuses to start a process if even the hard limit is too low. Such a process would run, but some of the others
    /// or control commands might not reach it.
    pub fn refuse(&self, place: impl Display) -> Result<(), Failure> {
        let most = getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX);
        if most >= self.least {
            return Ok(());
        }
        let Need { files, least, whom } = self;
        let what =
            format!("{most} open files are allowed: with fewer than {least} this process cannot connect to any other");
        let remedy = format!(
            "raise the limit to {files}, which is enough when {whom} are there (ulimit -n {files}; LimitNOFILE={files} of a service)"
        );
        Err(Failure::run(what, place, remedy))
    }

    /// Raises the soft limit of this process as far as needed and allowed. Returns a warning if that is not enough: the
    /// process starts, but refuses the peers that connect last.
    pub fn make_room(&self) -> Option<String> {
        let limit = getrlimit(Resource::Nofile);
        let enough = |most: Option<u64>| most.is_none_or(|most| most >= self.files);
        if enough(limit.current) {
            return None;
        }
        let wanted = limit.maximum.map_or(self.files, |most| most.min(self.files));
        let raised = rustix::process::Rlimit { current: Some(wanted), ..limit };
        if setrlimit(Resource::Nofile, raised).is_ok() && enough(Some(wanted)) {
            return None;
        }
        let (files, whom, most) = (self.files, &self.whom, getrlimit(Resource::Nofile).current.unwrap_or(wanted));
        Some(format!(
            "{most} open files are allowed, and it may need {files} when {whom} are there: the last peers to connect may be refused; raise \
             the limit before the start (ulimit -n {files}; LimitNOFILE={files} of a service), or lower `clients` in [limits]"
        ))
    }
}
