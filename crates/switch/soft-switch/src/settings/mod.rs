//! The configuration of a switch, `switch.toml`.

mod error;
mod example;
mod file;
mod validate;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use stentor_fabric_net::config_file;
use stentor_fabric_roce::driver::Mode;
use stentor_switch::{Aggregation, Host};

pub use error::{ConfigError, Problem};
pub use example::example;

use crate::faults::Faults;

/// Maximum number of sets that a switch can have room for.
pub const MOST_SETS: usize = 4096;
/// Maximum length of a configuration, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Location of a key; never the key itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyPlace {
    /// An environment variable.
    Env(String),
    /// A file. A relative path is relative to the configuration.
    File(PathBuf),
}

/// A set that exists from the start, whose queue pairs are created by other software.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StaticSet {
    /// Number of the set.
    pub gid: u16,
    /// Time after which another rank may take over the set of a silent holder.
    pub lease: Duration,
    /// Hosts, by rank.
    pub hosts: Vec<Option<Host>>,
}

/// Settings with which a switch starts.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Name of the cluster whose processes may join sets.
    pub cluster: String,
    /// Address of the VRQPs.
    pub forward: Ipv4Addr,
    /// Address of the VSQPs.
    pub backward: Ipv4Addr,
    /// Plain or raw sockets.
    pub mode: Mode,
    /// Address where hosts join sets, and the location of the key that they must have.
    pub control: Option<(SocketAddr, KeyPlace)>,
    /// Number of sets that the switch has room for.
    pub sets: usize,
    /// The way in which acknowledgements are combined.
    pub aggregation: Aggregation,
    /// `true` if the ICRC of data is checked, too.
    pub check_data: bool,
    /// Fault injection.
    pub faults: Faults,
    /// Sets that exist from the start.
    pub static_sets: Vec<StaticSet>,
}

impl Settings {
    /// Returns the settings of a switch without sets at two addresses, on plain sockets, with room for 256 sets.
    #[must_use]
    pub fn new(cluster: &str, forward: Ipv4Addr, backward: Ipv4Addr) -> Settings {
        Settings {
            cluster: cluster.to_owned(),
            forward,
            backward,
            mode: Mode::Plain,
            control: None,
            sets: 256,
            aggregation: Aggregation::ExactMin,
            check_data: false,
            faults: Faults::default(),
            static_sets: Vec::new(),
        }
    }

    /// Reads and validates a file.
    ///
    /// # Errors
    /// See [`Problem`]; the error names the file, the line and the remedy.
    pub fn load(path: &Path) -> Result<Settings, ConfigError> {
        let text = config_file::read(path, MAX_FILE_BYTES).map_err(|error| {
            let problem = Problem::Unreadable { reason: error.to_string() };
            ConfigError { file: path.to_owned(), position: None, problem }
        })?;
        Settings::parse(path, &text)
    }

    /// Parses and validates a text. Errors refer to it as `path`.
    ///
    /// # Errors
    /// See [`Problem`].
    pub fn parse(path: &Path, text: &str) -> Result<Settings, ConfigError> {
        let file = config_file::parse(text).map_err(|(span, flaw)| (span, flaw.into()));
        file.and_then(validate::validate).map_err(|(span, problem)| ConfigError::at(path, text, &span, problem))
    }
}
