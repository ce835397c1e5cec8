//! Which provider is taken.

use std::net::IpAddr;

use crate::info::{Info, InfoError, Needs};
use crate::load::Libfabric;

/// Providers in the order in which they are tried where none is named.
pub const ORDER: [&str; 5] = ["efa", "verbs;ofi_rxm", "shm", "tcp;ofi_rxm", "udp;ofi_rxd"];

/// What to choose among.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wish {
    /// A provider, and no other; `None` tries [`ORDER`].
    pub provider: Option<String>,
    /// Where the endpoints are to be, on providers that have addresses of the Internet. Others bind where they like.
    pub address: Option<IpAddr>,
    /// A device, and no other; see [`Info::domain`].
    pub device: Option<String>,
    /// Whether all peers are on this host: only then `shm` comes into question without being named.
    pub same_host: bool,
}

impl Wish {
    /// The names that are tried.
    #[must_use]
    pub fn candidates(&self) -> Vec<String> {
        match &self.provider {
            Some(name) => vec![name.clone()],
            None => ORDER.into_iter().filter(|name| *name != "shm" || self.same_host).map(str::to_owned).collect(),
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
    /// None of them is there.
    #[error("none of the providers {} is there: install a libfabric that has one", ORDER.join(", "))]
    None,
}

/// Chooses. What was chosen says its name: print it.
///
/// # Errors
/// See [`ChooseError`]; what was named is never replaced by something else.
pub fn choose(library: &'static Libfabric, wish: &Wish, needs: Needs) -> Result<Info, ChooseError> {
    if let Some(provider) = &wish.provider {
        return named(library, provider, wish, needs);
    }
    wish.candidates().iter().find_map(|name| named(library, name, wish, needs).ok()).ok_or(ChooseError::None)
}

fn named(library: &'static Libfabric, provider: &str, wish: &Wish, needs: Needs) -> Result<Info, ChooseError> {
    let there = || providers(library).into_iter().map(|info| info.provider().to_owned()).collect();
    let absent = |why| ChooseError::Absent { provider: provider.to_owned(), why, there: there() };
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
    pick(offered, provider, wish.device.as_deref())
}

fn pick(offered: Vec<Info>, provider: &str, device: Option<&str>) -> Result<Info, ChooseError> {
    let another = offered.first().map(|info| info.provider().to_owned()).unwrap_or_default();
    let (ours, _): (Vec<_>, Vec<_>) = offered.into_iter().partition(|info| info.provider() == provider);
    if ours.is_empty() {
        return Err(ChooseError::Another { asked: provider.to_owned(), offered: another });
    }
    let mut there: Vec<String> = ours.iter().map(|info| info.domain().to_owned()).collect();
    there.dedup();
    let fits = |info: &Info| device.is_none_or(|device| info.domain() == device);
    ours.into_iter().find(fits).ok_or_else(|| ChooseError::Device {
        provider: provider.to_owned(),
        device: device.unwrap_or_default().to_owned(),
        there,
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
