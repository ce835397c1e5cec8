//! Processes of a configuration on libfabric.

use stentor_fabric::{ProcessId, Restricted};
use stentor_fabric_ofi::{OfiConfig, OfiFabric};

use super::cluster::{Plan, StartError};
use super::seat::Seat;
use crate::config::{KeyError, NebConfig};

/// A provider of libfabric, as it is or with EFA's restrictions.
pub type RestrictedOfi = Restricted<OfiFabric>;

impl Plan {
    /// Starts a process on a provider of libfabric. What [`carrier`](super::Hosted::carrier) says was taken: print it.
    ///
    /// # Errors
    /// [`StartError::Key`], [`StartError::Address`], [`StartError::Ofi`].
    pub fn ofi(&self, me: ProcessId, seat: &Seat) -> Result<RestrictedOfi, StartError> {
        let addresses = self.addresses(me, seat.bind)?;
        let most = self.most_bytes(me)?;
        let longest = self.limits().body_ring(self.topology()).max_payload() as u32;
        let process = OfiConfig { names: self.host_names(), ..OfiConfig::new(self.config().cluster(), me, addresses) };
        self.start_ofi(seat, (most, longest), process)
    }

    /// The same for a process of the broadcast of `[neb]`, counted in its group.
    ///
    /// # Errors
    /// As [`ofi`](Self::ofi).
    pub fn neb_ofi(&self, neb: &NebConfig, me: ProcessId, seat: &Seat) -> Result<RestrictedOfi, StartError> {
        let addresses = self.neb_addresses(neb, me, seat.bind)?;
        let name = format!("{}.neb", self.config().cluster());
        // Registers are written once: a process without its memory would split what others have agreed on.
        let process =
            OfiConfig { names: self.neb_host_names(neb), one_life: true, ..OfiConfig::new(&name, me, addresses) };
        self.start_ofi(seat, (self.neb_bytes(neb)?, neb.config().payload_bytes as u32), process)
    }

    /// A process whose memory is `most` bytes large and whose messages are at most `longest`.
    fn start_ofi(
        &self,
        seat: &Seat,
        (most, longest): (u64, u32),
        process: OfiConfig,
    ) -> Result<RestrictedOfi, StartError> {
        let config = self.config();
        let as_efa = config.ofi().as_efa.map(|efa| efa.disorders(process.me.0.into()));
        let fabric = OfiFabric::start(OfiConfig {
            key: config.key().ok_or(KeyError::Unnamed)?.read(&seat.directory)?,
            fingerprint: config.fingerprint(),
            // As on shared memory: staging doubles what is printed where records are longer than the inline limit.
            max_bytes: 2 * most + (64 << 20),
            message_bytes: (longest + 4096).max(256 << 10),
            ..config.ofi().apply(process)
        })?;
        Ok(Restricted::new(fabric, as_efa))
    }
}
