//! Which provider is taken, and which of its devices.

pub(crate) mod order;

use std::net::IpAddr;
use std::path::Path;

use stentor_fabric_net::sysfs;

use crate::info::{Info, InfoError, Needs};
use crate::load::Libfabric;
use crate::provider_device::{Here, ProviderDevice, nearest};
use crate::segments::{REMEDY, Shortage};
use order::Asked;

/// Providers in the order in which they are tried where none is named.
pub const ORDER: [&str; 5] = ["efa", "verbs;ofi_rxm", "shm", "tcp;ofi_rxm", "udp;ofi_rxd"];

/// Who makes EFA's cards.
const AMAZON: &str = "0x1d0f";

/// What to choose among.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    /// A provider, and no other; `None` tries [`ORDER`].
    pub provider: Option<String>,
    /// Where the endpoints are to be, on providers that have addresses of the Internet. Others bind where they like.
    pub address: Option<IpAddr>,
    /// A device, and no other; see [`Info::domain`]. `None` takes the nearest: see [`nearest`].
    pub device: Option<String>,
    /// Which process of its host this one is: see [`Here::turn`].
    pub turn: usize,
    /// Whether all peers are on this host: only then `shm` comes into question without being named.
    pub same_host: bool,
}

impl Wish {
    /// The names that are tried.
    #[must_use]
    pub fn candidates(&self) -> Vec<String> {
        match &self.provider {
            Some(name) => vec![name.clone()],
            None => order::usual(self.same_host),
        }
    }
}

/// Why no provider was chosen.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChooseError {
    /// What was named is not there. Nothing else is taken instead.
    #[error(
        "provider {provider:?} is not there ({why}); there are: {}; name one of those, or install what {provider:?} needs",
        there.join(", ")
    )]
    Absent {
        /// What was named.
        provider: String,
        /// What libfabric said.
        why: InfoError,
        /// What there is.
        there: Vec<String>,
    },
    /// None of those that were named is there. Nothing else is taken instead.
    #[error(
        "none of the providers {} is there; there are: {}; name one of those, or install what one of them needs",
        asked.join(", "),
        there.join(", ")
    )]
    NoneOf {
        /// What was named.
        asked: Vec<String>,
        /// What there is.
        there: Vec<String>,
    },
    /// It is not there because the directory of its memory has no room.
    #[error("provider {provider:?} is not there: {shortage}; {REMEDY}")]
    NoRoom {
        /// The provider.
        provider: String,
        /// What there is, and what is needed.
        shortage: Shortage,
    },
    /// It is there, and not at this address.
    #[error("provider {provider:?} has no device with the address {address}: name one of this host")]
    Address {
        /// The provider.
        provider: String,
        /// Where this process is to be.
        address: IpAddr,
    },
    /// libfabric offers another provider under this name.
    #[error("asked for provider {asked:?}, libfabric offers {offered:?}: name that one if it is meant")]
    Another {
        /// What was named.
        asked: String,
        /// What came.
        offered: String,
    },
    /// There is no such device.
    #[error("provider {provider:?} has no device {device:?}; it has: {}", there.join(", "))]
    Device {
        /// The provider.
        provider: String,
        /// What was named.
        device: String,
        /// What there is.
        there: Vec<String>,
    },
    /// Its devices are there, and it is not. Nobody has asked for what would be taken instead.
    #[error(
        "there are devices of {provider:?} ({}), and libfabric does not offer it: install a libfabric that has it, see that this \
         user may use the devices, or name another provider; there are: {}",
        devices.join(", "),
        there.join(", ")
    )]
    PassedOver {
        /// It.
        provider: String,
        /// What the kernel shows.
        devices: Vec<String>,
        /// What there is.
        there: Vec<String>,
    },
    /// None of them is there.
    #[error("none of the providers {} is there: install a libfabric that has one", ORDER.join(", "))]
    None,
}

/// Chooses. What was chosen says its name: print it.
///
/// # Errors
/// See [`ChooseError`]; what was named is never replaced by something else.
pub fn choose(library: &'static Libfabric, wish: &Wish, needs: Needs) -> Result<Info, ChooseError> {
    first(library, &wish.candidates(), wish.provider.is_some(), |name| named(library, name, wish, needs))
}

/// The first of these that can be taken.
pub(crate) fn first(
    library: &'static Libfabric,
    names: &[String],
    by_name: bool,
    take: impl FnMut(&str) -> Result<Info, ChooseError>,
) -> Result<Info, ChooseError> {
    let efa = if by_name { Vec::new() } else { sysfs::rdma_devices_of(Path::new(sysfs::ROOT), AMAZON) };
    let asked = if by_name { Asked::ByName } else { Asked::ByNobody(&efa) };
    order::first(names, asked, take, || names_of(library))
}

