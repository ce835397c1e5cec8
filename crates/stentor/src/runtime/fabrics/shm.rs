//! Processes on shared memory.

use std::path::PathBuf;

use stentor_fabric::{ProcessId, Refusal};
use stentor_fabric_shm::{ShmConfig, ShmFabric};
use stentor_host::Beside;
use stentor_multicast::{Client, ClientId, Member};

use crate::runtime::cluster::{ClusterRuntime, StartError};
use crate::runtime::fabric_diagnostics::FabricDiagnostics;
use crate::runtime::start::{BindConfig, ClusterFabric, Role};

impl ClusterFabric for ShmFabric {
    const MEETS_IN_DIRECTORY: bool = true;

    fn start_in(
        cluster: &ClusterRuntime,
        role: Role<'_>,
        me: ProcessId,
        bind: &BindConfig,
    ) -> Result<Self, StartError> {
        let Role::Broadcast(neb) = role else { return cluster.shm(me, bind.sockets.clone()) };
        let members = cluster.config().groups().get(neb.group()).map_or(&[][..], |group| group.members());
        let config = ShmConfig {
            directory: bind.sockets.clone(),
            fingerprint: cluster.config().fingerprint(),
            max_bytes: 2 * cluster.neb_bytes(neb)? + (64 << 20),
            one_life: role.one_life(),
            source: cluster.neb_source(neb.group()),
            ..ShmConfig::new(
                &role.cluster_name(cluster),
                me,
                members.get(me.index()).map_or("?", |member| member.id()),
                neb.config().processes as u16,
            )
        };
        Ok(ShmFabric::start(config)?)
    }

    fn operator_socket(&self) -> Option<Beside> {
        Some(self.beside())
    }
}

impl FabricDiagnostics for ShmFabric {
    const NAME: &'static str = "shared memory";

    fn memory_bytes(&self) -> u64 {
        self.memory_bytes()
    }

    fn next_refusal(&mut self) -> Option<Refusal> {
        self.next_refusal()
    }

    fn sees(&self, peer: ProcessId) -> bool {
        self.peer_pid(peer).is_some()
    }

    #[inline]
    fn has_died(&self, peer: ProcessId) -> bool {
        self.has_died(peer)
    }

    fn pid_of(&self, peer: ProcessId) -> Option<i32> {
        self.peer_pid(peer).filter(|pid| *pid != 0)
    }

    fn next_trouble(&mut self) -> Option<String> {
        self.next_note()
    }
}

impl ClusterRuntime {
    /// Starts a process on shared memory, below `directory`.
    ///
    /// # Errors
    /// Returns [`StartError::Fabric`] if the fabric cannot start.
    pub fn shm(&self, me: ProcessId, directory: PathBuf) -> Result<ShmFabric, StartError> {
        let longest = self.limits().longest_payload(self.topology()) as u32;
        let most = self.most_bytes(me)?;
        let processes = self.topology().processes() as u32;
        let message_bytes = (longest + 4096).max(256 << 10);
        let config = ShmConfig {
            directory,
            // The limit is the memory that `stentor config check` prints, doubled for the staging of records beyond the
            // inline limit. In addition, every queue pair that posts receives has room for one message, most of which
            // is never touched.
            max_bytes: 2 * most + (64 << 20) + u64::from(processes) * 2 * u64::from(message_bytes),
            max_regions: 4 * processes + 16,
            fingerprint: self.config().fingerprint(),
            message_bytes,
            source: self.source(),
            ..ShmConfig::new(self.config().cluster(), me, self.name(me), self.topology().processes() as u16)
        };
        Ok(ShmFabric::start(config)?)
    }

    /// Creates a member of a group on shared memory. All members of the group start together.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn member(&self, me: ProcessId, directory: PathBuf) -> Result<Member<ShmFabric>, StartError> {
        self.check_member(me)?;
        self.member_on(self.shm(me, directory)?, me)
    }

    /// Creates a client on shared memory.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn client(&self, client: ClientId, directory: PathBuf) -> Result<Client<ShmFabric>, StartError> {
        self.client_on(self.shm(self.topology().client_process(client), directory)?, client)
    }
}
