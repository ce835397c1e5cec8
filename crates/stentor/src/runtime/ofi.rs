//! Processes of a configuration on libfabric.

use stentor_fabric::ProcessId;
use stentor_fabric_ofi::{NetConfig, OfiConfig, OfiFabric};

use super::cluster::{Plan, StartError};
use super::roce::message_bytes;
use super::seat::Seat;
use crate::config::NebConfig;

impl Plan {
    /// Starts a process on a provider of libfabric. What [`carrier`](super::Hosted::carrier) says was taken: print it.
    ///
    /// # Errors
    /// [`StartError::Key`], [`StartError::Address`], [`StartError::Ofi`].
    pub fn ofi(&self, me: ProcessId, seat: &Seat) -> Result<OfiFabric, StartError> {
        self.start_ofi(self.net_config(me, (seat.bind, &seat.directory))?, self.longest_message())
    }

    /// The same for a process of the broadcast of `[neb]`, counted in its group.
    ///
    /// # Errors
    /// As [`ofi`](Self::ofi).
    pub fn neb_ofi(&self, neb: &NebConfig, me: ProcessId, seat: &Seat) -> Result<OfiFabric, StartError> {
        let net = self.neb_net_config(neb, me, (seat.bind, &seat.directory))?;
        self.start_ofi(net, neb.config().payload_bytes as u32)
    }

    /// A process whose messages are at most `longest` bytes long.
    fn start_ofi(&self, net: NetConfig, longest: u32) -> Result<OfiFabric, StartError> {
        let settings = self.config().ofi();
        let config = OfiConfig { message_bytes: message_bytes(longest), ..OfiConfig::default() };
        Ok(OfiFabric::start(net, settings.apply(config))?)
    }
}
