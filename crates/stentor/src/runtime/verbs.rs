//! Processes of a configuration on RDMA devices.

use stentor_fabric::ProcessId;
use stentor_fabric_verbs::{NetConfig, SwitchConfig, VerbsConfig, VerbsFabric};

use super::cluster::{Plan, StartError};
use super::seat::Seat;
use crate::config::NebConfig;

impl Plan {
    /// Starts a process on an RDMA device.
    ///
    /// # Errors
    /// [`StartError::Key`], [`StartError::Address`], [`StartError::Verbs`].
    pub fn verbs(&self, me: ProcessId, seat: &Seat) -> Result<VerbsFabric, StartError> {
        self.start_verbs(self.net_config(me, (seat.bind, &seat.directory))?, self.config().switch().cloned())
    }

    /// The same for a process of the broadcast of `[neb]`, counted in its group.
    ///
    /// # Errors
    /// As [`verbs`](Self::verbs).
    pub fn neb_verbs(&self, neb: &NebConfig, me: ProcessId, seat: &Seat) -> Result<VerbsFabric, StartError> {
        self.start_verbs(self.neb_net_config(neb, me, (seat.bind, &seat.directory))?, self.neb_switch())
    }

    fn start_verbs(&self, net: NetConfig, switch: Option<SwitchConfig>) -> Result<VerbsFabric, StartError> {
        Ok(VerbsFabric::start(net, self.config().verbs().apply(VerbsConfig { switch, ..VerbsConfig::default() }))?)
    }
}
