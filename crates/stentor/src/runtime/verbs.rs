//! Processes of a configuration on RDMA devices.

use stentor_fabric::ProcessId;
use stentor_fabric_verbs::{VerbsConfig, VerbsFabric};

use super::cluster::{Plan, StartError};
use super::seat::Seat;
use crate::config::{KeyError, NebConfig};

impl Plan {
    /// Starts a process on an RDMA device.
    ///
    /// # Errors
    /// [`StartError::Key`], [`StartError::Address`], [`StartError::Verbs`].
    pub fn verbs(&self, me: ProcessId, seat: &Seat) -> Result<VerbsFabric, StartError> {
        let addresses = self.addresses(me, seat.bind)?;
        let most = self.most_bytes(me)?;
        let switch = self.config().switch().cloned();
        let process = VerbsConfig {
            names: self.host_names(),
            switch,
            ..VerbsConfig::new(self.config().cluster(), me, addresses)
        };
        self.start_verbs(seat, most, process)
    }

    /// The same for a process of the broadcast of `[neb]`, counted in its group.
    ///
    /// # Errors
    /// As [`verbs`](Self::verbs).
    pub fn neb_verbs(&self, neb: &NebConfig, me: ProcessId, seat: &Seat) -> Result<VerbsFabric, StartError> {
        let addresses = self.neb_addresses(neb, me, seat.bind)?;
        let name = format!("{}.neb", self.config().cluster());
        // Registers are written once: a process without its memory would split what others have agreed on.
        let switch = self.neb_switch();
        let process = VerbsConfig {
            names: self.neb_host_names(neb),
            one_life: true,
            switch,
            ..VerbsConfig::new(&name, me, addresses)
        };
        self.start_verbs(seat, self.neb_bytes(neb)?, process)
    }

    fn start_verbs(&self, seat: &Seat, most: u64, process: VerbsConfig) -> Result<VerbsFabric, StartError> {
        let config = self.config();
        Ok(VerbsFabric::start(VerbsConfig {
            key: config.key().ok_or(KeyError::Unnamed)?.read(&seat.directory)?,
            fingerprint: config.fingerprint(),
            // As on shared memory: staging doubles what is printed where records are longer than the inline limit.
            max_bytes: 2 * most + (64 << 20),
            ..config.verbs().apply(process)
        })?)
    }
}
