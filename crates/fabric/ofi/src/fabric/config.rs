//! What a process must know to start.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use stentor_fabric::CapabilityMask;
use stentor_fabric_net::NetConfig;

use crate::choose::{ChooseError, Wish, choose, first, order};
use crate::domain::MakeError;
use crate::info::{Info, Needs};
use crate::load::{Libfabric, LoadError};

/// What a provider is asked for, best first: without RDMA it cannot be a fabric.
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

/// How a process chooses and uses its provider. What is taken must be equal at every process: peers with another one are refused.
#[derive(Clone, Debug)]
pub struct OfiConfig {
    /// Providers in the order in which they are tried, and no others; if there are none, those of [`ORDER`](crate::ORDER).
    pub providers: Vec<String>,
    /// The provider's device; `None` takes the nearest, and where several are as near each process of a host another one: see
    /// [`nearest`](crate::nearest).
    pub device: Option<String>,
    /// Limit of one message or write, bytes.
    pub message_bytes: u32,
    /// Whether the process ever sleeps for what comes. Completion queues that can be waited for cost system calls at every look;
    /// without, a process that sleeps looks every 50 us.
    pub waits: bool,
    /// About how long a SEND or WRITE_WITH_IMM waits for the peer to post a receive.
    pub rnr_timeout: Duration,
    /// How long a peer may take to say that it leaves a revoked region alone, before all connections with it are broken.
    pub fence_timeout: Duration,
    /// What is hidden of the provider's capabilities.
    pub mask: CapabilityMask,
}

impl Default for OfiConfig {
    /// Messages of 256 KiB, any provider.
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
    /// Which provider a process of this configuration would take: the first that is there, whether or not it can be a fabric.
    ///
    /// # Errors
    /// As those of [`NetFabric::start`](stentor_fabric_net::NetFabric::start).
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

/// How many processes before this one are on its host; its number where it has no address.
fn turn(net: &NetConfig) -> usize {
    let ip = |address: &Option<SocketAddr>| address.map(|address| address.ip());
    let me = net.me.index();
    let Some(own) = net.addresses.get(me).and_then(ip) else { return me };
    let beside = |other: &IpAddr| *other == own || other.is_loopback() && own.is_loopback();
    net.addresses[..me].iter().filter_map(ip).filter(beside).count()
}

/// The provider that is named, with as much of what it can do as is useful.
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

/// Whether the contract can stand on it.
fn fits(info: &Info) -> Result<(), StartError> {
    let lacks = match () {
        () if info.memory_modes().endpoint => "its memory belongs to endpoints (FI_MR_ENDPOINT)",
        () if info.immediate_bytes() < 4 => "it has no immediates of 32 bits",
        () if !info.orders().send_after_send => "its messages come in any order",
        () => return Ok(()),
    };
    Err(StartError::Unfit { provider: info.provider().to_owned(), lacks })
}

/// Why a process could not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// There is no libfabric.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// There is no such provider.
    #[error(transparent)]
    Choose(#[from] ChooseError),
    /// The provider does not open.
    #[error(transparent)]
    Make(#[from] MakeError),
    /// It cannot do what the contract needs.
    #[error("provider {provider:?} cannot be a fabric: {lacks}; name another one")]
    Unfit {
        /// The provider.
        provider: String,
        /// What it lacks.
        lacks: &'static str,
    },
    /// Peers cannot be met.
    #[error(transparent)]
    Net(#[from] stentor_fabric_net::StartError),
}

#[cfg(test)]
mod tests {
    use stentor_fabric::ProcessId;

    use super::*;

    #[test]
    fn processes_of_one_host_have_turns_of_their_own() {
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