fn names_of(library: &'static Libfabric) -> Vec<String> {
    providers(library).into_iter().map(|info| info.provider().to_owned()).collect()
}

fn named(library: &'static Libfabric, provider: &str, wish: &Wish, needs: Needs) -> Result<Info, ChooseError> {
    let absent = |why| {
        let provider = provider.to_owned();
        match Shortage::of(&provider).filter(|_| matches!(why, InfoError::Nobody { .. })) {
            Some(shortage) => ChooseError::NoRoom { provider, shortage },
            None => ChooseError::Absent { provider, why, there: names_of(library) },
        }
    };
    let mut offered = Info::list(library, Some(provider), None, needs).map_err(absent)?;
    // Where it has addresses, it is asked for the one that is meant: one that is not configured anywhere is an error.
    if offered.first().is_some_and(Info::has_ip)
        && let Some(address) = wish.address
    {
        offered = Info::list(library, Some(provider), Some(address), needs).map_err(|why| match why {
            InfoError::Nobody { .. } => ChooseError::Address { provider: provider.to_owned(), address },
            why => absent(why),
        })?;
    }
    let devices: Vec<_> = offered.iter().map(Info::device).collect();
    let here = Here::now(Path::new(sysfs::ROOT), wish.turn);
    let (at, why) = pick(&devices, provider, wish.device.as_deref(), &here)?;
    Ok(offered.swap_remove(at).because(why))
}

/// Picks one of a provider's devices, as its place in the list, and says why.
fn pick(
    offered: &[ProviderDevice],
    provider: &str,
    device: Option<&str>,
    here: &Here,
) -> Result<(usize, String), ChooseError> {
    let (places, ours): (Vec<_>, Vec<_>) = (0..)
        .zip(offered)
        .filter(|(_, offered)| offered.provider == provider)
        .map(|(at, offered)| (at, offered.clone()))
        .unzip();
    if let Some(device) = device.filter(|_| !ours.is_empty()) {
        let at = ours.iter().position(|ours| ours.name == device);
        return at.map(|at| (places[at], "the device that is named".to_owned())).ok_or_else(|| {
            let mut there: Vec<_> = ours.into_iter().map(|ours| ours.name).collect();
            there.dedup();
            ChooseError::Device { provider: provider.to_owned(), device: device.to_owned(), there }
        });
    }
    nearest(&ours, here).map(|(at, why)| (places[at], why)).ok_or_else(|| ChooseError::Another {
        asked: provider.to_owned(),
        offered: offered.first().map(|offered| offered.provider.clone()).unwrap_or_default(),
    })
}

/// One description of each provider that can send and receive reliably here.
#[must_use]
pub fn providers(library: &'static Libfabric) -> Vec<Info> {
    let mut found: Vec<Info> = Vec::new();
    for info in Info::list(library, None, None, Needs::default()).unwrap_or_default() {
        if found.iter().all(|other| other.provider() != info.provider()) {
            found.push(info);
        }
    }
    found
}

/// The devices of all those providers, each once, provider by provider as libfabric tells of them.
#[must_use]
pub fn devices(library: &'static Libfabric) -> Vec<ProviderDevice> {
    let mut found: Vec<ProviderDevice> = Vec::new();
    for info in Info::list(library, None, None, Needs::default()).unwrap_or_default() {
        let is_told = |other: &ProviderDevice| (&*other.provider, &*other.name) == (info.provider(), info.domain());
        if !found.iter().any(is_told) {
            found.push(info.device());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(provider: &str, name: &str, node: u32) -> ProviderDevice {
        ProviderDevice { provider: provider.into(), name: name.into(), network: None, bus: None, node: Some(node) }
    }

    #[test]
    fn a_device_that_is_named_is_taken_however_far_and_only_of_the_provider() {
        let offered = [
            device("tcp", "a", 1),
            device("efa", "a", 0),
            device("efa", "b", 1),
            device("efa", "b", 1),
            device("efa", "c", 1),
        ];
        let pick = |provider: &str, name: Option<&str>, turn| {
            pick(&offered, provider, name, &Here { node: Some(1), distances: Vec::new(), turn })
        };
        assert_eq!([0, 1, 2].map(|turn| pick("efa", None, turn).unwrap().0), [2, 4, 2]);
        assert_eq!(pick("efa", Some("a"), 0), Ok((1, "the device that is named".to_owned())));
        let error = pick("efa", Some("x"), 0).unwrap_err();
        assert!(matches!(&error, ChooseError::Device { there, .. } if there == &["a", "b", "c"]), "{error}");
        let error = pick("verbs", Some("a"), 0).unwrap_err();
        assert!(matches!(&error, ChooseError::Another { offered, .. } if offered == "tcp"), "{error}");
    }
}
