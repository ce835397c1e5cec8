//! Arguments that choose a libfabric provider, for commands that write their own configuration.

use clap::Args;
use stentor::config::{AsEfa, OfiSettings};
use stentor_fabric::CapabilityMask;

use crate::Failure;

/// Arguments of `--fabric ofi`.
#[derive(Args, Clone, Debug)]
pub struct OnOfi {
    /// Name of a libfabric provider, or several names with commas between them, which are tried in this order, and no
    /// others (`stentor doctor` lists the providers of this machine) [default: the first that exists of efa,
    /// verbs;ofi_rxm, shm (within a host), tcp;ofi_rxm, udp;ofi_rxd]
    #[arg(long, value_name = "NAME,…", value_parser = provider)]
    pub provider: Option<String>,
    /// Hide from the protocols what EFA lacks (or `=efa-direct`: tags, too), so that they run on any provider as they
    /// do on EFA. Slow; for tests on machines without an EFA card
    #[arg(long, value_name = "KIND", num_args = 0..=1, require_equals = true, default_missing_value = "efa", value_parser = as_efa)]
    pub as_efa: Option<AsEfa>,
}

fn as_efa(text: &str) -> Result<AsEfa, String> {
    AsEfa::named(text).map_err(|problem| format!("{problem}; {}", problem.remedy()))
}

fn provider(text: &str) -> Result<String, String> {
    match OfiSettings::providers(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(problem) => Err(format!("{problem}; {}", problem.remedy())),
    }
}

impl OnOfi {
    /// Returns the names of the providers, in the order in which they are tried.
    pub fn providers(&self) -> Vec<String> {
        self.provider.iter().flat_map(|text| OfiSettings::providers(text).unwrap_or_default()).collect()
    }

    /// Refuses `--provider` and `--as-efa` unless the command runs on libfabric.
    pub fn refuse_unless(&self, on_ofi: bool, place: &str) -> Result<(), Failure> {
        match &self.provider {
            _ if on_ofi => Ok(()),
            None => self.refuse_efa(place, "leave out --as-efa, or choose --fabric ofi"),
            Some(provider) => Err(Failure::usage(
                format_args!("provider `{provider}` with a fabric that does not use libfabric"),
                place,
                "leave out --provider, or choose --fabric ofi",
            )),
        }
    }

    /// Refuses `--as-efa` for a command that cannot impose restrictions.
    pub fn refuse_efa(&self, place: &str, remedy: &str) -> Result<(), Failure> {
        match self.as_efa {
            None => Ok(()),
            Some(efa) => Err(Failure::usage(
                format_args!("the restrictions of `{}` cannot be imposed here", efa.name()),
                place,
                remedy,
            )),
        }
    }

    /// Returns the capabilities that are hidden from the protocols.
    pub fn mask(&self) -> CapabilityMask {
        self.as_efa.map(AsEfa::mask).unwrap_or_default()
    }
}
