//! The builder of a process of a broadcast.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use stentor_fabric::{ProcessId, WaitMode};
use stentor_neb::Authority;

use super::core::Core;
use super::error::Problem;
use super::{Broadcast, BroadcastError};
use crate::Cluster;
use crate::config::{FabricKind, NebConfig, digits};
use crate::runtime::{BindConfig, ClusterFabric, InUse, Role, StartError, patiently, with_fabric};

/// A builder of a process of a broadcast. [`Cluster::broadcast`] creates one.
#[derive(Clone)]
#[must_use = "a builder does nothing until it starts"]
pub struct BroadcastBuilder {
    cluster: Cluster,
    name: String,
    wait: WaitMode,
    bind: Option<IpAddr>,
    secret: Option<Secret>,
}

#[derive(Clone)]
enum Secret {
    Bytes([u8; 32]),
    File(PathBuf),
}

/// Omits the secret key.
impl std::fmt::Debug for BroadcastBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BroadcastBuilder").field("name", &self.name).finish_non_exhaustive()
    }
}

impl BroadcastBuilder {
    pub(crate) fn new(cluster: Cluster, name: &str) -> Self {
        BroadcastBuilder { cluster, name: name.to_owned(), wait: WaitMode::ADAPTIVE, bind: None, secret: None }
    }

    /// Sets how the process waits when it is idle. The default is [`WaitMode::ADAPTIVE`].
    pub fn wait(self, mode: WaitMode) -> Self {
        BroadcastBuilder { wait: mode, ..self }
    }

    /// Selects one of the addresses that the process's name in the configuration has on this host. For fabrics between
    /// hosts only.
    pub fn bind(self, address: IpAddr) -> Self {
        BroadcastBuilder { bind: Some(address), ..self }
    }

    /// Sets the process's secret Ed25519 key. Required if `[neb]` has `keys`.
    pub fn secret(self, key: [u8; 32]) -> Self {
        BroadcastBuilder { secret: Some(Secret::Bytes(key)), ..self }
    }

    /// Sets the file with the process's secret key, as written by `stentor neb key`: 64 hexadecimal digits.
    pub fn secret_file(self, path: impl AsRef<Path>) -> Self {
        BroadcastBuilder { secret: Some(Secret::File(path.as_ref().to_owned())), ..self }
    }

    /// Starts the process. It makes progress only in calls of [`turn`](Broadcast::turn). If a killed process still
    /// holds the port or the place of this process, this function waits for up to 5 s until it is free.
    ///
    /// # Errors
    /// Returns why the process does not start, with the remedy.
    pub fn start(self) -> Result<Broadcast, BroadcastError> {
        self.make().map_err(|problem| BroadcastError::new(&self.name, problem))
    }

    fn make(&self) -> Result<Broadcast, Problem> {
        let plan = self.cluster.runtime();
        let config = plan.config();
        let neb = config.neb().ok_or(Problem::NoSection)?;
        let members = config.groups().get(neb.group()).map_or(&[][..], |group| group.members());
        let names: Vec<String> = members.iter().map(|member| member.id().to_owned()).collect();
        let me = names.iter().position(|name| *name == self.name);
        let me = me.map(|at| ProcessId(at as u16)).ok_or_else(|| Problem::NotOne { known: names.clone() })?;
        let authority = self.authority(neb, config.salt(), me)?;
        if config.fabric() == FabricKind::Sim {
            return Err(Problem::Start(StartError::Simulated));
        }
        // The path of a key file may be relative to the configuration file.
        let beside = BindConfig::beside(plan.file().unwrap_or(Path::new("")));
        let bind = BindConfig { sockets: self.cluster.sockets().to_owned(), bind: self.bind, ..beside };
        with_fabric!(config.fabric(), F => {
            let start = || F::start_in(plan, Role::Broadcast(neb), me, &bind);
            let fabric = patiently(start, InUse::in_use, |text| log::info!("{}: {text}", self.name));
            let fabric = fabric.map_err(Problem::Start)?;
            let core = Core::new(fabric, *neb.config(), config.salt(), authority, names, self.wait)?;
            Broadcast::new(core.into())
        })
    }

    fn authority(&self, neb: &NebConfig, salt: u64, me: ProcessId) -> Result<Option<Authority>, Problem> {
        let secret = match (&self.secret, neb.config().signed) {
            (None, false) => return Ok(None),
            (None, true) => return Err(Problem::NoSecret),
            (Some(_), false) => return Err(Problem::NothingSigned),
            (Some(Secret::Bytes(key)), true) => *key,
            (Some(Secret::File(path)), true) => read(path)?,
        };
        neb.authority(salt, me, &secret).map(Some).map_err(Problem::Key)
    }
}

/// Reads the secret key from a file. Errors never show the file's content.
fn read(path: &Path) -> Result<[u8; 32], Problem> {
    let text = std::fs::read_to_string(path);
    let text = text.map_err(|source| Problem::SecretFile { path: path.to_owned(), source })?;
    digits(text.trim()).ok_or_else(|| Problem::NotASecret { path: path.to_owned() })
}
