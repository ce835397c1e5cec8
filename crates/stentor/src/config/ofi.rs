//! `[ofi]`: the libfabric provider, and how it is used.

use std::time::Duration;

use serde::Deserialize;
use stentor_fabric::CapabilityMask;
#[cfg(feature = "ofi")]
use stentor_fabric_ofi::OfiConfig;
use toml::Spanned;

use super::error::{Misplaced, Problem};
use super::number::number;

/// Range of each timeout of `[ofi]`, in milliseconds.
const TIMEOUT_MS: std::ops::RangeInclusive<u32> = 1..=60_000;

/// The use of libfabric by processes. One file may serve hosts whose devices have different names: without `device`,
/// each process uses the device with its address. Named providers apply to all hosts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct OfiSettings {
    /// Providers as libfabric names them, in the order in which they are tried. If empty, the first available provider
    /// of [`ORDER`](OfiSettings::ORDER) is used.
    pub providers: Vec<String>,
    /// Device of the provider.
    pub device: Option<String>,
    /// Time that a SEND or WRITE_WITH_IMM waits for the peer to post a receive.
    pub rnr_timeout: Option<Duration>,
    /// Time that a peer may need to stop accessing a revoked region.
    pub fence_timeout: Option<Duration>,
    /// EFA's restrictions, imposed on any provider: capabilities that EFA lacks are hidden.
    pub as_efa: Option<AsEfa>,
}

/// The EFA provider whose restrictions are imposed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsEfa {
    /// The restrictions of the provider `efa`.
    Efa,
    /// The restrictions of `efa-direct`, which has no tagged messages.
    EfaDirect,
}

impl AsEfa {
    /// All values.
    pub const ALL: [AsEfa; 2] = [AsEfa::Efa, AsEfa::EfaDirect];

    /// Returns the name in the file.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            AsEfa::Efa => "efa",
            AsEfa::EfaDirect => "efa-direct",
        }
    }

    /// Returns the value with this name.
    ///
    /// # Errors
    /// Returns [`Problem::BadEfa`] if no value has this name.
    pub fn named(name: &str) -> Result<AsEfa, Problem> {
        let mut all = AsEfa::ALL.into_iter();
        all.find(|one| one.name() == name).ok_or_else(|| Problem::BadEfa { name: name.to_owned() })
    }

    /// Returns the capabilities that are hidden.
    #[must_use]
    pub fn mask(self) -> CapabilityMask {
        CapabilityMask::efa(self == AsEfa::Efa)
    }
}

impl OfiSettings {
    /// Providers in the order in which they are tried if none is named: the order of `stentor_fabric_ofi`, defined even
    /// if that crate is not built in.
    pub const ORDER: [&str; 5] = ["efa", "verbs;ofi_rxm", "shm", "tcp;ofi_rxm", "udp;ofi_rxd"];

    /// Parses a list of providers, separated by commas.
    ///
    /// # Errors
    /// Returns [`Problem::BadProvider`] if libfabric cannot have a provider of such a name, or if a name occurs twice.
    pub fn providers(text: &str) -> Result<Vec<String>, Problem> {
        let mut names: Vec<String> = Vec::new();
        for name in text.split(',').map(str::trim) {
            let is_one = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || ";_-".contains(c));
            if !is_one || names.iter().any(|other| other == name) {
                return Err(Problem::BadProvider { name: name.to_owned(), twice: is_one });
            }
            names.push(name.to_owned());
        }
        Ok(names)
    }

    /// Applies the settings to a process's configuration.
    #[cfg(feature = "ofi")]
    #[must_use]
    pub fn apply(&self, config: &OfiConfig) -> OfiConfig {
        OfiConfig {
            providers: self.providers.clone(),
            device: self.device.clone(),
            rnr_timeout: self.rnr_timeout.unwrap_or(config.rnr_timeout),
            fence_timeout: self.fence_timeout.unwrap_or(config.fence_timeout),
            mask: self.as_efa.map_or(config.mask, AsEfa::mask),
            ..*config
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileOfi {
    provider: Option<Spanned<String>>,
    device: Option<String>,
    rnr_timeout_ms: Option<Spanned<i64>>,
    fence_timeout_ms: Option<Spanned<i64>>,
    as_efa: Option<Spanned<String>>,
}

pub(super) fn validate(file: &FileOfi) -> Result<OfiSettings, Misplaced> {
    let providers = file.provider.as_ref().map(|text| {
        let misplaced = |problem| (text.span(), problem);
        OfiSettings::providers(text.as_ref()).map_err(misplaced)
    });
    let timeout = |key, value: &Option<Spanned<i64>>| {
        let ms = value.as_ref().map(|value| number(key, Some(value), &TIMEOUT_MS, *TIMEOUT_MS.start())).transpose();
        ms.map(|ms: Option<u32>| ms.map(|ms| Duration::from_millis(ms.into())))
    };
    let as_efa = file.as_efa.as_ref().map(|text| {
        let misplaced = |problem| (text.span(), problem);
        AsEfa::named(text.as_ref()).map_err(misplaced)
    });
    Ok(OfiSettings {
        as_efa: as_efa.transpose()?,
        providers: providers.transpose()?.unwrap_or_default(),
        device: file.device.clone(),
        rnr_timeout: timeout("ofi.rnr_timeout_ms", &file.rnr_timeout_ms)?,
        fence_timeout: timeout("ofi.fence_timeout_ms", &file.fence_timeout_ms)?,
    })
}

#[cfg(all(test, feature = "ofi"))]
mod tests {
    use super::*;

    #[test]
    fn providers_are_tried_in_the_order_of_the_fabric() {
        assert_eq!(OfiSettings::ORDER, stentor_fabric_ofi::ORDER);
    }
}
