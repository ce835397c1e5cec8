//! What a command that makes its own configuration is told of libfabric.

use clap::Args;
use stentor::config::OfiSettings;

use crate::failure::Failure;

/// For `--fabric ofi`.
#[derive(Args, Clone, Debug)]
pub(crate) struct OnOfi {
    /// A provider as libfabric names it, or several with commas between them: they are tried in this order, and no others
    /// (`stentor doctor` lists what is there) [default: the first that is there of efa, verbs;ofi_rxm, shm (within a host),
    /// tcp;ofi_rxm, udp;ofi_rxd]
    #[arg(long, value_name = "NAME,…", value_parser = provider)]
    pub(crate) provider: Option<String>,
}

fn provider(text: &str) -> Result<String, String> {
    match OfiSettings::providers(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(problem) => Err(format!("{problem}; {}", problem.remedy())),
    }
}

impl OnOfi {
    /// The names.
    pub(crate) fn providers(&self) -> Vec<String> {
        self.provider.iter().flat_map(|text| OfiSettings::providers(text).unwrap_or_default()).collect()
    }

    /// Refuses a provider where there is none.
    pub(crate) fn refuse(&self, place: &str) -> Result<(), Failure> {
        match &self.provider {
            None => Ok(()),
            Some(provider) => Err(Failure::usage(
                format_args!("provider `{provider}` on a fabric that is not libfabric's"),
                place,
                "leave out --provider, or choose --fabric ofi",
            )),
        }
    }
}
