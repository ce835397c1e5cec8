//! Configuration with which a process starts, and the check that the chosen provider can implement the contract.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use stentor_fabric::CapabilityMask;
use stentor_fabric_net::NetConfig;

use crate::choose::{ChooseError, Wish, choose, first, order};
use crate::domain::MakeError;
use crate::info::{Info, Needs};
use crate::load::{Libfabric, LoadError};

/// Capabilities to request, best first. RMA is always required: without it a provider cannot be a fabric.
const WISHES: [Needs; 5] = [
    wish(true, true, true),
    wish(false, true, true),
    wish(false, false, true),
    wish(false, true, false),
    wish(false, false, false),
];

const fn wish(atomics: bool, tagged: bool, ordered_writes: bool) -> Needs {
    Needs { rma: true, tagged, atomics, ordered_writes }
}

/// Configuration of the choice and use of a provider. All processes must use the same provider: peers with another one
/// are refused.
#[derive(Clone, Debug)]
pub struct OfiConfig {
    /// Providers to try, in order. If the list is empty, the providers of [`ORDER`](crate::ORDER) are tried.
    pub providers: Vec<String>,
    /// Device of the provider. `None` uses the nearest one; if several are equally near, the processes of a host use
    /// them in turn (see [`nearest`](crate::nearest)).
    pub device: Option<String>,
    /// Maximum length of one message or write, in bytes.
    pub message_bytes: u32,
    /// `true` if the process may sleep until a completion arrives. Completion queues with a wait object cost system
    /// calls at every poll. If `false`, or on a provider without wait objects, a sleeping process polls every 50 us.
    pub waits: bool,
    /// Approximate time after which a SEND or WRITE_WITH_IMM of this process fails if the peer has not posted a
    /// receive. It is 20 times as long until the first frame of the peer has arrived on the connection.
    pub rnr_timeout: Duration,
    /// Maximum time that a peer may take to confirm that it has stopped using a revoked region. After this time, all
    /// connections with the peer are broken.
    pub fence_timeout: Duration,
    /// Capabilities of the provider that are hidden.
    pub mask: CapabilityMask,
}

impl Default for OfiConfig {
    /// Returns the configuration for messages of up to 256 KiB on any provider.
    fn default() -> OfiConfig {
        OfiConfig {
            providers: Vec::new(),
            device: None,
            message_bytes: 256 << 10,
            waits: true,
            rnr_timeout: Duration::from_millis(250),
            fence_timeout: Duration::from_millis(250),
            mask: CapabilityMask::default(),
        }
    }
}

impl OfiConfig {
    /// Returns the provider that a process with this configuration would use.
    ///
    /// # Errors
    /// Returns a [`StartError`], as [`NetFabric::start`](stentor_fabric_net::NetFabric::start) does if it cannot choose
    /// a provider.
    pub fn choose(&self, net: &NetConfig) -> Result<Info, StartError> {
        let address = net.own_address().ok().map(|address| address.ip());
        let same_host = net.addresses.iter().flatten().all(|address| address.ip().is_loopback());
        let library = Libfabric::load()?;
        let (by_name, turn) = (!self.providers.is_empty(), turn(net));
        let names = if by_name { self.providers.clone() } else { order::usual(same_host) };
        let info = first(library, &names, by_name, |name| {
            let (provider, device) = (Some(name.to_owned()), self.device.clone());
            with_most(library, &Wish { provider, address, device, turn, same_host })
        })?;
        fits(&info).map(|()| info)
    }
}

/// Returns the number of processes with smaller ids on the same host, or this process's id if it has no address.
fn turn(net: &NetConfig) -> usize {
    let ip = |address: &Option<SocketAddr>| address.map(|address| address.ip());
    let me = net.me.index();
    let Some(own) = net.addresses.get(me).and_then(ip) else { return me };
    let beside = |other: &IpAddr| *other == own || other.is_loopback() && own.is_loopback();
    net.addresses[..me].iter().filter_map(ip).filter(beside).count()
}

/// Returns the wished-for provider with the most useful set of capabilities that it supports.
fn with_most(library: &'static Libfabric, wish: &Wish) -> Result<Info, ChooseError> {
    let mut last = ChooseError::None;
    for needs in WISHES {
        match choose(library, wish, needs) {
            Ok(info) => return Ok(info),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Checks that the provider can implement the contract.
fn fits(info: &Info) -> Result<(), StartError> {
    let lacks = match () {
        () if info.memory_modes().endpoint => "it binds registered memory to endpoints (FI_MR_ENDPOINT)",
        () if info.immediate_bytes() < 4 => "it does not support immediates of 32 bits",
        () if !info.orders().send_after_send => "it does not deliver messages in order",
        () => return Ok(()),
    };
    Err(StartError::Unfit { provider: info.provider().to_owned(), lacks })
}

/// Reason why a process could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// libfabric could not be loaded.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// No provider could be chosen.
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// The provider could not be opened.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// The provider cannot implement the contract.
    #[error("provider {provider:?} cannot be used as a fabric: {lacks}; name another provider")]
    Unfit {
        /// Name of the provider.
        provider: String,
        /// Missing capability.
        lacks: &'static str,
    },
    /// The connection manager could not be started.
    #[error(transparent)]
    Net(#[from] stentor_fabric_net::StartError),
}

#[cfg(test)]
mod tests {
    use stentor_fabric::ProcessId;

    use super::*;

    #[test]
    fn processes_of_one_host_have_different_turns() {
        let on = |host: [u8; 4], port| Some(SocketAddr::from((host, port)));
        let two_hosts = vec![
            on([10, 0, 0, 1], 1),
            on([10, 0, 0, 2], 1),
            on([10, 0, 0, 1], 2),
            on([10, 0, 0, 2], 2),
            None,
            on([10, 0, 0, 1], 3),
        ];
        let turn = |addresses: &[_], me| turn(&NetConfig::new("x", ProcessId(me), addresses.to_vec()));
        assert_eq!([0, 1, 2, 3, 4, 5].map(|me| turn(&two_hosts, me)), [0, 0, 1, 1, 4, 2]);
        let loopback = [on([127, 0, 0, 1], 1), on([127, 0, 0, 2], 1), on([127, 9, 0, 1], 1)];
        assert_eq!([0, 1, 2].map(|me| turn(&loopback, me)), [0, 1, 2]);
    }
}
