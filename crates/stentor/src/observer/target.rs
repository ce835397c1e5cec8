//! The addresses of a group's members.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use stentor_fabric::ProcessId;
use stentor_fabric_net::ask::AskConfig;

use super::error::Problem;
use crate::{Cluster, Group};

/// A member and the ways to reach it.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) name: String,
    process: ProcessId,
    /// The directory for the sockets of this host's processes, and the name of the cluster's directory in it.
    directory: PathBuf,
    meeting: String,
    remote: Option<Remote>,
}

/// The data for reaching a member over the network.
#[derive(Debug)]
struct Remote {
    cluster: String,
    /// The key and the addresses, or the reason why they are missing.
    found: Result<(Vec<u8>, Vec<SocketAddr>), String>,
}

impl Target {
    /// Returns the paths at which the member listens, if it is on this host.
    pub(super) fn paths(&self) -> Vec<PathBuf> {
        stentor_host::all_beside(&self.directory, &self.meeting, self.process).unwrap_or_default()
    }

    /// Returns the parameters for dialing the member over the network, one for each of its addresses.
    ///
    /// # Errors
    /// Returns the reason why the member cannot be dialed.
    pub(super) fn remote(&self) -> Result<Vec<AskConfig>, String> {
        let Some(Remote { cluster, found }) = &self.remote else {
            return Err("it does not listen on this host".to_owned());
        };
        let (key, addresses) = found.as_ref().map_err(Clone::clone)?;
        let to =
            |at: &SocketAddr| AskConfig { cluster: cluster.clone(), key: key.clone(), process: self.process, at: *at };
        Ok(addresses.iter().map(to).collect())
    }
}

/// Returns the members of a group, or only the one with the given name. Resolves host names.
pub(super) fn targets(cluster: &Cluster, group: Group, member: Option<&str>) -> Result<Vec<Target>, Problem> {
    let runtime = cluster.runtime();
    let config = runtime.config();
    let is_spread = config.fabric().is_between_hosts();
    let key = || {
        let directory = runtime.file().and_then(Path::parent).unwrap_or(Path::new(""));
        let source = config.key().ok_or("the configuration names no key")?;
        source.read(directory).map_err(|error| error.to_string())
    };
    let key = is_spread.then(key);
    let found = if is_spread { runtime.look_up_members(group.0) } else { Vec::new() };
    let mut found = found.into_iter().map(|found| found.map_err(|error| error.to_string()));
    let target = |process: ProcessId| {
        let addresses = found.next().unwrap_or_else(|| Ok(Vec::new()));
        let remote = key.clone().map(|key| {
            let without =
                |why| format!("it is not on this host, and other hosts cannot be reached without the key: {why}");
            let found = key.map_err(without).and_then(|key| Ok((key, addresses?)));
            Remote { cluster: config.cluster().to_owned(), found }
        });
        let (directory, meeting) = (cluster.sockets().to_owned(), runtime.meeting_name());
        Target { name: runtime.name(process).to_owned(), process, directory, meeting, remote }
    };
    let all: Vec<_> = runtime.topology().members(group.0).map(target).collect();
    let Some(member) = member else { return Ok(all) };
    let named: Vec<_> = all.into_iter().filter(|target| target.name == member).collect();
    if named.is_empty() { Err(Problem::NoMember(member.to_owned())) } else { Ok(named) }
}
