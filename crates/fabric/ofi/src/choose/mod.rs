//! Choice of the provider and of one of its devices.
//!
//! [`choose`] selects the provider that the configuration names, or else the first available one of [`ORDER`]. A named
//! provider or device is never replaced by another.

pub(crate) mod order;

use std::net::IpAddr;
use std::path::Path;

use stentor_fabric_net::sysfs;

use crate::info::{Info, InfoError, Needs};
use crate::load::Libfabric;
use crate::provider_device::{Here, ProviderDevice, nearest};
use crate::segments::{REMEDY, Shortage};
use order::Asked;

/// Providers in the order in which they are tried if none is named.
pub const ORDER: [&str; 5] = ["efa", "verbs;ofi_rxm", "shm", "tcp;ofi_rxm", "udp;ofi_rxd"];

/// PCI vendor id of Amazon, which makes the EFA devices.
const AMAZON: &str = "0x1d0f";

/// Constraints for the choice of a provider and a device.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    /// The only provider to use. `None` tries the providers of [`ORDER`].
    pub provider: Option<String>,
    /// Address of the endpoints, for providers with Internet addresses. Other providers ignore it and bind as they
    /// choose.
    pub address: Option<IpAddr>,
    /// The only device to use (see [`Info::domain`]). `None` uses the nearest device (see [`nearest`]).
    pub device: Option<String>,
    /// Index of this process among the processes of its host; see [`Here::turn`].
    pub turn: usize,
    /// `true` if all peers are on this host. Only then is `shm` considered without being named.
    pub same_host: bool,
}

impl Wish {
    /// Returns the names of the providers to try, in order.
    #[must_use]
    pub fn candidates(&self) -> Vec<String> {
        match &self.provider {
            Some(name) => vec![name.clone()],
            None => order::usual(self.same_host),
        }
    }
}

/// Reason why no provider was chosen.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChooseError {
    /// The named provider is not available. No other provider is used instead.
    #[error(
        "provider {provider:?} is not available ({why}); available: {}; name one of those, or install what {provider:?} needs",
        there.join(", ")
    )]
    Absent {
        /// Requested name.
        provider: String,
        /// Reason that libfabric returned.
        why: InfoError,
        /// Available providers.
        there: Vec<String>,
    },
    /// None of the named providers is available. No other provider is used instead.
    #[error(
        "none of the providers {} is available; available: {}; name one of those, or install what a requested one needs",
        asked.join(", "),
        there.join(", ")
    )]
    NoneOf {
        /// Requested names.
        asked: Vec<String>,
        /// Available providers.
        there: Vec<String>,
    },
    /// The provider is not available because the directory for its memory has too little room.
    #[error("provider {provider:?} is not available: {shortage}; {REMEDY}")]
    NoRoom {
        /// Name of the provider.
        provider: String,
        /// Free and required space.
        shortage: Shortage,
    },
    /// The provider is available, but not at this address.
    #[error("provider {provider:?} has no device with the address {address}: configure an address of this host")]
    Address {
        /// Name of the provider.
        provider: String,
        /// Address that this process was to bind.
        address: IpAddr,
    },
    /// libfabric offers another provider under this name.
    #[error("provider {asked:?} was requested, but libfabric offers {offered:?}: name that provider if it is meant")]
    Another {
        /// Requested name.
        asked: String,
        /// Name that libfabric returned.
        offered: String,
    },
    /// The provider has no device of this name.
    #[error("provider {provider:?} has no device {device:?}; it has: {}", there.join(", "))]
    Device {
        /// Name of the provider.
        provider: String,
        /// Requested device.
        device: String,
        /// Devices that the provider has.
        there: Vec<String>,
    },
    /// The provider's devices are present, but libfabric does not offer the provider. Another provider is used only if
    /// it is named.
    #[error(
        "this host has devices of {provider:?} ({}), but libfabric does not offer that provider: install a libfabric that has \
         it, check that this user may use the devices, or name another provider; available: {}",
        devices.join(", "),
        there.join(", ")
    )]
    PassedOver {
        /// Name of the provider.
        provider: String,
        /// Devices that the kernel lists.
        devices: Vec<String>,
        /// Available providers.
        there: Vec<String>,
    },
    /// None of the providers in [`ORDER`] is available.
    #[error("none of the providers {} is available: install a libfabric that has one of them", ORDER.join(", "))]
    None,
}

/// Chooses a provider and a device. The caller should print the name of the result.
///
/// # Errors
/// See [`ChooseError`]. A named provider or device is never replaced by another.
pub fn choose(library: &'static Libfabric, wish: &Wish, needs: Needs) -> Result<Info, ChooseError> {
    first(library, &wish.candidates(), wish.provider.is_some(), |name| named(library, name, wish, needs))
}

/// Returns the first provider in `names` that can be used.
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
    // Ask a provider with Internet addresses for a device with the configured address. If no device has the address,
    // some providers report that only when an endpoint is created.
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

/// Picks one of a provider's devices. Returns its index in the list and the reason for the choice.
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
        return at.map(|at| (places[at], "the device that the configuration names".to_owned())).ok_or_else(|| {
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

/// Returns one description of each provider that can send and receive reliably on this host.
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

/// Returns the devices of all [`providers`], each once, in the order in which libfabric lists them.
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
    fn named_device_is_chosen_at_any_distance_but_only_from_its_provider() {
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
        assert_eq!(pick("efa", Some("a"), 0), Ok((1, "the device that the configuration names".to_owned())));
        let error = pick("efa", Some("x"), 0).unwrap_err();
        assert!(matches!(&error, ChooseError::Device { there, .. } if there == &["a", "b", "c"]), "{error}");
        let error = pick("verbs", Some("a"), 0).unwrap_err();
        assert!(matches!(&error, ChooseError::Another { offered, .. } if offered == "tcp"), "{error}");
    }
}
